package decision

import (
	"context"
	"errors"
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

// worker is a [Decider] of any kind of document.
type worker interface {
	questions(now, endsFrom time.Time, skip int) []store.Question
	round(ctx context.Context, began clock.Instant, now time.Time, turn turnOf) (next time.Duration, stays int, worked bool, err error)
	flush(ctx context.Context, age time.Duration)
	dueFull() bool // whether more may be due than the look read
	waits() bool   // whether something waits for ends
	lost(ctx context.Context) error
	untold() time.Time
	decidedByPerson() <-chan struct{}
}

// Engine lets a planner decide what is due, at its time. At most one goroutine runs it.
type Engine struct {
	store   *store.Store
	id      string // among the workers
	kind    string // the type under which engines of this kind are listed among the workers
	types   *tasktypes.Cache
	log     zerolog.Logger
	decider worker
	looks   *clock.Pacer

	rank                       rank
	worked, beaten, swept, all time.Duration // monotonic: when it last did; far in the past = never
	looked                     time.Time     // the database's time of the last look
	soon                       time.Duration // how soon to look again while something waits for an end
}

// NewEngine makes an engine that lets d decide. id names it among the workers, kind is the type
// under which such engines are listed there.
func NewEngine[D any](id, kind string, d *Decider[D]) *Engine {
	return &Engine{store: d.Store, id: id, kind: kind, types: d.Types, log: d.Log, decider: d, looks: clock.NewPacer(d.Store.Local(), 0, longestPace), soon: waitingLook,
		worked: -longest, swept: -longest, all: -longest}
}

// Run decides until ctx ends, and then returns nil. Before it returns it applies the decisions that
// it has made, for at most five seconds. It waits for a server that is down, and returns an error
// that waiting cannot fix.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	for ctx.Err() == nil {
		if clock.PauseOr(ctx, e.Round(ctx), e.decider.decidedByPerson()) {
			e.worked, e.soon = e.store.Local().Monotonic(), soonLook
		}
	}
	e.Flush(ctx)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := e.store.Workers.Remove(last, e.id); err != nil {
		e.log.Debug().Err(err).Msg("could not remove the engine's document")
	}
	return nil
}

// Start waits until the database can be worked on.
func (e *Engine) Start(ctx context.Context) error {
	for wait := time.Second; ; wait = min(2*wait, 10*time.Second) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := e.store.Ready(call)
		if err == nil {
			err = e.beat(call)
		}
		cancel()
		if err == nil || ctx.Err() != nil || store.Classify(err) == store.Fatal {
			e.beaten = e.store.Local().Monotonic()
			return err
		}
		e.log.Warn().Err(err).Msg("the engine is waiting for the database")
		clock.Pause(ctx, wait)
	}
}

// Flush removes at once what was carried out and told.
func (e *Engine) Flush(ctx context.Context) { e.decider.flush(ctx, 0) }

// Round looks once, decides all that there is to decide, and says when to look again.
func (e *Engine) Round(ctx context.Context) time.Duration {
	local := e.store.Local()
	pause, err := e.decide(ctx)
	decided := local.Monotonic()
	e.decider.flush(ctx, lazily)
	// What is wrong with one thing does not keep the engine from the others; a server that is
	// away does.
	if !store.Outage(err) && decided-e.beaten >= store.HeartbeatInterval {
		e.beaten = decided
		err = errors.Join(err, e.beat(ctx))
	}
	if !store.Outage(err) && e.rank.place == 0 && decided-e.swept >= sweepEvery {
		e.swept = decided
		err = errors.Join(err, e.decider.lost(ctx))
	}
	if err != nil && ctx.Err() == nil {
		if !store.Outage(err) {
			e.log.Error().Err(err).Msg("could not decide what is due; retrying")
		}
		pause = busyLook
	}
	// What was done since then does not make the next decision late.
	return max(pause-(local.Monotonic()-decided), 0)
}

// decide looks and decides, page by page where much is due.
func (e *Engine) decide(ctx context.Context) (pause time.Duration, err error) {
	entered, next := e.store.Local().Monotonic(), longest
	for skip := 0; ; {
		began, now, stays, worked, full := clock.Read(e.store.Local()), e.store.Clock.Now(), 0, false, false
		if full, err = e.look(ctx, now, skip); err != nil {
			return 0, err
		}
		var soon time.Duration
		soon, stays, worked, err = e.decider.round(ctx, began, now, e.rank.turn)
		if worked {
			e.worked, e.soon = e.store.Local().Monotonic(), soonLook
		}
		next = min(next, soon)
		if err != nil {
			return 0, err
		}
		if !full {
			break
		}
		if e.store.Local().Monotonic()-entered > busyLook {
			return 0, nil // a backlog: the engine must tell that it lives, too
		}
		skip += stays // what stays is at the head, and may be much
	}
	every := idleLook
	switch busy, waits := e.store.Local().Monotonic()-e.worked < busyFor, e.decider.waits(); {
	case busy && waits:
		every = e.soon
		e.soon = min(2*e.soon, waitingLook)
	case busy || waits:
		every = busyLook
	}
	return min(max(every, e.looks.Left()), next), nil
}

// look asks all there is to ask, in one command. full says whether more may be due than it read.
func (e *Engine) look(ctx context.Context, now time.Time, skip int) (full bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	from, began := now.Add(-endsMargin), clock.Read(e.store.Local())
	if e.looked.Before(now) {
		from = e.looked.Add(-endsMargin)
	}
	if left := e.decider.untold(); !left.IsZero() && left.Before(from) {
		from = left
	}
	mono := e.store.Local().Monotonic()
	all := mono-e.all >= allEndsEvery
	if all {
		from = time.Time{}
	}
	var control store.ControlDoc
	questions := append([]store.Question{e.store.Control.Question(func(c store.ControlDoc) { control = c })}, e.decider.questions(now, from, skip)...)
	if err := e.looks.Do(func() error { return e.store.Ask(ctx, "looking for what is due", questions...) }); err != nil {
		return false, err
	}
	if e.looked = now; all {
		e.all = mono
	}
	return e.decider.dueFull(), e.types.Learn(ctx, control.Types, began)
}
