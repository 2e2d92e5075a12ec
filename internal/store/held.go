package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// A document stays a suspect for this long after the last write of it that ran out of
// time, and is probed at these intervals: at once, which clears what was only slow, then
// after an eighth of the time that it has been held.
const (
	heldFor       = 30 * time.Second
	firstProbe    = time.Second
	seldomProbe   = 30 * time.Second
	probeFraction = 8
)

// held remembers the documents that open transactions hold. Finding those documents in a batch
// takes time. Once they are known they leave the batches: a command of its own probes each one
// until it is free.
type held struct {
	mu       sync.Mutex
	suspects map[suspect]*hold
}

// suspect names a document.
type suspect struct{ collection, id string }

// hold is the knowledge of a suspect; all times are monotonic.
type hold struct {
	since time.Duration
	last  time.Duration // when a write of it ran out of time last
	probe time.Duration // when the next write of it may go out beside a batch
	limit time.Duration // the longest time limit that a write of it alone ran out of
}

// note records that a write of that document alone ran out of its time limit.
func (h *held) note(coll *mongo.Collection, id string, limit time.Duration, c clock.Clock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, again := h.suspects[suspect{coll.Name(), id}]
	s := h.of(coll, id, c)
	s.limit = max(s.limit, limit)
	if again {
		s.last = c.Monotonic()
		s.probe = s.last + min(max((s.last-s.since)/probeFraction, firstProbe), seldomProbe)
	}
}

// suspect records that a write of that document and a few others ran out of time.
func (h *held) suspect(coll *mongo.Collection, id string, c clock.Clock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of(coll, id, c)
}

// of returns the knowledge of the document; the first probe is due at once. h.mu is held.
func (h *held) of(coll *mongo.Collection, id string, c clock.Clock) *hold {
	key := suspect{coll.Name(), id}
	s := h.suspects[key]
	if s == nil {
		if h.suspects == nil {
			h.suspects = map[suspect]*hold{}
		}
		now := c.Monotonic()
		s = &hold{since: now, last: now, probe: now}
		h.suspects[key] = s
	}
	return s
}

// failed is the longest time limit that a write of the document alone ran out of.
func (h *held) failed(coll *mongo.Collection, id string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.suspects[suspect{coll.Name(), id}]; s != nil {
		return s.limit
	}
	return 0
}

// free records that writes of those documents were answered.
func (h *held) free(coll *mongo.Collection, c *command) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.suspects) > 0 {
		c.each(func(id string) { delete(h.suspects, suspect{coll.Name(), id}) })
	}
}

// waits reports whether the document is a suspect whose next probe is not due.
func (h *held) waits(coll *mongo.Collection, id string, c clock.Clock) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.suspects[suspect{coll.Name(), id}]
	return s != nil && c.Monotonic() < s.probe
}

// apart takes the suspects out of the statements: the others, the suspects whose probe is
// due, and the ids of those that wait. Where there are no others, all are probed: the
// caller gave them a command of their own. There may not be time for all probes, so those that have been due
// longest go first: among them what was never probed.
func (h *held) apart(coll *mongo.Collection, statements []statement, c clock.Clock) (others, probes []statement, waiting []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := c.Monotonic()
	for key, s := range h.suspects {
		if now-s.last > heldFor && now > s.probe+firstProbe {
			delete(h.suspects, key)
		}
	}
	if len(h.suspects) == 0 {
		return statements, nil, nil
	}
	type due struct {
		probe statement
		at    time.Duration
	}
	var all []due
	for _, st := range statements {
		var ours []string
		for _, id := range st.ids {
			if s := h.suspects[suspect{coll.Name(), id}]; s != nil {
				all = append(all, due{st.only(id), s.probe})
			} else {
				ours = append(ours, id)
			}
		}
		if len(ours) > 0 {
			others = append(others, st.only(ours...))
		}
	}
	slices.SortStableFunc(all, func(a, b due) int { return cmp.Compare(a.at, b.at) })
	for _, d := range all {
		if len(others) == 0 || now >= d.at {
			probes = append(probes, d.probe)
		} else {
			waiting = append(waiting, d.probe.ids[0])
		}
	}
	return others, probes, waiting
}

// WhileHeld tries until another client no longer holds the document ([ErrHeld]), or ctx ends.
func WhileHeld(ctx context.Context, try func() error) error {
	err := try()
	for pause := 50 * time.Millisecond; errors.Is(err, ErrHeld); pause = min(2*pause, time.Second) {
		if clock.Pause(ctx, pause); ctx.Err() != nil {
			return err
		}
		err = try()
	}
	return err
}

// Suspected reports whether a write of the task ran out of time lately because an open
// transaction holds it. The caller should write such a task alone.
func (s *Store) Suspected(id string) bool { return s.held.has(s.tasks, id) }

func (h *held) has(coll *mongo.Collection, id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.suspects[suspect{coll.Name(), id}] != nil
}

// ProbeLater reports whether an open transaction holds the task and its next probe is not due:
// writes that can wait should not be tried yet.
func (s *Store) ProbeLater(id string) bool { return s.held.waits(s.tasks, id, s.local) }
