package producer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Sent is the result of a send.
type Sent struct {
	// ID of the task: tenant/type/key. It is set even if an error leaves open whether the task
	// was stored.
	ID string
	// Generation is the life of the key that the send began or found.
	Generation int64
	// Created reports whether this send began that life: the key was new, or [OnExisting]
	// restarted the task. Otherwise the key already had a task.
	Created bool
	// Status of the task after the send.
	Status model.Status
}

// Send stores a task, which some worker then runs. args are stored as the equivalent of their
// JSON form, at most 256 KiB. Send returns when a majority of the servers has stored the task.
// Concurrent sends of a process share inserts.
//
// If a transaction runs on the session in ctx, the task becomes part of it and exists when
// the transaction commits. Another send of the same key waits until then. If its ctx has no
// deadline, it waits at most 75 s, then fails and has stored nothing. See the package comment
// for the errors.
func Send[A, R any](ctx context.Context, p *Producer, t model.Type[A, R], args A, opts ...Option) (Sent, error) {
	return p.sendOne(ctx, t.Name(), args, opts)
}

// SendJSON is [Send] for arguments that are already JSON and a type that is known only by name.
// Empty args mean no arguments.
func (p *Producer) SendJSON(ctx context.Context, typ string, args json.RawMessage, opts ...Option) (Sent, error) {
	return p.sendOne(ctx, typ, args, opts)
}

func (p *Producer) sendOne(ctx context.Context, typ string, args any, opts []Option) (Sent, error) {
	d, outside, err := draftOf(p.tenant, p.room.Secrets, typ, args, opts)
	if err != nil {
		return Sent{}, sending(typ, err)
	}
	sent, err := p.through(ctx, []*Draft{d}, outside)
	if err != nil {
		var known Sent
		if len(sent) == 1 {
			known = sent[0]
		}
		return known, sending(typ, err)
	}
	return sent[0], nil
}

func sending(typ string, err error) error {
	if typ == "" {
		return fmt.Errorf("sending a task: %w", err)
	}
	return fmt.Errorf("sending a task of type %s: %w", typ, err)
}

// through sends drafts through the middleware.
func (p *Producer) through(ctx context.Context, drafts []*Draft, outside bool) ([]Sent, error) {
	done, err := p.room.Begin()
	if err != nil {
		return nil, err
	}
	defer done()
	if outside {
		ctx = store.Outside(ctx)
	}
	send := p.send
	if p.tracer.On() {
		send = p.sendTraced
	}
	sent, err := send(ctx, drafts)
	if err == nil && len(sent) != len(drafts) {
		return nil, fmt.Errorf("a middleware returned %d results for %d tasks", len(sent), len(drafts))
	}
	return sent, err
}

// Item is one task for [SendMany].
type Item[A any] struct {
	Args    A
	Options []Option
}

// SendMany stores many tasks of a type, thousands in each round trip, and returns one Sent for
// each, in the order of the items. Items with the same key apply in that order. It validates all
// items before it writes any. If some items fail, the error is a *[ManyError] that names them;
// all others are stored. If a transaction runs on the session in ctx, it stores all or none.
// If another client's open transaction has sent one of the keys, SendMany first stores all other
// items, then waits for that key as [Send] does.
func SendMany[A, R any](ctx context.Context, p *Producer, t model.Type[A, R], items []Item[A]) ([]Sent, error) {
	many := p.newMany(len(items))
	for _, it := range items {
		many.add(t.Name(), it.Args, it.Options)
	}
	return many.send(ctx)
}

// JSONItem is one task for [Producer.SendManyJSON].
type JSONItem struct {
	Type    string
	Args    json.RawMessage // empty = no arguments
	Options []Option
}

// SendManyJSON is [SendMany] for tasks whose types are known only by name. The types may
// differ.
func (p *Producer) SendManyJSON(ctx context.Context, items []JSONItem) ([]Sent, error) {
	many := p.newMany(len(items))
	for _, it := range items {
		many.add(it.Type, it.Args, it.Options)
	}
	return many.send(ctx)
}

type many struct {
	p       *Producer
	drafts  []*Draft
	outside bool
	bad     ManyError
}

func (p *Producer) newMany(n int) *many {
	return &many{p: p, drafts: make([]*Draft, 0, n), bad: ManyError{Total: n}}
}

func (m *many) add(typ string, args any, opts []Option) {
	i := len(m.drafts)
	d, outside, err := draftOf(m.p.tenant, m.p.room.Secrets, typ, args, opts)
	if i == 0 {
		m.outside = outside
	} else if outside != m.outside {
		err = errors.Join(err, input.Invalid("outside_transaction", "differs between items; give it to all items or to none"))
	}
	if err != nil {
		m.bad.add(i, err)
	}
	m.drafts = append(m.drafts, d)
}

func (m *many) send(ctx context.Context) ([]Sent, error) {
	if len(m.bad.Failed) > 0 {
		return nil, &m.bad
	}
	if len(m.drafts) == 0 {
		return nil, nil
	}
	sent, err := m.p.through(ctx, m.drafts, m.outside)
	var named *ManyError
	if err != nil && len(m.drafts) == 1 && !errors.As(err, &named) {
		m.bad.add(0, err)
		err = &m.bad
	}
	return sent, err
}
