package plan_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// world is a database with plans, and a worker of the station report, which a test drains.
type world struct {
	t     *testing.T
	db    *mongo.Database
	plans *plan.Plans
	c     *consumer.Consumer

	mu    sync.Mutex
	ran   []repeat.Args[string] // of the executions, in order
	fails func(args repeat.Args[string], attempt int) error
}

func newWorld(t *testing.T, change ...func(*plan.Config)) *world {
	w := &world{t: t, db: testdb.New(t)}
	var err error
	cfg := plan.Config{Database: w.db}
	for _, f := range change {
		f(&cfg)
	}
	w.plans, err = plan.New(cfg)
	require.NoError(t, err)
	w.c = w.worker("")
	return w
}

// worker hires a worker of the station report.
func (w *world) worker(id string) *consumer.Consumer {
	c, err := consumer.New(consumer.Config{Database: w.db, WorkerID: id})
	require.NoError(w.t, err)
	require.NoError(w.t, consumer.Handle(c, model.NewType[repeat.Args[string], string]("report"), w.report))
	return c
}

func (w *world) report(_ context.Context, task *consumer.Task[repeat.Args[string]]) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ran = append(w.ran, task.Args)
	if w.fails != nil {
		if err := w.fails(task.Args, task.Attempt); err != nil {
			return "", err
		}
	}
	return fmt.Sprint("report ", task.Args.Step), nil
}

// every is a plan of steps, one each second.
func every(id string, steps int, change ...func(*repeat.Spec)) repeat.Spec {
	s := repeat.Spec{PlanID: id, Station: "report", Description: "sales", PlanType: repeat.Second, PlanValue: 1, PlanRepet: steps, NoKeep: true, Messages: []any{"north", "south"}}
	for _, f := range change {
		f(&s)
	}
	return s
}

// unretried leaves the retries of a step to its plan.
func unretried(s *repeat.Spec) { s.Options.Retry = &model.Retry{Strategy: model.RetryNone} }

func (w *world) publish(s repeat.Spec) *repeat.Plan {
	w.t.Helper()
	p, err := w.plans.Publish(w.t.Context(), s)
	require.NoError(w.t, err)
	return p
}

func (w *world) drain(opts ...mstest.DrainOption) consumer.Drained {
	w.t.Helper()
	return mstest.Drain(w.t, w.c, append(opts, mstest.With(w.plans.Drain))...)
}

func (w *world) get(id string) *repeat.Plan {
	w.t.Helper()
	p, err := w.plans.Get(w.t.Context(), id)
	require.NoError(w.t, err)
	return p
}

// results are those of a plan, as text.
func (w *world) results(id string) (out []string) {
	w.t.Helper()
	all, err := w.plans.Results(w.t.Context(), id, nil, 1000)
	require.NoError(w.t, err)
	for _, r := range all {
		text, _ := r.Result.StringValueOK()
		out = append(out, fmt.Sprintf("%d.%d %s %s%s", r.Step, r.Try, r.State, text, r.ErrorInfo))
	}
	return out
}

func (w *world) count(collection string, filter bson.D) int64 {
	w.t.Helper()
	n, err := w.db.Collection(collection).CountDocuments(w.t.Context(), filter)
	require.NoError(w.t, err)
	return n
}
