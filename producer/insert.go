package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tracing"
	"github.com/mscheduler/mscheduler/model"
)

const (
	// maxChunk and maxChunkBytes bound one insert of a SendMany: a few of them for tens
	// of thousands, none of which the driver has to split.
	maxChunk      = 5_000
	maxChunkBytes = 16 << 20
	// taskBytes is about what a task's document needs beside its arguments.
	taskBytes = 512
	// maxReappearing bounds how often a key may be found and be gone again.
	maxReappearing = 5
)

// outgoing is one draft between its task and its Sent.
type outgoing struct {
	draft  lifecycle.Draft
	exists model.Existing // what becomes of a key that exists
	task   *model.Task
	sent   Sent
	err    error
	again  bool // the key exists, and what OnExisting says is still to be done
	held   bool // an open transaction holds the key (see err); the insert is repeated apart
	tried  bool // it was held before, and may have been stored since
}

// carryOut is the innermost SendFunc: it stores the drafts.
func (p *Producer) carryOut(ctx context.Context, drafts []*Draft) ([]Sent, error) {
	ctx = store.Inside(ctx)
	bad := ManyError{Total: len(drafts)}
	for i, d := range drafts {
		var err error
		if p.wrapped { // middleware may have changed what was checked
			err = d.validate()
		}
		if err = errors.Join(err, d.seal(p.room.Secrets)); err != nil {
			bad.add(i, err)
		}
	}
	if err := bad.orNil(); err != nil {
		return nil, err
	}
	if err := p.room.Prepare(ctx); err != nil {
		return nil, err
	}
	for i, d := range drafts {
		if err := p.room.Types.Unread(d.Type); err != nil {
			bad.add(i, err)
		}
	}
	if err := bad.orNil(); err != nil {
		return nil, err
	}
	now := p.room.Store.Clock.Now()
	from := tracing.Of(ctx, now)
	outs := make([]*outgoing, len(drafts))
	for i, d := range drafts {
		o := newOutgoing(d, p.room.Types.Get(d.Type), from, now)
		o.sent.ID = o.task.ID
		outs[i] = o
	}
	switch {
	case store.InTransaction(ctx):
		p.insertInTransaction(ctx, outs)
	case len(outs) == 1:
		outs[0] = p.gather(ctx, outs[0])
	default:
		p.insertChunks(ctx, outs)
	}
	sent := make([]Sent, len(outs))
	for i, o := range outs {
		sent[i] = o.sent
		if o.err != nil {
			bad.add(i, o.err)
		}
	}
	return sent, bad.orNil()
}

// orNil is the error of a SendFunc.
func (e *ManyError) orNil() error {
	switch {
	case len(e.Failed) == 0:
		return nil
	case e.Total == 1:
		return e.Failed[0]
	default:
		return e
	}
}

// gathered is a single send that shares an insert with others.
type gathered struct {
	ctx  context.Context
	out  *outgoing
	done chan struct{}
}

// gather stores one task together with whatever else is sent at the moment.
func (p *Producer) gather(ctx context.Context, o *outgoing) *outgoing {
	g := &gathered{ctx: ctx, out: o, done: make(chan struct{})}
	if err := p.single.Put(ctx, g); err != nil {
		o.err = fmt.Errorf("waiting to store task %s: %w", o.task.ID, err)
		return o
	}
	select {
	case <-g.done:
	case <-ctx.Done():
		// The insert may still be under way and use o: leave it alone.
		return &outgoing{sent: Sent{ID: o.task.ID}, err: fmt.Errorf("storing task %s (it may have been stored): %w", o.task.ID, context.Cause(ctx))}
	}
	if o.again { // by the sender itself: it must not hold up what gathers
		p.sendAgain(ctx, o)
	}
	return o
}

// insertGathered is the flush of the group-commit queue.
func (p *Producer) insertGathered(batch []*gathered) {
	ctx, cancel := whileAnyWaits(batch)
	defer cancel()
	outs := make([]*outgoing, len(batch))
	for i, g := range batch {
		outs[i] = g.out
	}
	p.insert(ctx, outs)
	for _, g := range batch {
		if !g.out.held {
			close(g.done)
			continue
		}
		go func() { // the others must not wait for it
			p.insertHeld(g.ctx, []*outgoing{g.out})
			close(g.done)
		}()
	}
}

