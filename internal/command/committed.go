package command

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
	// OpenFor is how long a transaction may be open: MongoDB ends it after a minute
	// (transactionLifetimeLimitSeconds), or a little later.
	OpenFor = 75 * time.Second
	// firstLook and seldomLook bound the pause between two looks whether a transaction has committed:
	// with the second in which workers read signals it stays within the two that a cancel may take.
	firstLook  = 50 * time.Millisecond
	seldomLook = 500 * time.Millisecond
	// farewell bounds the last look, at Close.
	farewell = 2 * time.Second
	// maxLook bounds the ids of one query.
	maxLook = 5_000
)

// committed tells the workers of changes that were made in the callers' transactions, once
// others can see them. The signal is not part of a transaction: each writes the one control
// document, so whoever else wrote one would wait until the transaction ends. What was
// aborted is never seen and forgotten after OpenFor. It has a goroutine only while
// something is waited for.
type committed struct {
	store *store.Store
	log   zerolog.Logger

	ctx    context.Context //nolint:containedctx // that of the goroutine, which outlives the calls
	cancel context.CancelFunc
	end    sync.WaitGroup

	looking  context.Context //nolint:containedctx // that of looks, which a close that is in a hurry ends
	cutShort context.CancelFunc

	mu      sync.Mutex
	changes map[change]time.Duration // until when it is certain that it was aborted, by the monotonic clock
	running bool
}

// change is the rev that a transaction gave a task. Of one task there may be several: one may
// have committed where the next is aborted.
type change struct {
	id  string
	rev int64
}

func newCommitted(s *store.Store, log zerolog.Logger) *committed {
	ctx, cancel := context.WithCancel(context.Background())
	looking, cutShort := context.WithCancel(context.Background())
	return &committed{store: s, log: log, ctx: ctx, cancel: cancel, looking: looking, cutShort: cutShort, changes: map[change]time.Duration{}}
}

// tell signals the task when its rev can be seen.
func (c *committed) tell(t *model.Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes[change{t.ID, t.Rev}] = c.store.Local().Monotonic() + OpenFor
	if !c.running && c.ctx.Err() == nil {
		c.running = true
		c.end.Go(c.run)
	}
}

// close looks a last time, for as long as ctx allows.
func (c *committed) close(ctx context.Context) {
	c.mu.Lock()
	c.cancel()
	c.mu.Unlock()
	defer context.AfterFunc(ctx, c.cutShort)()
	c.end.Wait()
}

func (c *committed) run() {
	for pause := firstLook; ; pause = min(2*pause, seldomLook) {
		closing := !clock.Pause(c.ctx, pause)
		ctx, cancel := context.WithTimeout(c.looking, farewell)
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
	byID := map[string][]change{}
	for ch := range waiting {
		byID[ch.id] = append(byID[ch.id], ch)
	}
	for ids := range slices.Chunk(slices.Collect(maps.Keys(byID)), maxLook) {
		lives, err := c.store.Tasks.Lives(ctx, ids)
		if err != nil {
			return err
		}
		var seen []string
		var told []change
		for _, id := range ids {
			for _, ch := range byID[id] {
				if t := lives[id]; t != nil && t.Rev >= ch.rev {
					seen, told = append(seen, id), append(told, ch)
				}
			}
		}
		if err := c.store.Control.Signal(ctx, slices.Compact(seen)...); err != nil {
			return err
		}
		c.forget(waiting, told)
	}
	return nil
}

// forget takes out what was told, unless another attempt has told of it since.
func (c *committed) forget(waiting map[change]time.Duration, told []change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range told {
		if c.changes[ch] == waiting[ch] {
			delete(c.changes, ch)
		}
	}
}

// over says, after a look, whether the goroutine ends: when nothing is waited for any more.
func (c *committed) over(closing bool, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.store.Local().Monotonic()
	late := 0
	for ch, until := range c.changes {
		if closing || now > until {
			delete(c.changes, ch)
			late++
		}
	}
	if err != nil && late > 0 {
		c.log.Warn().Err(err).Int("tasks", late).Msg("could not signal changes of transactions; workers may notice them late")
	}
	c.running = len(c.changes) > 0
	return !c.running
}

// Signal tells the workers to look at the task now; where ctx carries a transaction that
// runs, when that has committed.
func (r *Room) Signal(ctx context.Context, t *model.Task) error {
	if r.Store.InRunningTransaction(ctx) {
		r.committed.tell(t)
		return nil
	}
	if err := r.Store.Control.Signal(ctx, t.ID); err != nil {
		return fmt.Errorf("the change is stored, but workers may notice it late: %w", err)
	}
	return nil
}
