package decision

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
)

const (
	// busyLook is how often an engine looks while something was decided lately, or waits for an
	// end; idleLook how often it looks else: other processes enable rules and end tasks. What is
	// due is decided at its time all the same.
	busyLook, idleLook = time.Second, 5 * time.Second
	// busyFor is how long an engine counts as busy after it has decided something.
	busyFor = 10 * time.Second
	// While something waits for an end, a busy engine looks soonLook after it has decided
	// something, then twice as late each time, up to waitingLook: what has just started may end
	// soon.
	soonLook, waitingLook = time.Second / 50, time.Second / 10
	// longestPace bounds how much later a document is decided where the database answers slowly.
	longestPace = 3 * time.Second
	// longest is a pause until nothing in particular.
	longest = time.Hour
	// Ends are looked for from a little before the last look on; a transaction may have brought
	// earlier ones to light, which are found when all are looked for.
	endsMargin, allEndsEvery = 5 * time.Second, 30 * time.Second
	// sweepEvery is how often one engine looks for what nobody will tell.
	sweepEvery = 5 * time.Minute
)

// decides is a [Decider] of any kind of document.
type decides interface {
	questions(now, endsFrom time.Time, skip int) []store.Question
	round(ctx context.Context, began clock.Instant, now time.Time, k *rank) (next time.Duration, stays int, worked bool, err error)
	flush(ctx context.Context, age time.Duration)
	dueFull() bool // whether more may be due than the look read
	waits() bool   // whether something waits for ends
	lost(ctx context.Context) error
	pending() time.Time
	news() *news
	hear(ctx context.Context) (soon bool)
	prompt(kind string) bool // whether ends of that kind are told at once
}

// member is a planner of an [Engine].
type member struct {
	decides
	kind  string // the type under which engines of this kind are listed among the workers
	store *store.Store
	types *tasktypes.Cache
	log   zerolog.Logger

	rank               rank
	worked, swept, all time.Duration // monotonic: when it last did; far in the past = never
	looked             time.Time     // the database's time of the last look
	soon               time.Duration // how soon to look again while something waits for an end
	sweeping           sync.WaitGroup
	sweeps             sync.Mutex // held while a sweep runs
}

// sweepApart sweeps beside the engine's rounds. At most one sweep of a member lasts longer than
// sweepEvery.
func (m *member) sweepApart(ctx context.Context) {
	if !m.sweeps.TryLock() {
		return
	}
	defer m.sweeps.Unlock()
	if err := m.lost(ctx); err != nil && ctx.Err() == nil && !store.Outage(err) {
		m.log.Error().Err(err).Msg("could not decide what is due; retrying")
	}
}

func newMember[D any](kind string, d *Decider[D]) *member {
	return &member{decides: d, kind: kind, store: d.Store, types: d.Types, log: d.Log, soon: waitingLook, worked: -longest, swept: -longest, all: -longest}
}

// Engine lets planners decide what is due, at its time. The planners of one process share it, so
// one look asks for all of them. At most one goroutine runs it.
type Engine struct {
	id      string // among the workers
	members []*member
	looks   *clock.Pacer
	beaten  time.Duration // monotonic: when it last did
	// sweepsApart: a sweep may take long, and no other planner waits for it.
	sweepsApart bool
}

// NewEngine makes an engine that lets d decide, and nothing else. id names it among the workers,
// kind is the type under which such engines are listed there.
func NewEngine[D any](id, kind string, d *Decider[D]) *Engine {
	return newEngine(id, newMember(kind, d))
}

func newEngine(id string, m *member) *Engine {
	return &Engine{id: id, members: []*member{m}, looks: clock.NewPacer(m.store.Local(), 0, longestPace)}
}

// Start waits until the database can be worked on.
func (e *Engine) Start(ctx context.Context) error { return e.members[0].await(ctx, e.beat) }

// await waits until the database can be worked on, and first has succeeded.
func (m *member) await(ctx context.Context, first func(context.Context) error) error {
	for wait := time.Second; ; wait = min(2*wait, 10*time.Second) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := m.store.Ready(call)
		if err == nil {
			err = first(call)
		}
		cancel()
		if err == nil || ctx.Err() != nil || store.Classify(err) == store.Fatal {
			return err
		}
		m.log.Warn().Err(err).Msg("the engine is waiting for the database")
		clock.Pause(ctx, wait)
	}
}

// Flush removes at once what was carried out and told.
func (e *Engine) Flush(ctx context.Context) {
	for _, m := range e.members {
		m.flush(ctx, 0)
	}
}

