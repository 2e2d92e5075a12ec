package finish

import "time"

// Each command costs the server time, and so does each task in it. A process that works on a
// backlog of quick tasks therefore gathers its ends as long as more are about to come. So a
// process of a crowd, which has a part of the load, sends no smaller batches than one alone.

const (
	// enough is the size of a batch that does not wait for more ends.
	enough = 1000
	// gatherTime bounds how long an end waits for others.
	gatherTime = 100 * time.Millisecond
	// quick is the rate of starts, in tasks a second, from which on ends gather.
	quick = 1000
)

// Gather lets each batch of ends that are not urgent wait for more as long as linger says, unless it is
// large already. Call it before the first Put.
func (w *Ends) Gather(linger func() time.Duration) { w.queue.Gather(enough, linger) }

// Linger returns how long the next batch of ends waits for more. perSecond is how many tasks start,
// or could start. more says that more ends are about to come.
func Linger(perSecond float64, more bool) time.Duration {
	if perSecond < quick || !more {
		return 0
	}
	return gatherTime
}
