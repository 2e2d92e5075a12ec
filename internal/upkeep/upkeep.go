// Package upkeep is the housekeeping that any one process does for the whole fleet: it
// carries out what crashed processes left over, ends what has expired, moves what is old
// to the history. A permit decides whose turn it is. Every job is right with any number of
// doers at once; the permit only saves the work.
//
// An idle fleet pays for it with two commands a minute from the one that has the permit,
// and one from each of the others: the permit, and one look at whether there is anything
// to do.
package upkeep

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
)

// Job is one kind of upkeep.
type Job interface {
	// Name is for people.
	Name() string
	// Wanted says whether the look found something for it.
	Wanted(store.Chores) bool
	// Run does all there is to do now, or some of it and returns [ErrMore].
	Run(ctx context.Context) error
}

// ErrMore is what a job returns that stops before all is done, so that the others have
// their turn: the next round follows at once.
var ErrMore = errors.New("more work is left")

const (
	// Permit is the name of the right to do it.
	Permit = "upkeep"

	jobTimeout = 5 * time.Minute

	// fewFailures is how many rounds one after another may fail without a line in the log.
	fewFailures = 2
)

// Keeper does the jobs while it has the permit.
type Keeper struct {
	store  *store.Store
	holder string // unique to the process
	log    zerolog.Logger
	jobs   []Job
	busy   func() bool // has this process worked since it was asked last, or does it wait for what upkeep frees?
	pace   Pace
	looks  *clock.Pacer

	// Of the loop alone.
	had      bool          // it may have the permit
	failures int           // how many rounds have failed since the last that did not
	failed   time.Duration // monotonic: when the last of them did
}

// New makes a keeper. busy says whether the process works, or waits for what upkeep frees: then it looks more often, and
// takes the permit from one that is idle.
func New(st *store.Store, holder string, log zerolog.Logger, busy func() bool, jobs ...Job) *Keeper {
	return &Keeper{store: st, holder: holder, log: log, busy: busy, jobs: jobs, pace: pace(),
		looks: clock.NewPacer(st.Local(), 0, IdlePause)}
}

// Loop keeps until ctx ends, then gives the permit back.
func (k *Keeper) Loop(ctx context.Context) {
	idle, more := false, false
	for first := true; ; first = false {
		if !more {
			idle = k.rest(ctx, first) // soon after its start: nobody may have been there before
		}
		if ctx.Err() != nil {
			break
		}
		more = k.turn(ctx, idle)
	}
	k.leave(ctx)
}

// turn makes a round if it is this process's turn.
func (k *Keeper) turn(ctx context.Context, idle bool) (more bool) {
	pause := k.pace.Busy
	if idle {
		pause = k.pace.Idle
	}
	yields := idle || k.failures > 0 && k.store.Local().Monotonic()-k.failed < k.pace.Idle
	mine, err := k.take(ctx, pause, yields)
	if err == nil && mine {
		more, err = k.round(ctx)
		k.count(err)
		failed := err != nil
		err = nil                                 // it is logged
		if left := k.looks.Left(); left > pause { // the others look no sooner, either
			_, err = k.take(ctx, left, yields)
		}
		if failed { // perhaps another process can
			clock.Pause(ctx, k.looks.Left())
			k.leave(ctx)
		}
	}
	if err != nil && ctx.Err() == nil && !store.Away(err) {
		k.log.Error().Err(err).Msg("could not search for upkeep work; retrying")
	}
	return more
}

// take takes the permit for a pause and the next look. One that yields takes it from nobody, and loses it to one that
// does not.
func (k *Keeper) take(ctx context.Context, pause time.Duration, yields bool) (mine bool, err error) {
	mine, err = k.store.Turns.Take(ctx, Permit, k.holder, 2*pause+k.pace.Grace, yields)
	k.had = k.had || mine || err != nil // an answer that was lost may have been yes
	return mine, err
}

// leave gives the permit back.
func (k *Keeper) leave(ctx context.Context) {
	if !k.had {
		return
	}
	k.had = false // if it does not succeed the permit lapses
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := k.store.Turns.Leave(ctx, Permit, k.holder); err != nil {
		k.log.Debug().Err(err).Msg("could not release the upkeep turn")
	}
}

// count counts rounds that failed one after another.
func (k *Keeper) count(err error) {
	if err == nil {
		k.failures = 0
		return
	}
	k.failures++
	k.failed = k.store.Local().Monotonic()
}

// rest waits until it is time to look: soon if the process works or shall hurry. It reports whether the process was idle
// all the time. The pauses vary, so that many processes do not ask together.
func (k *Keeper) rest(ctx context.Context, hurry bool) (idle bool) {
	about := func(d time.Duration) time.Duration { return d*3/4 + rand.N(d/2) }
	for left := about(k.pace.Idle); left > 0; {
		some := about(max(min(k.pace.Busy, k.pace.Idle), k.looks.Left()))
		if !clock.Pause(ctx, some) || k.busy() || hurry {
			return false
		}
		left -= some
	}
	return true
}

// Round looks once and does what is to be done, permit or not.
func (k *Keeper) Round(ctx context.Context) error {
	_, err := k.round(ctx)
	return err
}

func (k *Keeper) round(ctx context.Context) (more bool, failed error) {
	var chores store.Chores
	err := k.looks.Do(func() (err error) {
		chores, err = k.store.Tasks.Chores(ctx)
		return err
	})
	if err != nil {
		if k.worthLogging(ctx, err) {
			k.log.Error().Err(err).Msg("could not search for upkeep work; retrying")
		}
		return false, err
	}
	for _, j := range k.jobs {
		if !j.Wanted(chores) {
			continue
		}
		call, cancel := context.WithTimeout(ctx, jobTimeout)
		if err := j.Run(call); errors.Is(err, ErrMore) {
			more = true
		} else if err != nil {
			failed = err // one that cannot must not keep the others from theirs
			if k.worthLogging(ctx, err) {
				k.log.Error().Err(err).Str("job", j.Name()).Msg("an upkeep job failed; retrying")
			}
		}
		cancel()
	}
	return more && failed == nil, failed
}

// worthLogging says whether the error of a round is more than an outage, which passes and is logged elsewhere. During an
// outage nobody gets the permit, so where rounds fail one after another there is none.
func (k *Keeper) worthLogging(ctx context.Context, err error) bool {
	return ctx.Err() == nil && (!store.Away(err) || k.failures >= fewFailures)
}
