package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Fleet is a number of processes, and the lock of what its owner knows of them. The zero
// Fleet is ready for use.
type Fleet struct {
	watchers sync.WaitGroup

	mu        sync.Mutex
	processes []*Process
	stopping  bool
	changed   chan struct{} // closed at the next change; nil = nobody waits
}

// Start starts a process of the fleet.
func (f *Fleet) Start(c Command) (*Process, error) {
	p, err := Start(c)
	if err != nil {
		return nil, err
	}
	f.Set(func() { f.processes = append(f.processes, p) })
	f.watchers.Go(func() {
		<-p.ended
		f.Set(func() {})
	})
	return p, nil
}

// Look calls read under the fleet's lock.
func (f *Fleet) Look(read func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	read()
}

// Set calls change under the fleet's lock and wakes all [Fleet.Await].
func (f *Fleet) Set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// Await waits until met, which it calls under the lock at first and after each change. The
// error is the cause of the context's end, or names a process that ended by itself.
func (f *Fleet) Await(ctx context.Context, met func() bool) error {
	for {
		ok, changed, err := f.look(met)
		if ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f *Fleet) look(met func() bool) (ok bool, changed <-chan struct{}, broken error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return met(), f.changed, f.broken()
}

// broken names a process that ended by itself.
func (f *Fleet) broken() error {
	for _, p := range f.processes {
		switch {
		case f.stopping || p.killed.Load() || !p.Ended():
		case p.err != nil:
			return fmt.Errorf("%s ended by itself: %w", p.name, p.err)
		default:
			return fmt.Errorf("%s ended by itself%s", p.name, p.said())
		}
	}
	return nil
}

// Stop asks all processes to stop, and kills those that have not when the limit has passed or
// ctx ends. The error names these, and those that ended with an error; not those that were
// killed before. Nothing of the fleet runs afterwards.
func (f *Fleet) Stop(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var all []*Process
	f.Set(func() { f.stopping, all = true, f.processes })
	for _, p := range all {
		_ = p.Close() // it may have ended
	}
	var errs []error
	for _, p := range all {
		select {
		case <-p.ended:
		case <-ctx.Done():
		}
		switch {
		case !p.Ended():
			errs = append(errs, fmt.Errorf("%s did not stop in time%s", p.name, p.said()))
			p.Kill()
		case p.err != nil && !p.killed.Load():
			errs = append(errs, fmt.Errorf("%s did not stop cleanly: %w", p.name, p.err))
		}
	}
	f.watchers.Wait()
	return errors.Join(errs...)
}