// Round looks once, decides all that there is to decide, and says when to look again.
func (e *Engine) Round(ctx context.Context) time.Duration {
	local := e.local()
	shares := e.decide(ctx)
	decided := local.Monotonic()
	outage := false
	for _, s := range shares {
		s.flush(ctx, lazily)
		outage = outage || store.Outage(s.err)
	}
	// What is wrong with one thing does not keep the engine from the others; a server that is
	// away does.
	if !outage {
		shares[0].store.Series.Record(ctx, false)
		if decided-e.beaten >= store.HeartbeatInterval {
			shares[0].err = errors.Join(shares[0].err, e.beat(ctx))
		}
	}
	pause := longest
	for _, s := range shares {
		if !outage && s.rank.place == 0 && decided-s.swept >= sweepEvery {
			s.swept = decided
			if e.sweepsApart {
				s.sweeping.Go(func() { s.sweepApart(ctx) })
			} else {
				s.err = errors.Join(s.err, s.lost(ctx))
			}
		}
		pause = min(pause, s.pause(ctx, e.looks.Left()))
	}
	// What was done since then does not make the next decision late.
	return max(pause-(local.Monotonic()-decided), 0)
}

func (e *Engine) local() clock.Clock { return e.members[0].store.Local() }

// share is what a member does in one round.
type share struct {
	*member
	now  time.Time     // of the look
	all  bool          // the look asked for all ends
	skip int           // of the due documents
	full bool          // more may be due than was found
	next time.Duration // until something is to be done, as far as is known
	err  error
}

// decide looks and decides, page by page where much is due.
func (e *Engine) decide(ctx context.Context) []*share {
	shares := make([]*share, len(e.members))
	for i, m := range e.members {
		shares[i] = &share{member: m, next: longest}
		m.rank.begin()
	}
	entered := e.local().Monotonic()
	for asking := shares; len(asking) > 0; {
		began := clock.Read(e.local())
		if err := e.look(ctx, asking); err != nil {
			for _, s := range asking {
				s.err = err
			}
			break
		}
		var full []*share
		for _, s := range asking {
			if s.full = s.decide(ctx, began); s.full {
				full = append(full, s)
			}
		}
		asking = full
		if e.local().Monotonic()-entered > busyLook { // a backlog: the engine must tell that it lives, too
			for _, s := range full {
				s.next = 0
			}
			break
		}
	}
	for _, s := range shares {
		if s.err != nil {
			s.rank.interrupted()
		} else {
			s.rank.end(!s.full)
		}
	}
	return shares
}

// decide decides what the look found, and says whether more may be due.
func (s *share) decide(ctx context.Context, began clock.Instant) (full bool) {
	if s.err != nil { // what a send of a type gives to its tasks is not known
		return false
	}
	full = s.dueFull()
	soon, stays, worked, err := s.round(ctx, began, s.now, &s.rank)
	if worked {
		s.worked, s.soon = s.store.Local().Monotonic(), soonLook
	}
	s.next, s.err = min(s.next, soon), err
	s.skip += stays // what stays is at the head, and may be much
	return full && err == nil
}

// pause is how long it is until the member's next look, which comes after the given rest unless
// something is to be done earlier.
func (s *share) pause(ctx context.Context, rest time.Duration) time.Duration {
	if s.err != nil {
		if !store.Outage(s.err) && ctx.Err() == nil {
			s.log.Error().Err(s.err).Msg("could not decide what is due; retrying")
		}
		return busyLook
	}
	every := idleLook
	switch busy, waits := s.store.Local().Monotonic()-s.worked < busyFor, s.waits(); {
	case busy && waits:
		every = s.soon
		s.soon = min(2*s.soon, waitingLook)
	case busy || waits:
		every = busyLook
	}
	return min(max(every, rest), s.next)
}

// look asks all that the members have to ask, in one command.
func (e *Engine) look(ctx context.Context, asking []*share) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := clock.Read(e.local())
	var control store.ControlDoc
	questions := []store.Question{asking[0].store.Control.Question(func(c store.ControlDoc) { control = c })}
	for _, s := range asking {
		questions = append(questions, s.ask()...)
	}
	if err := e.looks.Do(func() error { return asking[0].store.Ask(ctx, "looking for what is due", questions...) }); err != nil {
		return err
	}
	for _, s := range asking {
		if s.looked = s.now; s.all {
			s.member.all = s.store.Local().Monotonic()
		}
		s.err = s.types.Learn(ctx, control.Types, began)
	}
	return nil
}

// ask returns the questions of a member.
func (s *share) ask() []store.Question {
	s.now = s.store.Clock.Now()
	from := s.now.Add(-endsMargin)
	if s.looked.Before(s.now) {
		from = s.looked.Add(-endsMargin)
	}
	if left := s.pending(); !left.IsZero() && left.Before(from) {
		from = left
	}
	if s.all = s.store.Local().Monotonic()-s.member.all >= allEndsEvery; s.all {
		from = time.Time{}
	}
	return s.questions(s.now, from, s.skip)
}
