package metrics_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
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

// labelled registers the collector of one of several databases of a process.
func labelled(db *mongo.Database, registry prometheus.Registerer) error {
	collector, err := metrics.New(metrics.Config{Database: db})
	if err != nil {
		return err
	}
	return prometheus.WrapRegistererWith(prometheus.Labels{"database": db.Name()}, registry).Register(collector)
}

func TestAProcessWithTwoDatabasesHasTwoCollectors(t *testing.T) {
	one, two := testdb.New(t), testdb.New(t)
	registry := prometheus.NewRegistry()
	require.NoError(t, labelled(one, registry))
	require.NoError(t, labelled(two, registry))
	families, err := registry.Gather()
	require.NoError(t, err)
	var names []string
	for _, f := range families {
		if f.GetName() == "mscheduler_rules_online" {
			for _, m := range f.GetMetric() {
				names = append(names, m.GetLabel()[0].GetValue())
			}
		}
	}
	require.ElementsMatch(t, []string{one.Name(), two.Name()}, names)
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
