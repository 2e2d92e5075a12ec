package consumer

import (
	"sync/atomic"

	"github.com/mscheduler/mscheduler/internal/measure"
)

type counters struct {
	attempted, won, fetches, polls, takeovers, finished, fenced, leasesLost atomic.Int64
}

// Stats has the counters of this consumer since its creation.
type Stats struct {
	ClaimsAttempted int64 // tasks that it tried to claim; the excess over ClaimsWon is lost to contention
	ClaimsWon       int64
	Fetches         int64 // queries for due tasks
	Polls           int64 // queries for work by an idle worker
	Scans           int64 // searches for lapsed leases
	Takeovers       int64 // claims of tasks with a lapsed lease
	Finished        int64 // ends written
	Fenced          int64 // ends refused because the execution no longer held its task
	LeasesLost      int64 // handlers cancelled because of their lease
	Pings           int64 // batches of pings answered
	Held            int   // current executions: waiting for a slot, running, or finishing
	Running         int   // running handlers
}

// Stats returns the current counters.
func (c *Consumer) Stats() Stats {
	s, n := &c.stats, c.held.count()
	return Stats{
		ClaimsAttempted: s.attempted.Load(), ClaimsWon: s.won.Load(), Fetches: s.fetches.Load(), Polls: s.polls.Load(), Scans: c.lapses.Scans(),
		Takeovers: s.takeovers.Load(), Finished: s.finished.Load(), Fenced: s.fenced.Load(),
		LeasesLost: s.leasesLost.Load(), Pings: c.leases.Batches(), Held: n.all, Running: n.running,
	}
}

// measured is what metrics tell of this worker.
func (c *Consumer) measured() measure.Worker {
	s := c.Stats()
	w := measure.Worker{
		Fetches: s.Fetches, Polls: s.Polls, Scans: s.Scans, Fenced: s.Fenced, LeasesLost: s.LeasesLost, Pings: s.Pings,
		Workers: 1, Slots: c.cfg.Concurrency, Held: s.Held, Running: s.Running,
	}
	if c.watch.Watching() {
		w.Watching = 1
	}
	if c.health.Down() {
		w.Down = 1
	}
	return w
}
