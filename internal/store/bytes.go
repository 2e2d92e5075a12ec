package store

import (
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A task may be as large as a document can be: arguments, steps, checkpoint, result. So the
// number of tasks bounds no read. A read of candidates stops after batchBytes; the server
// sends no more than that at a time. One that only decides leaves out what no rule looks at.

// batchBytes is about how much a read of candidates brings.
const batchBytes = 16 << 20

// forRules leaves out what is large and no rule that workers apply to an execution looks
// at. A task that was read so may be written by the difference: what is absent before and
// after is not touched. It may not begin a new life, nor run.
var forRules = bson.D{d("args", 0), d("steps.value", 0)}

// forState leaves out all that is large. A task that was read so is not to be written, unless it has ended and changes
// only by the rules for the ends of deliveries: they look at nothing of that, and write the difference.
var forState = bson.D{
	d("args", 0), d("steps", 0), d("checkpoint", 0), d("result", 0), d("progress", 0), d("outbox", 0),
	d("worker_states.checkpoint", 0), d("worker_states.returns", 0),
}

// sizes learns how large the tasks are that a process reads.
type sizes struct {
	mu   sync.Mutex
	mean float64 // smoothed
	last float64 // of the last read alone
}

// saw notes a read of so many tasks with so many bytes together.
func (s *sizes) saw(tasks, bytes int) {
	if tasks == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = float64(bytes) / float64(tasks)
	weight := 0.5
	if s.mean == 0 {
		weight = 1
	}
	s.mean += weight * (s.last - s.mean)
}

// fit is how many of n tasks make a batch, at least one. After a read that was cut off it
// is not more than that read brought.
func (s *sizes) fit(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if each := max(s.mean, s.last); each*float64(n) > batchBytes {
		n = int(batchBytes / each)
	}
	return max(n, 1)
}

// Fit is how many of n due tasks to ask for, so that reading them takes a moderate number of
// bytes, by the size of those that were read before. [Tasks.Due] may find fewer than it was
// asked for, although there are more, where they are larger than those; it has then found at
// least as many as Fit says afterwards.
func (s *Tasks) Fit(n int) int {
	if n <= 0 {
		return n
	}
	return s.sizes.fit(n)
}
