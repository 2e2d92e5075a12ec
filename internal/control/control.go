// Package control is a process's copy of the control document: what is paused, and signals that
// name tasks whose executions must look at them. Who claims reads it again when it is too old.
package control

import (
	"context"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/health"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// MaxAge is how old the copy may be for a claim, and how often it is read while something is
// held.
const MaxAge = time.Second

// smallJump is a jump of the database's clock that costs no signal: signals are looked for that much earlier.
const smallJump = time.Second

// Held is an execution that signals may name.
type Held struct {
	TaskID string
	Obey   func(t *model.Task) // t is the task as it is now; nil = it is gone
}

// Config is what a [Copy] needs.
type Config struct {
	Store   *store.Store
	Clock   clock.Clock
	Learn   func(ctx context.Context, version int64) error // called with the version of the types' documents
	Resumed func()                                         // called when something is paused no longer
	Held    func() []Held                                  // the executions of this process whose ends are not decided
}

// Copy is the copy. It is safe for concurrent use.
type Copy struct {
	cfg Config

	mu      sync.Mutex
	doc     store.ControlDoc
	read    bool
	at      clock.Instant
	signals time.Time // the store's: signals were read up to here
	signal  int64     // of the document when they were
	drains  bool      // an operator has asked this process to claim nothing
	again   bool      // look at the signals again, although there is no new one
}

// New returns a Copy of a document that was not read yet.
func New(cfg Config) *Copy { return &Copy{cfg: cfg, signal: -1} }

// Paused says whether tasks of the type are not to be claimed.
func (k *Copy) Paused(typ string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.drains || k.doc.Paused(typ)
}

// Drain makes every type paused for this process alone, until it is called with false.
func (k *Copy) Drain(drains bool) {
	k.mu.Lock()
	resumed := k.drains && !drains
	k.drains = drains
	k.mu.Unlock()
	if resumed {
		k.cfg.Resumed()
	}
}

// Limited says whether anybody has ever used a limit.
func (k *Copy) Limited() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.doc.Limited
}

// Age is how old the copy is; an hour before the first reading.
func (k *Copy) Age() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.read {
		return time.Hour
	}
	return k.at.Since(k.cfg.Clock)
}

// Forget makes the copy too old for everything.
func (k *Copy) Forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read = false
}

// Fresh reads the document again if the copy is too old to claim by.
func (k *Copy) Fresh(ctx context.Context) error {
	if k.Age() < MaxAge {
		return nil
	}
	return k.Read(ctx)
}

// Read reads the control document and, when there are new signals, acts on them.
func (k *Copy) Read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, health.CallTimeout)
	defer cancel()
	asked, now := clock.Read(k.cfg.Clock), k.cfg.Store.Clock.Now()
	doc, err := k.cfg.Store.Control.Read(ctx)
	if err != nil {
		return err
	}
	if err := k.cfg.Learn(ctx, doc.Types); err != nil {
		return err
	}
	k.mu.Lock()
	resumed := k.read && k.doc.PausedAll && !doc.PausedAll || len(doc.PausedTypes) < len(k.doc.PausedTypes)
	first, signalled, since := k.signal < 0, doc.Signal != k.signal || k.again, k.signals
	if ago, ok := k.cfg.Store.Clock.Jumped(smallJump); ok && ago <= k.at.SinceMonotonic(k.cfg.Clock) {
		// Until this process noticed that the clock was set back, it looked for signals of a time to come.
		signalled, since = true, clock.Sooner(since, now).Add(-store.MaxClockAge)
	}
	k.doc, k.read, k.at = doc, true, asked
	if signalled { // before they are looked at, see LookFrom
		k.signal, k.signals, k.again = doc.Signal, now, false
	}
	k.mu.Unlock()
	if resumed {
		k.cfg.Resumed()
	}
	if signalled && !first {
		if err := k.readSignals(ctx, since); err != nil {
			k.LookFrom(since) // they are read again next time
			return err
		}
	}
	return nil
}

// LookFrom makes the next reading look at the signals since the time once more, if they
// have been looked at: what they named then was not held yet.
func (k *Copy) LookFrom(since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.signals.After(since) {
		k.signals, k.again = since, true
	}
}

// readSignals lets those of our executions whose tasks signals name look at them: cancelled, or
// not for us any more.
func (k *Copy) readSignals(ctx context.Context, since time.Time) error {
	held := k.cfg.Held()
	ids := make([]string, len(held))
	for i, x := range held {
		ids[i] = x.TaskID
	}
	named, err := k.cfg.Store.Control.Signals(ctx, since, ids)
	if err != nil {
		return err
	}
	var mine []Held
	var read []string
	for _, x := range held {
		if named[x.TaskID] {
			mine, read = append(mine, x), append(read, x.TaskID)
		}
	}
	tasks, err := k.cfg.Store.Tasks.States(ctx, read)
	if err != nil {
		return err
	}
	for _, x := range mine {
		if t, there := tasks[x.TaskID]; t != nil || !there { // nobody knows what one says that cannot be read
			x.Obey(t)
		}
	}
	return nil
}
