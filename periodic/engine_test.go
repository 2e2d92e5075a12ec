package periodic_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
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
	r, err := p.Create(t.Context(), periodic.Spec{Name: "each second", Cron: "* * * * * *", Type: "tick", Args: map[string]any{"a": 1}})
	require.NoError(t, err)
	_, err = p.Enable(t.Context(), r.ID)
	require.NoError(t, err)
	engine(t, p.Run)
	engine(t, c.Run)
	seen := map[string]bool{}
	for len(seen) < 3 {
		key := <-ran
		require.False(t, seen[key], "ran twice: %s", key)
		seen[key] = true
	}
	require.Eventually(t, func() bool {
		runs, err := p.Runs(t.Context(), r.ID, periodic.RunFilter{Statuses: []model.RunStatus{model.RunSuccess}}, nil, 100)
		require.NoError(t, err)
		return len(runs) >= 3
	}, 20*time.Second, 50*time.Millisecond)
	runs, err := p.Runs(t.Context(), r.ID, periodic.RunFilter{}, nil, 100)
	require.NoError(t, err)
	for i, run := range runs {
		require.Equal(t, periodic.TickID(r.ID, run.Nominal), run.ID)
		if i > 0 {
			require.Equal(t, time.Second, runs[i-1].Nominal.Sub(run.Nominal), "no tick is missing")
		}
	}
}
