package periodic_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/producer"
)

func TestMain(m *testing.M) { testdb.Main(m) }

var tickType = model.NewType[map[string]any, model.None]("tick")

// engine runs until the test ends.
func engine(t *testing.T, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { require.NoError(t, run(ctx)) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
}

func TestEveryTickRunsOnceAndHasARecord(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	p, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	c, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	ran := make(chan string, 100)
	require.NoError(t, consumer.Handle(c, tickType, func(_ context.Context, x *consumer.Task[map[string]any]) (model.None, error) {
		ran <- x.Key
		return model.None{}, nil
	}))
	r, err := p.Create(t.Context(), schedule.Spec{Name: "each second", Cron: "* * * * * *", Type: "tick", Args: map[string]any{"a": 1}, CatchUp: schedule.CatchUp{Mode: schedule.CatchUpFull, Cap: 1000}})
	require.NoError(t, err)
	_, err = p.Enable(t.Context(), r.ID, 0)
	require.NoError(t, err)
	engine(t, p.Run)
	engine(t, c.Run)
	seen := map[string]bool{}
	for len(seen) < 3 {
		key := testdb.Receive(t, ran)
		require.False(t, seen[key], "ran twice: %s", key)
		seen[key] = true
	}
	require.Eventually(t, func() bool {
		runs, err := p.Runs(t.Context(), r.ID, periodic.RunFilter{Statuses: []schedule.RunStatus{schedule.RunSuccess}}, nil, 100)
		require.NoError(t, err)
		return len(runs) >= 3
	}, testdb.Patience, 50*time.Millisecond)
	runs, err := p.Runs(t.Context(), r.ID, periodic.RunFilter{}, nil, 100)
	require.NoError(t, err)
	for i, run := range runs {
		require.Equal(t, tickplan.TickID(r.ID, run.Nominal), run.ID)
		if i > 0 {
			require.Equal(t, time.Second, runs[i-1].Nominal.Sub(run.Nominal), "no tick is missing")
		}
	}
}

// What a type says to its tasks it says to those of ticks, too.
func TestTheTaskOfATickIsWhatASendWouldHaveStored(t *testing.T) {
	db := testdb.New(t)
	p, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	prod, err := producer.New(producer.Config{Database: db, Tenant: "acme"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, prod.Close(context.Background())) })
	_, err = admin.New(prod).PutType(t.Context(), model.TaskType{
		Code: "tick", Category: "of the type", ClaimBy: model.ClaimByCategory, Options: model.Options{Retention: time.Hour},
	})
	require.NoError(t, err)
	sent, err := producer.Send(t.Context(), prod, tickType, nil)
	require.NoError(t, err)
	want, err := prod.Get(t.Context(), sent.ID)
	require.NoError(t, err)

	trigger := func(s schedule.Spec) *model.Task {
		s.Cron, s.Tenant, s.Type = "@yearly", "acme", "tick"
		r, err := p.Create(t.Context(), s)
		require.NoError(t, err)
		run, err := p.Trigger(t.Context(), r.ID, periodic.TriggerOptions{})
		require.NoError(t, err)
		task, err := prod.Get(t.Context(), model.TaskID("acme", "tick", run))
		require.NoError(t, err)
		return task
	}
	plain := trigger(schedule.Spec{Name: "plain"})
	require.Equal(t, []string{"*", "g:of the type"}, plain.Audience)
	require.Equal(t, want.Audience, plain.Audience)
	require.Equal(t, want.Category, plain.Category)
	require.Equal(t, want.Options, plain.Options)
	own := trigger(schedule.Spec{Name: "its own", Category: "of the rule", Options: model.Options{Retention: time.Minute}})
	require.Equal(t, []string{"*", "g:of the rule"}, own.Audience)

	c, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c, tickType, func(context.Context, *consumer.Task[map[string]any]) (model.None, error) {
		return model.None{}, nil
	}))
	engine(t, c.Run)
	for id, kept := range map[string]time.Duration{want.ID: time.Hour, plain.ID: 24 * time.Hour, own.ID: 24 * time.Hour} {
		var task *model.Task
		require.Eventually(t, func() bool {
			task, err = prod.Get(t.Context(), id)
			require.NoError(t, err)
			return task.Status == model.StatusSuccess
		}, testdb.Patience, 10*time.Millisecond)
		require.Equal(t, kept, task.ArchiveAt.Sub(task.FinishedAt), "the key of a tick is what keeps it from being sent twice")
	}
}
