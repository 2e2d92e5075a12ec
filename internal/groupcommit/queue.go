// Package groupcommit gathers items while a batch is being written and makes them the
// next batch. Idle it adds no delay: a lone item is flushed at once. Busy it makes the
// batches as large as the load is, and when the writing cannot keep up, Put blocks. An
// owner that prefers few large batches lets them gather longer ([Queue.Gather]).
//
//	Put ──▶ gathering (at most max) ──▶ flush, one batch at a time
//
// What becomes of an item is the flush function's to tell, usually by a channel in the
// item. There is no goroutine while nothing is queued.
package groupcommit

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrClosed is returned by Put once Close was called.
var ErrClosed = errors.New("the queue is closed")

// Queue is a group-commit queue; make one with [New]. It is safe for concurrent use.
type Queue[T any] struct {
	flush   func(batch []T)
	enough  int                  // items that make a batch while it gathers
	linger  func() time.Duration // how long the next batch gathers; nil = not at all
	hurried chan struct{}        // holds a token when the batch that gathers need not wait
	room    chan struct{}        // holds one token for each item that gathers
	closing chan struct{}

	mu       sync.Mutex
	pending  []T
	hurry    bool // the pending must not wait for more
	flushing bool
	closed   bool
	put      uint64        // items ever taken in
	flushed  uint64        // items whose flush has returned
	progress chan struct{} // closed and replaced whenever flushed grows
}

// New makes a queue that hands batches of at most max items (at least 1) to flush, in
// the order in which they were put, one batch at a time. While one batch is flushed at
// most max more items gather; Put blocks beyond that. flush owns the slice it is given;
// it must not call Put, Wait or Close of its own queue.
func New[T any](max int, flush func(batch []T)) *Queue[T] {
	if max < 1 {
		max = 1
	}
	return &Queue[T]{
		flush:    flush,
		hurried:  make(chan struct{}, 1),
		room:     make(chan struct{}, max),
		closing:  make(chan struct{}),
		progress: make(chan struct{}),
	}
}

// Gather lets each batch wait until it has enough items (at most max), at most as long as
// linger says when the batch before is done; 0 = not at all. [Queue.Hurry], Wait and Close
// end the wait. Call it before the first Put.
func (q *Queue[T]) Gather(enough int, linger func() time.Duration) {
	q.enough, q.linger = min(enough, cap(q.room)), linger
}

// Hurry flushes what gathers without waiting for more.
func (q *Queue[T]) Hurry() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.let()
}

// let ends the wait of the batch that gathers. The caller holds mu.
func (q *Queue[T]) let() {
	if len(q.pending) == 0 {
		return
	}
	q.hurry = true
	select {
	case q.hurried <- struct{}{}:
	default:
	}
}

// gather waits until the next batch need not wait any longer.
func (q *Queue[T]) gather() {
	if q.linger == nil {
		return
	}
	d := q.linger()
	if d <= 0 {
		return
	}
	limit := time.NewTimer(d)
	defer limit.Stop()
	for {
		q.mu.Lock()
		ready := q.hurry || len(q.pending) == 0
		q.mu.Unlock()
		if ready {
			return
		}
		select {
		case <-q.hurried: // perhaps meant for an earlier batch
		case <-limit.C:
			return
		}
	}
}

// Put adds an item and returns; the item is flushed with whatever else gathers. It
// blocks while the queue is full. It returns [ErrClosed] after Close, or the cause of
// ctx when that ends first; in both cases the item will never be flushed.
func (q *Queue[T]) Put(ctx context.Context, item T) error {
	if ctx.Err() != nil { // else select would choose by chance
		return context.Cause(ctx)
	}
	select {
	case q.room <- struct{}{}:
	case <-q.closing:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		<-q.room
		return ErrClosed
	}
	q.pending = append(q.pending, item)
	q.put++
	if len(q.pending) == q.enough {
		q.let()
	}
	if !q.flushing {
		q.flushing = true
		go q.run()
	}
	return nil
}

// Len is how many items gather or are being flushed.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int(q.put - q.flushed)
}

// run flushes until nothing is left, then ends: an idle queue costs no goroutine.
func (q *Queue[T]) run() {
	for {
		q.gather()
		q.mu.Lock()
		batch := q.pending
		q.pending, q.hurry = nil, false
		if len(batch) == 0 {
			q.flushing = false
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		for range batch {
			<-q.room
		}
		q.flush(batch)
		q.done(uint64(len(batch)))
	}
}

func (q *Queue[T]) done(n uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flushed += n
	close(q.progress)
	q.progress = make(chan struct{})
}

// Wait returns when everything that was put before the call has been flushed, or with
// the cause of ctx when that ends first.
func (q *Queue[T]) Wait(ctx context.Context) error {
	q.mu.Lock()
	target := q.put
	q.let()
	q.mu.Unlock()
	for {
		q.mu.Lock()
		done, progress := q.flushed >= target, q.progress
		q.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close refuses further items and waits, as [Queue.Wait] does, for those it has. It
// may be called again, to go on waiting.
func (q *Queue[T]) Close(ctx context.Context) error {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.closing)
	}
	q.mu.Unlock()
	return q.Wait(ctx)
}
