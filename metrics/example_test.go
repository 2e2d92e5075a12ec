package metrics_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/metrics"
)

// observed connects to a database, and registers what a service exports about it.
func observed(uri, database string, registry prometheus.Registerer) (*mongo.Database, error) {
	var commands metrics.Commands
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetMonitor(commands.Monitor()))
	if err != nil {
		return nil, err
	}
	db := client.Database(database)
	collector, err := metrics.New(metrics.Config{Database: db, Commands: &commands})
	if err != nil {
		return nil, err
	}
	return db, registry.Register(collector)
}

func ExampleNew() {
	uri, database := testdb.ExampleURI(), testdb.Example().Name()
	registry := prometheus.NewRegistry()
	db, err := observed(uri, database, registry)
	if err != nil {
		panic(err)
	}
	defer func() { _ = db.Client().Disconnect(context.Background()) }()
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		if f.GetName() == "mscheduler_rules_online" {
			fmt.Println(f.GetName(), f.GetMetric()[0].GetGauge().GetValue())
		}
	}
	// Output: mscheduler_rules_online 0
}
