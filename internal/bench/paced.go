package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/producer"
)

// paced measures with one process and with several, all of which wait for work.
func paced(c *Config) []part {
	var parts []part
	for _, n := range []int{1, c.or(c.Processes, 8, 8)} {
		if len(parts) == 1 && n == 1 {
			break
		}
		parts = append(parts, part{fmt.Sprintf("paced/%d", n), n, pace})
	}
	return parts
}

// pace sends tasks at a fixed rate, each at its time however long the one before takes.
func pace(ctx context.Context, r *run) error {
	every := time.Duration(float64(time.Second) / r.cfg.Rate)
	n := max(1, int(r.cfg.lasting(30*time.Second, 5*time.Second)/every))
	if r.cfg.Tasks > 0 {
		n = r.cfg.Tasks
	}
	if err := r.measureRaw(ctx, yardstick{tasks: min(n, 500), writers: 1, batch: 1, insert: true, update: true}); err != nil {
		return err
	}
	c, dismiss := r.crew()
	defer dismiss()
	for i := range r.res.Processes {
		s := r.spec(i)
		s.Latencies = true
		if _, err := c.hire(s, ""); err != nil {
			return err
		}
	}
	if _, err := c.begin(ctx); err != nil {
		return err
	}
	if err := r.awaitWatch(ctx, c); err != nil {
		return err
	}
	defer r.cfg.OnMeasure(r.name)()
	before := c.totals()
	began := r.cfg.Clock.Now()
	err := r.sendPaced(ctx, n, every)
	if err == nil {
		err = c.await(ctx, func() bool { return c.sum().Finished >= int64(n) })
	}
	t := c.totals().since(before)
	r.res.measured(int(t.Finished), time.Unix(0, t.LastFinish).Sub(began))
	r.res.counted(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	r.res.Latency = percentiles(c.late)
	if s := percentiles(c.sent); s != nil {
		r.note("from Send to start: p50 %.1f, p95 %.1f, p99 %.1f, max %.1f ms", s.P50, s.P95, s.P99, s.Max)
	}
	return err
}

// watchTime is how long a worker may take to open its change stream; where there are
// none it polls.
const watchTime = 10 * time.Second

// awaitWatch waits until as many watch as ever will, and a moment longer.
func (r *run) awaitWatch(ctx context.Context, c *crew) error {
	wanted := min(2, r.res.Processes) // permits for one set of types
	limited, cancel := context.WithTimeout(ctx, watchTime)
	defer cancel()
	err := c.await(limited, func() bool { return c.watching() >= wanted })
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		r.note("no change stream: the workers poll")
		err = nil
	}
	if err != nil {
		return err
	}
	return pause(ctx, 500*time.Millisecond)
}

func pause(ctx context.Context, d time.Duration) error {
	clock.Pause(ctx, d)
	return context.Cause(ctx)
}

func (r *run) sendPaced(ctx context.Context, n int, every time.Duration) error {
	p, err := r.producer()
	if err != nil {
		return err
	}
	pad := strings.Repeat("x", r.cfg.ArgsBytes)
	show := r.progress("sending at the pace")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed, cut error
	began := r.cfg.Clock.Monotonic()
	for i := range n {
		if cut = pause(ctx, began+time.Duration(i)*every-r.cfg.Clock.Monotonic()); cut != nil {
			break
		}
		wg.Go(func() {
			_, err := producer.Send(ctx, p, noop, args{Sent: r.cfg.Clock.Now().UnixNano(), Pad: pad})
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
		})
		show(i+1, n)
	}
	wg.Wait()
	return errors.Join(cut, failed, p.Close(ctx))
}
