package measure

import "sync"

// Worker is what a worker knows of itself at a moment.
type Worker struct {
	// Since its start.
	Fetches, Polls, Scans, Fenced, LeasesLost, Pings int64
	// At the moment.
	Workers, Slots, Held, Running int
	Watching, Down                int // 1 = it watches a change stream; its last call met an outage
}

func (w *Worker) add(o Worker) {
	w.Fetches += o.Fetches
	w.Polls += o.Polls
	w.Scans += o.Scans
	w.Fenced += o.Fenced
	w.LeasesLost += o.LeasesLost
	w.Pings += o.Pings
	w.Workers += o.Workers
	w.Slots += o.Slots
	w.Held += o.Held
	w.Running += o.Running
	w.Watching += o.Watching
	w.Down += o.Down
}

// past is what stays of a worker that has stopped: a counter never falls.
func (w Worker) past() Worker {
	w.Workers, w.Slots, w.Held, w.Running, w.Watching, w.Down = 0, 0, 0, 0, 0, 0
	return w
}

// workers are those of the process that run.
type workers struct {
	mu   sync.Mutex
	list map[*func() Worker]bool
	gone Worker
}

// Enter has read called for a worker until leave is called.
func (s *Set) Enter(read func() Worker) (leave func()) {
	w := &s.workers
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.list == nil {
		w.list = map[*func() Worker]bool{}
	}
	w.list[&read] = true
	return func() {
		last := read()
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.list, &read)
		w.gone.add(last.past())
	}
}

// Workers is the sum of all workers of the process.
func (s *Set) Workers() Worker {
	w := &s.workers
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := w.gone
	for read := range w.list {
		sum.add((*read)())
	}
	return sum
}
