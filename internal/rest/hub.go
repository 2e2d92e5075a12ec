package rest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	// remembered is how many events a process keeps, at least, for clients that were cut off and come back.
	remembered = 10_000
	// behind is how many events a listener may be behind before it is sent away. It comes back with the
	// last event that it got.
	behind = 1000
	// lingering is how long the subscription goes on when nobody listens: clients come back.
	lingering = time.Minute
)

// happened is one event, as every listener gets it.
type happened struct {
	token     string
	of        store.ChangeOf
	name      string           // of the Server-Sent Event
	tenant    string           // "" = without one
	key       string           // of a flow
	topic     topic            // of a result
	ownerless bool             // belongs to no tenant: a worker, a stream
	task      *model.TaskEvent // of a task
	data      []byte           // JSON
}

// topic is what a result of a plan is published under.
type topic struct{ description, planID string }

// source tells what happens, from now on until ctx ends or it is lost. It calls begun once, with the token
// before the first event.
type source func(ctx context.Context, begun func(token string), tell func([]happened)) error

// hub shares one subscription of the process among all listeners. It subscribes when the first one comes,
// and stops some time after the last one has gone.
type hub struct {
	source source
	log    zerolog.Logger

	begin sync.Mutex // held while somebody subscribes

	mu        sync.Mutex
	current   *subscription // nil = there is none
	listeners map[*listener]bool
	visits    int        // listeners so far
	origin    string     // the token before the first of recent
	recent    []happened // the oldest first
}

// subscription is one call of the source. What it tells, and its end, count only as long as it is the current one: a
// source may end late.
type subscription struct {
	running   context.Context
	end       context.CancelFunc
	abandoned bool // nobody waited until it began
}

// listener gets the events that it wants.
type listener struct {
	wants   func(*happened) bool
	at      string        // the token from which on it gets events
	missed  bool          // events between those it had and those it gets
	backlog []happened    // those that it gets first
	events  chan happened // closed when the listener is sent away
}

// listen adds a listener, which gets every event from now on, or every event after the given token. If
// these are not known, the listener has missed some.
func (h *hub) listen(ctx context.Context, after string, wants func(*happened) bool) (*listener, error) {
	h.begin.Lock()
	defer h.begin.Unlock()
	if l := h.join(after, wants); l != nil {
		return l, nil
	}
	s := &subscription{}
	s.running, s.end = context.WithCancel(context.Background())
	begun, ended := make(chan struct{}), make(chan error, 1)
	over := make(chan struct{}) // somebody knows of the subscription, or nobody ever will
	go func() {
		err := h.source(s.running, func(token string) {
			h.begun(s, token)
			close(begun)
		}, func(events []happened) { h.tell(s, events) })
		ended <- err
		<-over
		h.lost(s, err)
	}()
	defer close(over)
	select {
	case <-begun:
		return h.join(after, wants), nil
	case err := <-ended:
		s.end()
		return nil, err
	case <-ctx.Done():
		h.abandon(s)
		return nil, context.Cause(ctx)
	}
}

// begun makes a subscription the current one, from its first event on.
func (h *hub) begun(s *subscription, token string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !s.abandoned {
		h.current, h.origin, h.recent = s, token, nil
	}
}

// abandon ends a subscription that nobody waits for any more. It has no listeners yet.
func (h *hub) abandon(s *subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.abandoned = true
	s.end()
	if h.current == s {
		h.current, h.recent = nil, nil
	}
}

// join adds a listener to the subscription; nil = there is none.
func (h *hub) join(after string, wants func(*happened) bool) *listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == nil {
		return nil
	}
	l := &listener{wants: wants, events: make(chan happened, behind), at: h.origin}
	if n := len(h.recent); n > 0 {
		l.at = h.recent[n-1].token
	}
	at := slices.IndexFunc(h.recent, func(e happened) bool { return e.token == after })
	switch {
	case after == "":
	case at < 0 && after != h.origin:
		l.missed = true
	default:
		l.at = after
		for i := at + 1; i < len(h.recent); i++ {
			if wants(&h.recent[i]) {
				l.backlog = append(l.backlog, h.recent[i])
			}
		}
	}
	h.listeners[l] = true
	h.visits++
	return l
}

// leave removes a listener.
func (h *hub) leave(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.listeners, l)
	if visits := h.visits; len(h.listeners) == 0 && h.current != nil {
		time.AfterFunc(lingering, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.visits == visits && h.current != nil {
				h.current.end()
			}
		})
	}
}

// stop ends the subscription.
func (h *hub) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current != nil {
		h.current.end()
	}
}

// lost ends a subscription that goes on no more. Listeners are sent away: they come back with the last event
// that they got, and learn that they may have missed some.
func (h *hub) lost(s *subscription, err error) {
	if s.running.Err() == nil && err != nil {
		h.log.Warn().Err(err).Msg("the subscription to events was lost")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s.end()
	if h.current != s {
		return // it never began, or nobody waited for that
	}
	h.current, h.recent = nil, nil
	for l := range h.listeners {
		close(l.events)
		delete(h.listeners, l)
	}
}

// tell hands events to those who want them. Who is too far behind is sent away.
func (h *hub) tell(s *subscription, events []happened) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current != s {
		return
	}
	for _, e := range events {
		if h.recent = append(h.recent, e); len(h.recent) > 2*remembered {
			h.origin = h.recent[remembered-1].token
			h.recent = slices.Clone(h.recent[remembered:])
		}
		for l := range h.listeners {
			if !l.wants(&e) {
				continue
			}
			select {
			case l.events <- e:
			default:
				close(l.events)
				delete(h.listeners, l)
			}
		}
	}
}
