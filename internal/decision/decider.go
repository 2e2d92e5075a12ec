package decision

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
	"github.com/mscheduler/mscheduler/model"
)

const (
	callTimeout = 20 * time.Second
	// frozen: a process that stood still for so long between reading a document and carrying
	// out what it decided reads the document again. A task stays for [model.MinRetention] at least, which is as long.
	frozen = time.Minute
	// stopPatience is how long a stop waits for what is being decided and carried out: what is
	// left then waits for another engine's sweep, and its tasks are that late.
	stopPatience = 5 * time.Second
	// majorityLag is a time by which a majority rarely lags behind the primary.
	majorityLag = 20 * time.Millisecond
	// atOnce is how many portions go out at the same time: one is encoded while the server
	// works on another.
	atOnce = 2
)

// Config is what a [Decider] needs. All of it is required, unless it says otherwise.
type Config[D any] struct {
	Store     *store.Store
	Planner   Planner[D]
	Documents Documents[D]
	Types     *tasktypes.Cache
	Log       zerolog.Logger
	// With Prompt, the engine decides about ends of its own process at once, even if another engine
	// is first by rank. It finds other ends with its looks.
	Prompt bool
	// Size is about how many bytes of memory a document takes; nil = all are small. With Prompt, an engine remembers
	// documents that it has decided about, but not those that are over; nil = none is.
	Size func(D) int
	Over func(D) bool
	// Large says that documents may be large, so that only some are read at a time.
	Large bool
	// There, if it is not nil, hears of a task that was there when it was to be sent. A decision that is carried out
	// twice sent it before, or it is none of the document's.
	There func(ctx context.Context, doc D, t *model.Task) error
	// Count, if it is not nil, counts what a decision that was written says.
	Count func(store.Decision[D])
	// Begin, if it is not nil, begins the spans of what a decision says before it is written, and gives
	// their contexts to the tasks that it plans. end, if it is not nil, is called once it was written and
	// its tasks were sent, or were not.
	Begin func(ctx context.Context, w store.Decision[D], now time.Time) (end func(error))
}

// Decider writes the decisions of one planner and carries them out. [Decider.One] is safe for
// concurrent use.
type Decider[D any] struct {
	Config[D]

	complained clock.Seldom // about which documents
	heard      news

	runs   atomic.Bool // an engine or a drain does
	drains sync.Mutex  // held by the one that runs
	engineState[D]
}

// errRuns is the error of an engine beside another one of the same planner.
var errRuns = errors.New("the engine already runs")

// enter refuses a second engine: neither engineState nor what a planner remembers is for two.
func (d *Decider[D]) enter() (leave func(), err error) {
	if !d.runs.CompareAndSwap(false, true) {
		return nil, errRuns
	}
	return func() { d.runs.Store(false) }, nil
}

// New makes a decider.
func New[D any](c Config[D]) *Decider[D] {
	return &Decider[D]{Config: c, engineState: newEngineState[D]()}
}

// One writes one decision for a person who wants to know, and carries it out at once. began is
// when the document was about to be read. applied is false when somebody else decided about the
// document in between. While another client holds the document, it waits. The engine of this
// process, if one runs, looks soon. A decision that changes nothing is applied when a majority has the document as it
// was read: what was there already may be what a failover undoes.
func (d *Decider[D]) One(ctx context.Context, began clock.Instant, w store.Decision[D]) (applied bool, err error) {
	patience, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if any(w.After) == any(w.Before) {
		return d.Documents.Stays(patience, w.Before)
	}
	err = store.WhileHeld(patience, func() error {
		some, refused, err := d.Several(ctx, began, []store.Decision[D]{w})
		applied = err == nil && some[0]
		return errors.Join(err, refused[0])
	})
	return applied, err
}

// Several is [Decider.One] for decisions about some documents, which are to be small. It does not
// wait: refused has, by index, [store.ErrHeld] for documents that another client holds.
func (d *Decider[D]) Several(ctx context.Context, began clock.Instant, writes []store.Decision[D]) (applied []bool, refused map[int]error, err error) {
	v := d.portion(ctx, began, writes)
	if v.err != nil {
		return nil, nil, v.err
	}
	if done := d.rest(ctx, began, v.sent); len(done) > 0 {
		d.remove(ctx, done)
	}
	if slices.Contains(v.applied, true) {
		d.heard.ofDecision()
	}
	return v.applied, v.refused, nil
}

