package consumer

import "time"

// The server pays for each command and for each task in it. A process that works on a
// backlog of quick tasks therefore lets its ends gather, as long as more of them are about
// to come: one of a crowd, in which each has a part of the load, sends no smaller batches
// than a process alone.

const (
	// enoughEnds is how many ends are a batch that need not wait for more.
	enoughEnds = maxBatch / 2
	// endsGatherTime bounds how long an end waits for others.
	endsGatherTime = 100 * time.Millisecond
	// quickTasks is the rate of starts, in tasks a second, from which on ends gather.
	quickTasks = 1000
)

// lingerEnds is how long the next batch of ends waits for more.
func (c *Consumer) lingerEnds() time.Duration {
	if !c.backlog.Load() || c.isStopping() || c.rate.last() < quickTasks || c.held.idle() {
		return 0
	}
	return endsGatherTime
}

// urgent reports whether others wait for the end: for its permits, or, of a task of several
// workers, for their own parts.
func (e *ended) urgent() bool { return len(e.x.permits) > 0 || e.x.many }
