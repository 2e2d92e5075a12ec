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
	ownerless bool             // belongs to no tenant: a worker, a stream
	task      *model.TaskEvent // of a task
	data      []byte           // JSON
}

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
	end       context.CancelFunc // of the subscription; nil = there is none
	listeners map[*listener]bool
	visits    int        // listeners so far
	origin    string     // the token before the first of recent
	recent    []happened // the oldest first
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
	running, end := context.WithCancel(context.Background())
	begun, ended := make(chan string, 1), make(chan error, 1)
	over := make(chan struct{}) // somebody knows of the subscription, or nobody ever will
	go func() {
		err := h.source(running, func(token string) { begun <- token }, h.tell)
		ended <- err
		<-over
		h.lost(running, err)
	}()
	defer close(over)
	select {
	case token := <-begun:
		h.mu.Lock()
		h.end, h.origin, h.recent = end, token, nil
		h.mu.Unlock()
		return h.join(after, wants), nil
	case err := <-ended:
		end()
		return nil, err
	case <-ctx.Done():
		end()
		return nil, context.Cause(ctx)
	}
}

// join adds a listener to the subscription; nil = there is none.
func (h *hub) join(after string, wants func(*happened) bool) *listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end == nil {
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
	if visits := h.visits; len(h.listeners) == 0 && h.end != nil {
		time.AfterFunc(lingering, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.visits == visits && h.end != nil {
				h.end()
			}
		})
	}
}

// stop ends the subscription.
func (h *hub) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end != nil {
		h.end()
	}
}

// lost ends a subscription that goes on no more. Listeners are sent away: they come back with the last event
// that they got, and learn that they may have missed some.
func (h *hub) lost(running context.Context, err error) {
	if running.Err() == nil && err != nil {
		h.log.Warn().Err(err).Msg("the subscription to events was lost")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end == nil {
		return // it never began
	}
	h.end()
	h.end, h.recent = nil, nil
	for l := range h.listeners {
		close(l.events)
		delete(h.listeners, l)
	}
}

// tell hands events to those who want them. Who is too far behind is sent away.
func (h *hub) tell(events []happened) {
	h.mu.Lock()
	defer h.mu.Unlock()
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