// Decided carries out at once what new documents plan, which a caller has just stored. began is when
// the caller began. left are those of which something is not carried out: they wait for a sweep.
func (d *Decider[D]) Decided(ctx context.Context, began clock.Instant, docs ...D) (left []D) {
	from := 0
	for _, some := range portions(docs, d.Planner.PlannedBytes) {
		held, err := d.decided(ctx, began, some)
		if err != nil {
			d.later(err)
			return append(left, docs[from:]...)
		}
		from += len(some)
		for _, doc := range some {
			if held[d.Documents.ID(doc)] != nil {
				left = append(left, doc)
			}
		}
	}
	if len(docs) > 0 {
		d.heard.ofDecision()
	}
	return left
}

func (d *Decider[D]) decided(ctx context.Context, began clock.Instant, docs []D) (held map[string]error, err error) {
	ctx, cancel := throughStop(ctx)
	defer cancel()
	docs, err = d.unlessFrozen(ctx, began, docs)
	if err != nil {
		return nil, err
	}
	s, err := d.send(ctx, docs)
	if err != nil {
		return nil, err
	}
	if done := d.rest(ctx, began, s); len(done) > 0 {
		d.remove(ctx, done)
	}
	return s.held, nil
}

// verdict is what became of a portion of decisions.
type verdict[D any] struct {
	applied []bool        // of each: it was written
	refused map[int]error // by index: why the server refuses it, which concerns its own document alone
	sent    sent[D]       // the documents of which something is still to be carried out
	err     error         // nothing is known of those that are not applied
}

// All writes decisions and carries out those that were applied, portion by portion. All tasks
// are sent before the rest follows: somebody may wait for them. What cannot be carried out now
// stays planned, for whoever looks next. began is when the documents were about to be read.
func (d *Decider[D]) All(ctx context.Context, began clock.Instant, writes []store.Decision[D]) (applied []bool, refused map[int]error, err error) {
	parts := portions(writes, func(w store.Decision[D]) int { return d.Planner.PlannedBytes(w.After) })
	verdicts := make([]verdict[D], len(parts))
	var failed atomic.Bool
	eachAtOnce(len(parts), func(i int) {
		if failed.Load() {
			return // it is decided when somebody looks again
		}
		verdicts[i] = d.portion(ctx, began, parts[i])
		if verdicts[i].err != nil {
			failed.Store(true)
		}
	})
	for part, v := range verdicts {
		d.dropped(parts[part], v.applied)
	}
	done := make([][]D, len(parts))
	eachAtOnce(len(parts), func(i int) { done[i] = d.rest(ctx, began, verdicts[i].sent) })
	for _, docs := range done {
		d.carriedOut(docs)
	}
	refused = map[int]error{}
	for part, v := range verdicts {
		err = errors.Join(err, v.err)
		for i, why := range v.refused {
			refused[len(applied)+i] = why
			d.Complain(d.Documents.ID(parts[part][i].After), why)
		}
		applied = append(applied, v.applied...)
	}
	if err != nil {
		return nil, nil, err
	}
	return applied, refused, nil
}

func eachAtOnce(n int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(atOnce, n) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}

// throughStop is a context for one portion of decisions, from the first write to the last: it
// lasts for callTimeout, and when ctx ends for stopPatience at most.
func throughStop(ctx context.Context) (context.Context, context.CancelFunc) {
	through, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	stop := context.AfterFunc(ctx, func() {
		clock.Pause(through, stopPatience)
		cancel()
	})
	return through, func() {
		stop()
		cancel()
	}
}

// portion writes decisions and sends the tasks of those that were applied.
func (d *Decider[D]) portion(ctx context.Context, began clock.Instant, writes []store.Decision[D]) (v verdict[D]) {
	if v.err = ctx.Err(); v.err != nil {
		return v // it stops: nothing more is decided
	}
	fresh, read := context.WithTimeout(ctx, callTimeout)
	v.err = d.Types.Fresh(fresh, tasktypes.MaxAge)
	if read(); v.err != nil {
		return v
	}
	ctx, cancel := throughStop(ctx)
	defer cancel()
	spans := d.begin(ctx, writes)
	if v.applied, v.refused, v.err = d.write(ctx, writes); store.Classify(v.err) == store.Ambiguous {
		var err error
		if v.applied, err = d.appliedAfterAll(ctx, writes); err != nil {
			return v
		}
		if !slices.Contains(v.applied, false) {
			v.err = nil
		}
	} else if v.err != nil {
		return v
	}
	var decided []D
	for i, w := range writes {
		if v.applied[i] {
			decided = append(decided, w.After)
			d.measure(w)
		}
	}
	decided, err := d.unlessFrozen(ctx, began, decided)
	if err == nil {
		v.sent, err = d.send(ctx, decided)
	}
	if err != nil {
		v.sent = sent[D]{}
		d.later(err)
	}
	for i, end := range spans {
		if v.applied[i] && end != nil {
			end(err)
		}
	}
	return v
}

