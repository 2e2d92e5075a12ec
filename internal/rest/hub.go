package rest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

const (
	// remembered is how many events a process keeps for listeners that were cut off and come back.
	remembered = 10_000
	// behind is how many events a listener may be behind before it is sent away. It comes back with the
	// last event that it got.
	behind = 1000
	// closing is how long the end of a subscription may take.
	closing = 5 * time.Second
)

// hub shares one subscription of the process among all listeners. It subscribes when the first one comes,
// and stops when the last one has gone.
type hub struct {
	producer *producer.Producer
	log      zerolog.Logger

	mu        sync.Mutex
	listeners map[*listener]bool
	recent    []model.TaskEvent // the oldest first
	begin     sync.Mutex        // held while a first listener subscribes
	end       context.CancelFunc
	ended     chan struct{}
}

// listener gets the events that it wants.
type listener struct {
	wants  func(*model.TaskEvent) bool
	events chan model.TaskEvent // closed when the listener is sent away
	missed bool                 // events between those it had and those it gets
}

// listen adds a listener, which gets every event from now on, or every event after the given token. If
// these are not known any more, the listener has missed some.
func (h *hub) listen(ctx context.Context, after string, wants func(*model.TaskEvent) bool) (*listener, error) {
	l := &listener{wants: wants, events: make(chan model.TaskEvent, behind)}
	h.begin.Lock()
	defer h.begin.Unlock()
	h.mu.Lock()
	running := len(h.listeners) > 0
	h.mu.Unlock()
	if !running {
		if err := h.subscribe(ctx, after, l); err != nil {
			return nil, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if running && after != "" {
		l.missed = !h.replay(l, after)
	}
	h.listeners[l] = true
	return l, nil
}

// replay gives a listener what came after a token, and says whether that is known.
func (h *hub) replay(l *listener, after string) bool {
	at := slices.IndexFunc(h.recent, func(e model.TaskEvent) bool { return e.Token == after })
	if at < 0 {
		return false
	}
	wanted := 0
	for i := range h.recent[at+1:] {
		if e := &h.recent[at+1+i]; l.wants(e) {
			if wanted++; wanted > behind {
				return false
			}
		}
	}
	for _, e := range h.recent[at+1:] {
		if l.wants(&e) {
			l.events <- e
		}
	}
	return true
}

// leave removes a listener. The last one ends the subscription.
func (h *hub) leave(l *listener) {
	h.begin.Lock()
	defer h.begin.Unlock()
	h.mu.Lock()
	delete(h.listeners, l)
	last := len(h.listeners) == 0 && h.end != nil
	h.mu.Unlock()
	if last {
		h.end()
		<-h.ended
		h.end, h.recent = nil, nil
	}
}

// subscribe subscribes for the first listener. What can no longer be told from the token on, it has missed.
func (h *hub) subscribe(ctx context.Context, after string, first *listener) error {
	if h.end != nil { // those before have been sent away
		h.end()
		<-h.ended
		h.end, h.recent = nil, nil
	}
	s, err := h.producer.Subscribe(ctx, producer.EventFilter{After: after})
	var lost *producer.MissedError
	if after != "" && errors.As(err, &lost) {
		first.missed = true
		s, err = h.producer.Subscribe(ctx, producer.EventFilter{})
	}
	if err != nil {
		return err
	}
	running, end := context.WithCancel(context.Background())
	h.end, h.ended = end, make(chan struct{})
	go h.run(running, s, h.ended)
	return nil
}

// run hands events over until ctx ends, or the subscription is lost: then listeners are sent away, and come
// back with the last event that they got.
func (h *hub) run(ctx context.Context, s *producer.Subscription, ended chan struct{}) {
	defer close(ended)
	for e, err := range s.All(ctx) {
		if err != nil {
			if ctx.Err() == nil {
				h.log.Warn().Err(err).Msg("the subscription to events was lost")
			}
			break
		}
		h.tell(e)
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	_ = s.Close(stop) // else its seat lapses
	h.mu.Lock()
	defer h.mu.Unlock()
	for l := range h.listeners {
		close(l.events)
		delete(h.listeners, l)
	}
}

// tell hands one event to those who want it. Who is too far behind is sent away.
func (h *hub) tell(e model.TaskEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.recent = append(h.recent, e); len(h.recent) > 2*remembered {
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
