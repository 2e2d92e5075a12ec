// Package groupcommit gathers items while a batch is being written and makes them the
// next batch. Idle it adds no delay: a lone item is flushed at once. Busy it makes the
// batches as large as the load is, and when the writing cannot keep up, Put blocks.
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
)

// ErrClosed is returned by Put once Close was called.
var ErrClosed = errors.New("the queue is closed")

// Queue is a group-commit queue; make one with [New]. It is safe for concurrent use.
type Queue[T any] struct {
	flush   func(batch []T)
	room    chan struct{} // holds one token for each item that gathers
	closing chan struct{}

	mu       sync.Mutex
	pending  []T
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
		room:     make(chan struct{}, max),
		closing:  make(chan struct{}),
		progress: make(chan struct{}),
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
		q.mu.Lock()
		batch := q.pending
		q.pending = nil
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
