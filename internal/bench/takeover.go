package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/producer"
)

func takeover(*Config) []part { return []part{{"takeover", 2, takeOver}} }

// Of the tasks whose worker is killed.
const (
	takeoverPing  = time.Second
	takeoverLease = 4 * time.Second
)

// takeOver kills a worker in the middle of its executions while another one is idle. It
// has no yardstick: what is measured is time, not throughput.
func takeOver(ctx context.Context, r *run) error {
	n := r.cfg.or(r.cfg.Tasks, 1000, 200)
	r.res.Concurrency = n
	if err := r.sendLeased(ctx, n); err != nil {
		return err
	}
	c, dismiss := r.crew()
	defer dismiss()
	victim := r.spec(0)
	victim.Hold, victim.Concurrency = true, n
	first, err := c.hire(victim, "")
	if err != nil {
		return err
	}
	if _, err := c.begin(ctx); err != nil {
		return err
	}
	show := r.progress("claiming")
	if err := c.await(ctx, func() bool { show(first.latest.Running, n); return first.latest.Running >= n }); err != nil {
		return err
	}
	heir := r.spec(1)
	heir.Starts, heir.Concurrency = true, n
	if _, err := c.hire(heir, ""); err != nil {
		return err
	}
	if _, err := c.begin(ctx); err != nil {
		return err
	}
	if err := r.awaitHeir(ctx, c); err != nil {
		return err
	}
	defer r.cfg.OnMeasure(r.name)()
	c.murder(first)
	leases, err := r.leases(ctx, victim.WorkerID)
	if err != nil {
		return err
	}
	before := c.totals()
	show = r.progress("taking over")
	err = c.await(ctx, func() bool {
		show(len(c.starts), n)
		return len(c.starts) >= n && c.sum().since(before).Finished >= int64(n)
	})
	t := c.totals().since(before)
	c.mu.Lock()
	defer c.mu.Unlock()
	r.judge(c.starts, leases)
	r.res.counted(t)
	return err
}

// sendLeased stores tasks with short leases.
func (r *run) sendLeased(ctx context.Context, n int) error {
	return r.backlog(ctx, n, producer.Lease(takeoverPing, takeoverLease), producer.MaxLapses(100))
}

// awaitHeir waits until the second worker has nothing to do but to wait.
func (r *run) awaitHeir(ctx context.Context, c *crew) error {
	limited, cancel := context.WithTimeout(ctx, watchTime)
	defer cancel()
	if err := c.await(limited, func() bool { return c.watching() >= 1 }); err != nil && limited.Err() == nil {
		return err
	}
	return pause(ctx, time.Second)
}

// leases are the times up to which the dead worker's executions are trusted, by task.
func (r *run) leases(ctx context.Context, workerID string) (map[string]time.Time, error) {
	cur, err := r.arena.db.Collection("tasks").Find(ctx, map[string]any{})
	if err != nil {
		return nil, fmt.Errorf("reading the leases: %w", err)
	}
	defer func() { _ = cur.Close(context.WithoutCancel(ctx)) }()
	out := map[string]time.Time{}
	for cur.Next(ctx) {
		var t struct {
			ID     string `bson:"_id"`
			States []struct {
				WorkerID string    `bson:"worker_id"`
				Expires  time.Time `bson:"ping_expire_time"`
			} `bson:"worker_states"`
		}
		if err := cur.Decode(&t); err != nil {
			return nil, fmt.Errorf("reading the leases: %w", err)
		}
		for _, s := range t.States {
			if s.WorkerID == workerID {
				out[t.ID] = s.Expires
			}
		}
	}
	return out, cur.Err()
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
	r.res.Latency = percentiles(late)
	if len(early) > 0 {
		r.note("%d started before their lapse: %s", len(early), strings.Join(early[:min(3, len(early))], ", "))
	}
}