// appliedAfterAll looks which decisions were applied though their write got no answer: each would be nobody's until
// a sweep finds it. It looks again for a moment, until a majority has all of them.
func (d *Decider[D]) appliedAfterAll(ctx context.Context, writes []store.Decision[D]) (applied []bool, err error) {
	for pause := majorityLag; ; pause *= 2 {
		applied, err = d.Documents.Applied(ctx, writes)
		if err != nil || !slices.Contains(applied, false) || pause > 8*majorityLag || !clock.Pause(ctx, pause) {
			return applied, err
		}
	}
}

// begin begins the spans of decisions. Those of decisions that are not written never end, so nobody sees
// them.
func (d *Decider[D]) begin(ctx context.Context, writes []store.Decision[D]) []func(error) {
	if d.Begin == nil {
		return nil
	}
	now := d.Store.Clock.Now()
	spans := make([]func(error), len(writes))
	for i, w := range writes {
		spans[i] = d.Begin(ctx, w, now)
	}
	return spans
}

// measure measures a decision that was written.
func (d *Decider[D]) measure(w store.Decision[D]) {
	at, now := d.Planner.DueAt(w.Before), d.Store.Clock.Now()
	if !at.IsZero() && at.Before(now) && !at.Equal(d.Planner.DueAt(w.After)) {
		d.Store.Measure.Lateness.Of(d.Planner.Kind()).Observe(now.Sub(at))
	}
	if d.Count != nil {
		d.Count(w)
	}
}

// write writes decisions, but for those that this process cannot complete.
func (d *Decider[D]) write(ctx context.Context, writes []store.Decision[D]) (applied []bool, refused map[int]error, err error) {
	now, mark := d.Store.Clock.Now(), input.Random() // decisions that are written together share it, so that equal ones are one write
	cannot := map[int]error{}
	var ready []store.Decision[D]
	var of []int
	for i, w := range writes {
		d.Documents.Mark(w, mark)
		if err := d.Planner.Complete(w, now); err != nil {
			cannot[i] = err
			continue
		}
		ready, of = append(ready, w), append(of, i)
	}
	if len(cannot) == 0 {
		return d.Documents.Write(ctx, writes)
	}
	applied = make([]bool, len(writes))
	some, refusals, err := d.Documents.Write(ctx, ready)
	for i, yes := range some {
		applied[of[i]] = yes
	}
	for i, why := range refusals {
		cannot[of[i]] = why
	}
	return applied, cannot, err
}

// unlessFrozen returns the documents, or, where this process stood still since they were about to
// be read, what they are now: what it is about to do may have been done, and be over, long ago,
// so only what is still planned counts.
func (d *Decider[D]) unlessFrozen(ctx context.Context, began clock.Instant, docs []D) ([]D, error) {
	if began.Since(d.Store.Local()) <= frozen {
		return docs, nil
	}
	ids := make([]string, len(docs))
	for i, doc := range docs {
		ids[i] = d.Documents.ID(doc)
	}
	found, err := d.Documents.ByIDs(ctx, ids)
	current := docs[:0:0]
	for _, doc := range found {
		if !isNil(doc) {
			current = append(current, doc)
		}
	}
	return current, err
}

// rest does what is left after the tasks, and returns the documents whose plans are carried out. A
// process that stood still leaves it to others.
func (d *Decider[D]) rest(ctx context.Context, began clock.Instant, s sent[D]) (done []D) {
	if len(s.docs) == 0 || began.Since(d.Store.Local()) > frozen {
		return nil
	}
	ctx, cancel := throughStop(ctx)
	defer cancel()
	done, err := d.finish(ctx, &s)
	if err != nil {
		d.later(err)
	}
	return done
}

func (d *Decider[D]) later(err error) {
	d.Log.Warn().Err(err).Msg("could not apply decisions; retrying")
}

// Complain tells the operator of a document that this process cannot handle, not at every look.
func (d *Decider[D]) Complain(id string, err error) {
	switch again := d.complained.Again(id, d.Store.Local()); {
	case again && errors.Is(err, store.ErrHeld):
		d.Log.Warn().Err(err).Str("document_id", id).Msg("decisions about this document wait for another client's transaction; other documents are not affected")
	case again:
		d.Log.Error().Err(err).Str("document_id", id).Msg("cannot read this document, or the database refused a decision about it; other documents are not affected")
	}
}