// whileAnyWaits ends when the contexts of all senders have ended: one that gives up
// must not take the others' insert with it, and when nobody waits any more nobody
// should go on.
func whileAnyWaits(batch []*gathered) (context.Context, context.CancelFunc) {
	if len(batch) == 1 {
		return batch[0].ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	var waiting atomic.Int64
	waiting.Store(int64(len(batch)))
	stops := make([]func() bool, len(batch))
	for i, g := range batch {
		stops[i] = context.AfterFunc(g.ctx, func() {
			if waiting.Add(-1) == 0 {
				cancel(context.Cause(g.ctx))
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

// insertInTransaction does everything one after the other, as a session wants it, and
// stops at the first error, which has ended the transaction.
func (p *Producer) insertInTransaction(ctx context.Context, outs []*outgoing) {
	var failed error
	for chunk := range chunks(outs) {
		if failed == nil {
			p.insert(ctx, chunk)
		}
		for _, o := range chunk {
			if failed == nil && o.err == nil && o.again {
				p.sendAgain(ctx, o)
			}
			if refused := new(model.RefusedError); failed == nil && !errors.As(o.err, &refused) {
				failed = o.err // a refusal has written nothing, and ended nothing
			} else if failed != nil && o.err == nil {
				o.err = fmt.Errorf("not stored, because the transaction failed: %w", failed)
			}
		}
	}
}

func (p *Producer) insertChunks(ctx context.Context, outs []*outgoing) {
	var down error
	var held []*outgoing
	why := map[string]error{} // by the keys of those
	for chunk := range chunks(outs) {
		if down != nil { // each further chunk would only wait for the server again
			for _, o := range chunk {
				o.err = fmt.Errorf("not attempted after an earlier error: %w", down)
			}
			continue
		}
		free := chunk
		if len(held) > 0 { // later items of a key wait with the first one
			free = make([]*outgoing, 0, len(chunk))
			for _, o := range chunk {
				if o.err = why[o.task.ID]; o.err == nil {
					free = append(free, o)
				}
			}
		}
		p.insert(ctx, free)
		for _, o := range chunk {
			if o.held || why[o.task.ID] != nil {
				held, why[o.task.ID] = append(held, o), o.err
			}
		}
		p.sendAllAgain(ctx, chunk)
		down = outage(ctx, chunk)
	}
	if len(held) > 0 { // when all others are stored
		p.insertHeld(ctx, held)
		p.sendAllAgain(ctx, held)
	}
}

// outage is the error for which no further chunk is worth trying.
func outage(ctx context.Context, chunk []*outgoing) error {
	for _, o := range chunk {
		if o.err != nil && (ctx.Err() != nil || store.Unreachable(o.err)) {
			return o.err
		}
	}
	return nil
}

// chunks splits what one insert cannot hold.
func chunks(outs []*outgoing) func(yield func([]*outgoing) bool) {
	return func(yield func([]*outgoing) bool) {
		start, size := 0, 0
		for i, o := range outs {
			n := len(o.task.Args.Value) + taskBytes
			if i > start && (i-start >= maxChunk || size+n > maxChunkBytes) {
				if !yield(outs[start:i]) {
					return
				}
				start, size = i, 0
			}
			size += n
		}
		if start < len(outs) {
			yield(outs[start:])
		}
	}
}

// insert stores the tasks whose keys are new and looks up those that exist.
func (p *Producer) insert(ctx context.Context, outs []*outgoing) {
	for range maxReappearing {
		existing := p.insertNew(ctx, outs)
		outs = p.lookUp(ctx, existing)
		if len(outs) == 0 {
			return
		}
		// Between the insert and the look those were deleted; their keys are free.
	}
	for _, o := range outs {
		o.err = reappeared(o)
	}
}

func reappeared(o *outgoing) error {
	return fmt.Errorf("storing task %s: the task appeared and disappeared %d times", o.task.ID, maxReappearing)
}

// insertNew returns those whose key exists.
func (p *Producer) insertNew(ctx context.Context, outs []*outgoing) (existing []*outgoing) {
	tasks := make([]*model.Task, len(outs))
	for i, o := range outs {
		tasks[i] = o.task
	}
	insert := p.room.Store.Tasks.Insert
	if slices.ContainsFunc(outs, func(o *outgoing) bool { return o.tried }) { // then all of them
		insert = p.room.Store.Tasks.InsertAgain
	}
	exists, err := insert(ctx, tasks)
	var single *store.InsertError
	if errors.As(err, &single) {
		err = nil
	} else {
		single = &store.InsertError{}
	}
	for i, o := range outs {
		switch {
		case err != nil:
			o.err = err
		case single.Refused[i] != nil:
			o.err = single.Refused[i]
			o.held = errors.Is(o.err, store.ErrHeld)
		case exists[i]:
			existing = append(existing, o)
		default:
			p.room.Wrote(o.task)
			o.sent = Sent{ID: o.task.ID, Generation: o.task.Generation, Created: true, Status: o.task.Status}
		}
	}
	return existing
}
