package consumer

import "sync/atomic"

type counters struct {
	attempted, won, fetches, polls, takeovers, finished, fenced, leasesLost atomic.Int64
}

// Stats counts what this consumer did since it was made.
type Stats struct {
	ClaimsAttempted int64 // tasks it tried to claim; over ClaimsWon that is the cost of contention
	ClaimsWon       int64
	Fetches         int64 // queries for due tasks
	Polls           int64 // queries of an idle worker whether there is anything for it
	Scans           int64 // looks for lapsed leases
	Takeovers       int64 // claims over a lapsed lease
	Finished        int64 // ends written
	Fenced          int64 // ends refused because the execution no longer held its task
	LeasesLost      int64 // handlers told to stop because of their lease
	Pings           int64 // batches of pings answered
	Held            int   // executions now: waiting for a slot, running, being finished
	Running         int   // handlers now
}

// Stats returns the counters as they are now.
func (c *Consumer) Stats() Stats {
	s, n := &c.stats, c.held.count()
	return Stats{
		ClaimsAttempted: s.attempted.Load(), ClaimsWon: s.won.Load(), Fetches: s.fetches.Load(), Polls: s.polls.Load(), Scans: c.lapses.Scans(),
		Takeovers: s.takeovers.Load(), Finished: s.finished.Load(), Fenced: s.fenced.Load(),
		LeasesLost: s.leasesLost.Load(), Pings: c.leases.Batches(), Held: n.all, Running: n.running,
	}
}
