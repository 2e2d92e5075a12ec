package demo

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// verify looks at the target and at every document, and completes the summary. The workers
// have ended: what they reported does not change any more.
func (d *demo) verify(ctx context.Context, s *Summary) error {
	s.Tasks = d.Tasks
	seen := map[string]bool{}
	var waits []time.Duration
	err := d.each(ctx, func(t *model.Task) {
		if t.Origin != nil { // of the flow, which has its own line
			return
		}
		seen[t.Key] = true
		s.Takeovers += t.LapseCount
		if t.Status != model.StatusSuccess || lifecycle.Successes(t) != 1 {
			s.problem("%s is %s with %d successful executions", t.ID, t.Status, lifecycle.Successes(t))
			s.Lost++
			return
		}
		s.Succeeded++
		if c := d.started[t.ID]; c != nil {
			waits = append(waits, max(c.first.Sub(t.StartTime), 0))
		}
	})
	if err != nil {
		return err
	}
	if !s.Flow.ok() {
		s.problem("the flow is %s with %d of %d nodes SUCCESS; %s was killed and %s took over", s.Flow.Status, s.Flow.Success, s.Flow.Nodes, s.Flow.Killed, s.Flow.Took)
	}
	s.DueToStart = percentiles(waits)
	d.Look(func() { d.tally(s, seen) })
	return nil
}

// tally adds what the target saw and what the workers reported.
func (d *demo) tally(s *Summary, seen map[string]bool) {
	for i := range d.Tasks {
		key := taskKey(i)
		e := cmp.Or(d.target.effects[key], &effect{})
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
	for _, w := range d.workers {
		s.workers = append(s.workers, workerLine{w.id, w.finished, w.fenced, w.taken})
	}
	s.Fenced, s.lateSuccesses = d.fenced, d.lateOK
	if d.dropped > 0 {
		s.problem("workers could not report their events %d times", d.dropped)
	}
}

// each reads all tasks, page by page.
func (d *demo) each(ctx context.Context, f func(*model.Task)) error {
	for filter := (store.Filter{}); ; {
		page, err := d.db.Store.History.FindLives(ctx, filter, store.InTasks, store.Extent{Limit: 1000})
		if err != nil {
			return err
		}
		for _, doc := range page.Docs {
			t, err := store.Decode(doc)
			if err != nil {
				return err
			}
			f(t)
		}
		if page.Next == nil {
			return nil
		}
		filter.AfterID = page.Next.ID
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
