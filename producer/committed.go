package producer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	// openFor is how long a transaction may be open: MongoDB ends it after a minute
	// (transactionLifetimeLimitSeconds), or a little later.
	openFor = 75 * time.Second
	// seldomLook bounds the pause between two looks whether a transaction has committed:
	// with the second in which workers read signals it stays within the two that a cancel may take.
	seldomLook = 500 * time.Millisecond
	// farewell bounds the last look, at Close.
	farewell = 2 * time.Second
)

// committed tells the workers of changes that were made in the callers' transactions, once
// others can see them. The signal is not part of a transaction: each writes the one control
// document, so whoever else wrote one would wait until the transaction ends. What was
// aborted is never seen and forgotten after openFor. It has a goroutine only while
// something is waited for.
type committed struct {
	store *store.Store
	log   zerolog.Logger

	ctx    context.Context //nolint:containedctx // that of the goroutine, which outlives the calls
	cancel context.CancelFunc
	end    sync.WaitGroup

	mu      sync.Mutex
	changes map[string]change // by the task's id
	running bool
}

// change is the rev that a transaction gave a task, and the monotonic time at which it is
// certain that it was aborted.
type change struct {
	rev   int64
	until time.Duration
}

func newCommitted(s *store.Store, log zerolog.Logger) *committed {
	ctx, cancel := context.WithCancel(context.Background())
	return &committed{store: s, log: log, ctx: ctx, cancel: cancel, changes: map[string]change{}}
}

// tell signals the task when its rev can be seen.
func (c *committed) tell(t *model.Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes[t.ID] = change{rev: t.Rev, until: c.store.Local().Monotonic() + openFor}
	if !c.running && c.ctx.Err() == nil {
		c.running = true
		c.end.Go(c.run)
	}
}

// close looks a last time.
func (c *committed) close() {
	c.mu.Lock()
	c.cancel()
	c.mu.Unlock()
	c.end.Wait()
}

func (c *committed) run() {
	for pause := firstLook; ; pause = min(2*pause, seldomLook) {
		closing := !clock.Pause(c.ctx, pause)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), farewell)
		err := c.look(ctx)
		cancel()
		if c.over(closing, err) {
			return
		}
	}
}

// look signals what has become visible.
func (c *committed) look(ctx context.Context) error {
	c.mu.Lock()
	waiting := maps.Clone(c.changes)
	c.mu.Unlock()
	for ids := range slices.Chunk(slices.Collect(maps.Keys(waiting)), maxLook) {
		lives, err := c.store.Lives(ctx, ids)
		if err != nil {
			return err
		}
		var seen []string
		for _, id := range ids {
			if t := lives[id]; t != nil && t.Rev >= waiting[id].rev {
				seen = append(seen, id)
			}
		}
		if err := c.store.Signal(ctx, seen...); err != nil {
			return err
		}
		c.forget(waiting, seen)
	}
	return nil
}

// forget takes out what was told, unless another transaction has changed it since.
func (c *committed) forget(told map[string]change, ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if c.changes[id] == told[id] {
			delete(c.changes, id)
		}
	}
}

// over says, after a look, whether the goroutine ends: when nothing is waited for any more.
func (c *committed) over(closing bool, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.store.Local().Monotonic()
	late := 0
	for id, ch := range c.changes {
		if closing || now > ch.until {
			delete(c.changes, id)
			late++
		}
	}
	if err != nil && late > 0 {
		c.log.Warn().Err(err).Int("tasks", late).Msg("workers may learn late of what transactions changed")
	}
	c.running = len(c.changes) > 0
	return !c.running
}

// signal tells the workers to look at the task now; where ctx carries a transaction that
// runs, when that has committed.
func (p *Producer) signal(ctx context.Context, t *model.Task) error {
	if p.store.InRunningTransaction(ctx) {
		p.committed.tell(t)
		return nil
	}
	if err := p.store.Signal(ctx, t.ID); err != nil {
		return fmt.Errorf("it is written, but the workers may learn of it late: %w", err)
	}
	return nil
}
