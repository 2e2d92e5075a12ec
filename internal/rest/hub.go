package rest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

const (
	// remembered is how many events a process keeps, at least, for clients that were cut off and come back.
	remembered = 10_000
	// behind is how many events a listener may be behind before it is sent away. It comes back with the
	// last event that it got.
	behind = 1000
	// lingering is how long the subscription goes on when nobody listens: clients come back.
	lingering = time.Minute
	// closing is how long the end of a subscription may take.
	closing = 5 * time.Second
)

// hub shares one subscription of the process among all listeners. It subscribes when the first one comes,
// and stops some time after the last one has gone.
type hub struct {
	producer *producer.Producer
	log      zerolog.Logger

	begin sync.Mutex // held while somebody subscribes

	mu        sync.Mutex
	end       context.CancelFunc // of the subscription; nil = there is none
	listeners map[*listener]bool
	visits    int               // listeners so far
	origin    string            // the token before the first of recent
	recent    []model.TaskEvent // the oldest first
}

// listener gets the events that it wants.
type listener struct {
	wants   func(*model.TaskEvent) bool
	at      string               // the token from which on it gets events
	missed  bool                 // events between those it had and those it gets
	backlog []model.TaskEvent    // those that it gets first
	events  chan model.TaskEvent // closed when the listener is sent away
}

// listen adds a listener, which gets every event from now on, or every event after the given token. If
// these are not known, the listener has missed some.
func (h *hub) listen(ctx context.Context, after string, wants func(*model.TaskEvent) bool) (*listener, error) {
	h.begin.Lock()
	defer h.begin.Unlock()
	if l := h.join(after, wants); l != nil {
		return l, nil
	}
	s, err := h.producer.Subscribe(ctx, producer.EventFilter{})
	if err != nil {
		return nil, err
	}
	running, end := context.WithCancel(context.Background())
	h.mu.Lock()
	h.end, h.origin, h.recent = end, s.Token(), nil
	h.mu.Unlock()
	l := h.join(after, wants)
	go h.run(running, s)
	return l, nil
}

// join adds a listener to the subscription; nil = there is none.
func (h *hub) join(after string, wants func(*model.TaskEvent) bool) *listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end == nil {
		return nil
	}
	l := &listener{wants: wants, events: make(chan model.TaskEvent, behind), at: h.origin}
	if n := len(h.recent); n > 0 {
		l.at = h.recent[n-1].Token
	}
	at := slices.IndexFunc(h.recent, func(e model.TaskEvent) bool { return e.Token == after })
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

// run hands events over until ctx ends, or the subscription is lost. Then listeners are sent away: they come
// back with the last event that they got, and learn that they may have missed some.
func (h *hub) run(ctx context.Context, s *producer.Subscription) {
	for e, err := range s.All(ctx) {
		if err != nil {
			if ctx.Err() == nil {
				h.log.Warn().Err(err).Msg("the subscription to events was lost")
			}
			break
		}
		h.tell(e)
	}
	h.mu.Lock()
	h.end()
	h.end, h.recent = nil, nil
	for l := range h.listeners {
		close(l.events)
		delete(h.listeners, l)
	}
	h.mu.Unlock()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	_ = s.Close(stop) // else its seat lapses
}

// tell hands one event to those who want it. Who is too far behind is sent away.
func (h *hub) tell(e model.TaskEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.recent = append(h.recent, e); len(h.recent) > 2*remembered {
		h.origin = h.recent[remembered-1].Token
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
