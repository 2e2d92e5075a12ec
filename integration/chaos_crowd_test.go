package integration

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
)

// Many workers that all see the same head of the queue: each task is done once, and
// they spread out instead of claiming the same. How few claims are lost is bounded by the simulation of
// package fetchplan. A busy machine keeps some workers from their claims for long and so loses more, but
// not each time; a crowd that does not spread out loses more than four of five each time.
func TestACrowdOfWorkersDoesEachTaskOnceAndDoesNotFightOverThem(t *testing.T) {
	onEnginesAlone(t, withoutRace(slowInLong(func(t *testing.T, e Engine) {
		const most = 3.0
		ratio := crowdOnBacklog(t, e)
		for range 4 {
			if ratio <= most {
				break
			}
			ratio = min(ratio, crowdOnBacklog(t, e))
		}
		require.LessOrEqual(t, ratio, most, "claims attempted per claim won")
	})))
}

// crowdOnBacklog lets workers do a backlog, each task once, and returns how many claims they attempted for
// each that they won.
func crowdOnBacklog(t *testing.T, e Engine) float64 {
	t.Helper()
	a := newArena(t, e)
	n := e.Of(20_000, 2_000)
	ids := make([]string, 0, n)
	for len(ids) < n {
		ids = append(ids, a.send(min(5_000, n-len(ids)))...)
	}
	var mu sync.Mutex
	runs := make(map[string]int, n)
	var done atomic.Int64
	all := make(chan struct{})
	work := func(_ context.Context, task *consumer.Task[int]) (int, error) {
		mu.Lock()
		runs[task.TaskID]++
		mu.Unlock()
		return task.Args, nil
	}
	began := time.Now()
	var hands []*hand
	for i := range 16 {
		hands = append(hands, a.hire(fmt.Sprintf("one-of-many-%d", i), work, func(c *handConfig) {
			c.Concurrency = 100
			c.OnEvent = func(ev consumer.Event) {
				if ev.Kind == workerevent.Finished && ev.Status == model.StatusSuccess && done.Add(1) == int64(n) {
					close(all)
				}
			}
		}))
	}
	select {
	case <-all:
	case <-time.After(5 * time.Minute):
		require.Fail(t, "stalled", "%d of %d done", done.Load(), n)
	}
	took := time.Since(began)
	for _, h := range hands {
		require.NoError(t, h.stop())
	}
	var sum consumer.Stats
	for _, h := range hands {
		s := h.Stats()
		sum.ClaimsAttempted += s.ClaimsAttempted
		sum.ClaimsWon += s.ClaimsWon
		sum.Fetches += s.Fetches
		sum.Fenced += s.Fenced
		sum.Finished += s.Finished
		sum.Takeovers += s.Takeovers
	}
	ratio := float64(sum.ClaimsAttempted) / float64(sum.ClaimsWon)
	t.Logf("%d tasks, 16 workers: %.2f claims attempted per claim won, %d fetches, %v, %.0f tasks/s",
		n, ratio, sum.Fetches, took.Round(time.Millisecond), float64(n)/took.Seconds())
	for _, id := range ids {
		require.Equal(t, 1, runs[id], id)
	}
	require.GreaterOrEqual(t, sum.ClaimsWon+sum.Takeovers, int64(n), "a worker that has stood still gives back what it has not started")
	require.GreaterOrEqual(t, sum.Finished, int64(n))
	require.Zero(t, sum.Fenced)
	return ratio
}
