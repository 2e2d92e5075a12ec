package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/producer"
)

// Of the tasks whose worker is killed.
const (
	takeoverPing  = time.Second
	takeoverLease = 4 * time.Second
)

// takeover kills a worker in the middle of its executions while another one is idle. It
// has no yardstick: what is measured is time, not throughput.
func takeover(c *Config) []part {
	n := c.or(c.Tasks, 1000, 200)
	return []part{{
		name: "takeover", workers: 2, concurrency: n, settle: time.Second,
		load: func(ctx context.Context, r *run) error {
			if err := r.backlog(ctx, n, producer.Lease(takeoverPing, takeoverLease), producer.MaxLapses(100)); err != nil {
				return err
			}
			if err := r.hire(1, func(_ *run, s *spec) { s.Hold = true }); err != nil {
				return err
			}
			if _, err := r.crew.begin(ctx); err != nil {
				return err
			}
			return r.await(ctx, "claiming", n, func() int { return r.crew.members[0].latest.Running })
		},
		orders: func(_ *run, s *spec) { s.Starts = true },
		measure: func(ctx context.Context, r *run) error {
			r.crew.members[0].Kill()
			leases, err := r.leases(ctx, workerID(0))
			if err != nil {
				return err
			}
			err = r.awaitStarts(ctx, "taking over", n)
			if err == nil {
				err = r.awaitEnds(ctx, "ending", n)
			}
			r.crew.Look(func() { r.judge(r.crew.starts, leases) })
			return err
		},
	}}
}

// leases are the times up to which the dead worker's executions are trusted, by task.
func (r *run) leases(ctx context.Context, workerID string) (map[string]time.Time, error) {
	var tasks []struct {
		ID     string `bson:"_id"`
		States []struct {
			WorkerID string    `bson:"worker_id"`
			Expires  time.Time `bson:"ping_expire_time"`
		} `bson:"worker_states"`
	}
	cur, err := r.db.DB.Collection("tasks").Find(ctx, map[string]any{})
	if err == nil {
		err = cur.All(ctx, &tasks)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the leases: %w", err)
	}
	out := map[string]time.Time{}
	for _, t := range tasks {
		for _, s := range t.States {
			if s.WorkerID == workerID {
				out[t.ID] = s.Expires
			}
		}
	}
	return out, nil
}

// judge compares each new start with its lapse.
func (r *run) judge(starts []start, leases map[string]time.Time) {
	var late []float64
	var early []string
	var first, last time.Time
	for _, s := range starts {
		lapse, known := leases[s.TaskID]
		if !known {
			continue
		}
		at := time.Unix(0, s.At)
		if at.Before(lapse) {
			early = append(early, s.TaskID)
		}
		late = append(late, millis(at.Sub(lapse)))
		if first.IsZero() || lapse.Before(first) {
			first = lapse
		}
		if at.After(last) {
			last = at
		}
	}
	r.res.measured(len(late), last.Sub(first))
	r.late = late
	if len(early) > 0 {
		r.note("%d started before their lapse: %s", len(early), strings.Join(early[:min(3, len(early))], ", "))
	}
}
