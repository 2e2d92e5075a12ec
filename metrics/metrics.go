// Package metrics exports what a process and its fleet do to Prometheus. Register a collector:
//
//	collector, err := metrics.New(metrics.Config{Database: db})
//	if err != nil {
//		return err
//	}
//	prometheus.MustRegister(collector)
//
// A process that works on several databases registers a collector for each of them, with a label that
// tells them apart. Without it the second registration fails:
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"database": db.Name()}, prometheus.DefaultRegisterer).MustRegister(collector)
//
// A collector covers all consumers, pullers and engines of the process that use its database by the same client and
// prefix, whenever they were made. Only database_errors_total covers all databases of the process. Numbers of the
// fleet, such as due tasks, come from a census that one process takes for all.
//
// docs/metrics.md lists the metrics. process.go and fleet.go define them.
package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/census"
	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/internal/store"
)

// Config configures a collector. Only Database is required.
type Config struct {
	// Database is the caller's. The collector never closes it.
	Database *mongo.Database
	// Prefix of the collections' names. Defaults to "".
	Prefix string
	// Commands counts the commands of a client, see [Commands]. Defaults to none.
	Commands *Commands
	// ProcessOnly leaves out the numbers of the fleet, which are the same in each process. Defaults
	// to false.
	ProcessOnly bool
	// Logger receives messages for operators. Defaults to the zero Logger, which is silent.
	Logger zerolog.Logger
}

// New validates the Config and creates a collector. It does no I/O. A scrape reads one small document of
// the database, and may take up to eight seconds when it is this process's turn to count. While the
// database does not answer, the numbers of the fleet are missing.
func New(cfg Config) (prometheus.Collector, error) {
	st, err := store.Open(store.Config{Database: cfg.Database, Prefix: cfg.Prefix, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	for class := store.Retry; class <= store.Fatal; class++ { // a rate needs a first value
		measure.Failures.Of(class.String())
	}
	c := &collector{store: st, commands: cfg.Commands, log: cfg.Logger}
	if !cfg.ProcessOnly {
		c.census = census.New(st)
	}
	return c, nil
}

// collector implements [prometheus.Collector].
type collector struct {
	store    *store.Store
	census   *census.Taker // nil = numbers of the fleet are left out
	commands *Commands     // nil = none
	log      zerolog.Logger
}

// metric is one metric of a source S. Its Prometheus name is namespace and name.
type metric[S any] struct {
	name   string
	kind   kind
	help   string
	labels []string
	read   func(from S, emit emit)
}

type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
)

// emit takes a value: a number, or a [measure.Distribution] of a histogram.
type emit func(v any, labels ...string)

const namespace = "mscheduler_"

func (m *metric[S]) desc() *prometheus.Desc {
	return prometheus.NewDesc(namespace+m.name, m.help, m.labels, nil)
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for i := range ofProcess {
		out <- ofProcess[i].desc()
	}
	if c.commands != nil {
		for i := range ofCommands {
			out <- ofCommands[i].desc()
		}
	}
	if c.census != nil {
		for i := range ofFleet {
			out <- ofFleet[i].desc()
		}
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(out chan<- prometheus.Metric) {
	collect(ofProcess, process{c.store.Measure, c.store.Measure.Workers()}, out)
	if c.commands != nil {
		collect(ofCommands, c.commands, out)
	}
	if c.census == nil {
		return
	}
	last, now, err := c.census.Now(context.Background())
	if err != nil {
		c.log.Warn().Err(err).Msg("cannot count for metrics; retrying with the next scrape")
	}
	if !last.At.IsZero() {
		collect(ofFleet, fleet{last, now}, out)
	}
}

func collect[S any](metrics []metric[S], from S, out chan<- prometheus.Metric) {
	for i := range metrics {
		m := &metrics[i]
		desc := m.desc()
		m.read(from, func(v any, labels ...string) {
			switch v := v.(type) {
			case measure.Distribution:
				out <- prometheus.MustNewConstHistogram(desc, v.Count, v.Sum, v.Buckets, labels...)
			case float64:
				out <- prometheus.MustNewConstMetric(desc, m.kind.value(), v, labels...)
			case int64:
				out <- prometheus.MustNewConstMetric(desc, m.kind.value(), float64(v), labels...)
			case int:
				out <- prometheus.MustNewConstMetric(desc, m.kind.value(), float64(v), labels...)
			}
		})
	}
}

func (k kind) value() prometheus.ValueType {
	if k == counter {
		return prometheus.CounterValue
	}
	return prometheus.GaugeValue
}
