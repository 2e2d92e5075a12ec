package consumer

import "time"

// Each command costs the server time, and so does each task in it. A process that works on a
// backlog of quick tasks therefore gathers its ends as long as more are about to come. So a
// process of a crowd, which has a part of the load, sends no smaller batches than one alone.

const (
	// enoughEnds is the size of a batch that does not wait for more ends.
	enoughEnds = maxBatch
	// endsGatherTime bounds how long an end waits for others.
	endsGatherTime = 100 * time.Millisecond
	// quickTasks is the rate of starts, or of possible starts, in tasks a second, from which on
	// ends gather.
	quickTasks = 1000
)

// lingerEnds returns how long the next batch of ends waits for more.
func (c *Consumer) lingerEnds() time.Duration {
	quick := max(c.rate.last(), c.rate.possible(c.cfg.Concurrency)) >= quickTasks
	if !quick || !c.backlog.Load() || c.isStopping() || c.held.idle() {
		return 0
	}
	return endsGatherTime
}

// urgent reports whether other work waits for the end: for its permits or, in a task of several
// workers, for their own parts.
func (e *ended) urgent() bool { return len(e.x.permits) > 0 || e.x.lease.Many() }
