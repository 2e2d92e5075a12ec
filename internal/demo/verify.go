package demo

import (
	"context"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// verify looks at the target and at every document, and completes the summary.
func (d *demo) verify(ctx context.Context, s *Summary) error {
	s.Tasks = d.Tasks
	seen := map[string]bool{}
	var waits []time.Duration
	err := d.each(ctx, func(t *model.Task) {
		seen[t.Key] = true
		s.Takeovers += t.LapseCount
		if t.Status != model.StatusSuccess || t.Successes() != 1 {
			s.problem("%s is %s with %d successful executions", t.ID, t.Status, t.Successes())
			s.Lost++
			return
		}
		s.Succeeded++
		if at, ok := d.startedAt(t.ID); ok {
			waits = append(waits, max(at.Sub(t.StartTime), 0))
		}
	})
	if err != nil {
		return err
	}
	for i := range d.Tasks {
		key := taskKey(i)
		e := d.effectOf(key)
		s.effects += e.count
		s.late += e.late
		if e.count > 1 {
			s.repeated++
		}
		switch {
		case !seen[key]:
			s.problem("the task %s is not in the database", key)
			s.Lost++
		case e.count == 0:
			s.problem("the task %s had no effect at the target", key)
			s.Lost++
		}
	}
	s.DueToStart = percentiles(waits)
	d.tally(s)
	return nil
}

// tally adds what the workers reported.
func (d *demo) tally(s *Summary) {
	d.fleet.mu.Lock()
	defer d.fleet.mu.Unlock()
	for _, w := range d.fleet.workers {
		s.Fenced += w.fenced
		s.workers = append(s.workers, workerLine{w.id, w.finished, w.fenced, sum(w.taken)})
	}
	s.lateSuccesses = d.fleet.lateOK
	if d.fleet.dropped > 0 {
		s.problem("%d times a worker could not report its events", d.fleet.dropped)
	}
}

func sum(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

func (d *demo) startedAt(id string) (time.Time, bool) {
	d.fleet.mu.Lock()
	defer d.fleet.mu.Unlock()
	c, ok := d.fleet.started[id]
	if !ok {
		return time.Time{}, false
	}
	return c.first, true
}

func (d *demo) effectOf(key string) effect {
	d.target.mu.Lock()
	defer d.target.mu.Unlock()
	if e := d.target.effects[key]; e != nil {
		return *e
	}
	return effect{}
}

// each reads all tasks, page by page.
func (d *demo) each(ctx context.Context, f func(*model.Task)) error {
	for after := ""; ; {
		docs, err := d.store.List(ctx, store.Filter{AfterID: after}, 1000)
		if err != nil {
			return err
		}
		for _, doc := range docs {
			t, err := store.Decode(doc)
			if err != nil {
				return err
			}
			f(t)
			after = t.ID
		}
		if len(docs) == 0 {
			return nil
		}
	}
}

// percentiles of durations, in milliseconds.
func percentiles(all []time.Duration) Percentiles {
	if len(all) == 0 {
		return Percentiles{}
	}
	slices.Sort(all)
	at := func(p int) float64 {
		i := (len(all)*p + 99) / 100
		return float64(all[max(i, 1)-1].Microseconds()) / 1000
	}
	return Percentiles{P50: at(50), P95: at(95), P99: at(99)}
}
