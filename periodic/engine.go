package periodic

import (
	"context"
	"errors"
	"hash/fnv"
	"os"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/outcome"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

const (
	// look is how often an engine looks for due rules when it knows of none: rules are
	// enabled by other processes, too.
	look = time.Second
	// perLook is how many due rules it reads at a time, and perSweep how many with plans that
	// somebody left, which may be large.
	perLook, perSweep = 500, 100
	// yieldTime is how long the others leave a rule to the engine whose turn it is. Then
	// each has its turn for a while, in a backlog for longer.
	yieldTime = 400 * time.Millisecond
	shortTurn = yieldTime / 2
	longTurn  = 5 * yieldTime
	backlog   = 10 * yieldTime
	// slow is after what time a decision that is not seen to be carried out is somebody
	// else's: its process died, or froze.
	slow        = 10 * time.Second
	callTimeout = 20 * time.Second
	// longestPace bounds how much later a rule is decided, or told of an end, where the
	// database answers slowly. It is shorter than the permit of the ends.
	longestPace = 3 * time.Second
)

// rank is this engine's place among those that are alive.
type rank struct{ place, of int }

// Run is the engine: it decides ticks until ctx ends, and then returns nil. Before it returns it
// applies the decisions that it has made, for at most five seconds. Any number of processes may
// run an engine. Run waits for a server that is down, and returns an error that waiting cannot
// fix, such as the schema of another release.
func (p *Periodic) Run(ctx context.Context) error {
	if err := p.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	ends := make(chan struct{})
	go func() {
		defer close(ends)
		p.endsLoop(ctx)
	}()
	p.ticksLoop(ctx)
	<-ends
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := p.store.Workers.Remove(last, p.id); err != nil {
		p.log.Debug().Err(err).Msg("removing the engine's document")
	}
	return nil
}

// start waits until the database can be worked on.
func (p *Periodic) start(ctx context.Context) error {
	for wait := time.Second; ; wait = min(2*wait, 10*time.Second) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := p.store.Ready(call)
		if err == nil {
			err = p.beat(call)
		}
		cancel()
		if err == nil || ctx.Err() != nil || store.Classify(err) == store.Fatal {
			return err
		}
		p.log.Warn().Err(err).Msg("the engine waits for the database")
		clock.Pause(ctx, wait)
	}
}

// beat tells that this engine is alive, reads the database's clock, and learns its rank.
func (p *Periodic) beat(ctx context.Context) error {
	host, _ := os.Hostname()
	err := p.store.Workers.Heartbeat(ctx, store.Worker{ID: p.id, Host: host, PID: os.Getpid(), Types: []string{tickplan.EngineType}, Stream: "off"})
	if err != nil {
		return err
	}
	workers, err := p.store.Workers.List(ctx)
	if err != nil {
		return err
	}
	now := p.store.Clock.Now()
	var engines []string
	for _, w := range workers {
		if slices.Contains(w.Types, tickplan.EngineType) && w.Alive(now) {
			engines = append(engines, w.ID)
		}
	}
	slices.Sort(engines)
	p.mu.Lock()
	p.rank = rank{place: max(slices.Index(engines, p.id), 0), of: max(len(engines), 1)}
	p.mu.Unlock()
	return nil
}

// turn says whether it is this engine's turn to decide a rule that is so late. The first is
// always the same; what it has not decided in its time is the next engine's, and so on: also
// when all are late, no two work on the same rules.
func (k rank) turn(ruleID string, late time.Duration) bool {
	n := 0 // of turns that are over
	switch {
	case late >= backlog:
		n = int(late / longTurn)
	case late >= yieldTime:
		n = 1 + int((late-yieldTime)/shortTurn)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(ruleID))
	return int((uint64(h.Sum32())+uint64(n))%uint64(max(k.of, 1))) == k.place
}

func (p *Periodic) turn(ruleID string, late time.Duration) bool {
	p.mu.Lock()
	k := p.rank
	p.mu.Unlock()
	return k.turn(ruleID, late)
}

// ticksLoop decides what is due, at its time.
func (p *Periodic) ticksLoop(ctx context.Context) {
	lastBeat, lastSweep := p.store.Local().Monotonic(), time.Duration(0)
	for ctx.Err() == nil {
		began := p.store.Local().Monotonic()
		pause, err := p.decideDue(ctx)
		decided := p.store.Local().Monotonic()
		// What is wrong with one thing does not keep the engine from the others; a server
		// that is away does.
		if began-lastSweep >= slow/2 && !store.Outage(err) {
			lastSweep = began
			err = errors.Join(err, p.sweepPlanned(ctx))
		}
		if began-lastBeat >= store.HeartbeatInterval && !store.Outage(err) {
			lastBeat = began
			call, cancel := context.WithTimeout(ctx, callTimeout)
			err = errors.Join(err, p.beat(call))
			cancel()
		}
		if err != nil && ctx.Err() == nil {
			if !store.Outage(err) {
				p.log.Error().Err(err).Msg("deciding ticks")
			}
			pause = look
		}
		// What was done since then does not make the next tick late.
		clock.Pause(ctx, max(pause-(p.store.Local().Monotonic()-decided), 0))
	}
}

// decideDue decides all that is due and says when to look again.
func (p *Periodic) decideDue(ctx context.Context) (time.Duration, error) {
	entered := p.store.Local().Monotonic()
	others := false
	for skip := 0; ; {
		if p.store.Local().Monotonic()-entered > look {
			return 0, nil // a backlog: the engine must tell that it lives, too
		}
		began, now := clock.Read(p.store.Local()), p.store.Clock.Now()
		var due []*schedule.Rule
		var unread []store.Unreadable
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := p.looks.Do(func() (err error) {
			due, unread, err = p.store.Rules.Due(call, now, skip, perLook)
			return err
		})
		cancel()
		if err != nil {
			return 0, err
		}
		for _, u := range unread {
			p.complain(u.ID, u.Err)
		}
		writes, refused, left, err := p.decideRules(ctx, began, due, now)
		if err != nil {
			return 0, err
		}
		others = others || left.others > 0
		if len(due)+len(unread) == perLook { // what stays is at the head, and may be much
			skip += left.others + left.stays + len(unread) + len(refused)
			continue
		}
		for i, w := range writes {
			if refused[i] == nil && w.After.Status == schedule.StatusOnline && !w.After.NextFireAt.After(now) {
				return 0, nil // more than one decision holds
			}
		}
		call, cancel = context.WithTimeout(ctx, callTimeout)
		next, err := p.store.Rules.NextFire(call, now)
		cancel()
		if err != nil {
			return 0, err
		}
		pause := max(look, p.looks.Left())
		if !next.IsZero() {
			pause = min(pause, max(next.Sub(p.store.Clock.Now()), time.Millisecond))
		}
		if others {
			pause = min(pause, yieldTime/4)
		}
		return pause, nil
	}
}

// undecided counts due rules that this engine does not decide now.
type undecided struct {
	others int // it is another engine's turn
	stays  int // nothing can be decided: what is planned must go out first, or it cannot be read
}

// decideRules decides about those of the due rules whose turn it is, and carries that out.
func (p *Periodic) decideRules(ctx context.Context, began clock.Instant, due []*schedule.Rule, now time.Time) (writes []store.RuleWrite, refused map[int]error, left undecided, err error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	ends, err := p.endsNotTold(call, due, now)
	var begun map[string]bool
	if err == nil {
		begun, err = p.begun(call, p.mine(due, now))
	}
	cancel()
	if err != nil {
		return nil, nil, left, err
	}
	if later := p.store.Clock.Now(); later.After(now) {
		now = later // what starts because something has ended starts after that
	}
	writes, left = p.planAll(due, ends, begun, now)
	applied, refused, err := p.decideAll(ctx, began, writes)
	if err == nil {
		p.forget(ctx, writes, applied, ends)
	}
	return writes, refused, left, err
}

// mine are the due rules whose turn it is at this engine.
func (p *Periodic) mine(due []*schedule.Rule, now time.Time) (out []*schedule.Rule) {
	for _, r := range due {
		if p.turn(r.ID, now.Sub(r.NextFireAt)) {
			out = append(out, r)
		}
	}
	return out
}

// planAll plans for those of the due rules whose turn it is: the ends of runs that they were
// not told, and then their ticks.
func (p *Periodic) planAll(due []*schedule.Rule, ends map[string][]store.OutboxLife, begun map[string]bool, now time.Time) (writes []store.RuleWrite, left undecided) {
	for _, r := range due {
		if !p.turn(r.ID, now.Sub(r.NextFireAt)) {
			left.others++
			continue
		}
		cal, err := p.calendarOf(r)
		if err != nil { // of a later release, or written by hand
			p.complain(r.ID, err)
			left.stays++
			continue
		}
		known := tickplan.Begun(r, begun)
		after := known
		if !tickplan.Heavy(r) { // else what is planned must go out first
			after, _ = tell(known, ends[r.ID], now)
		}
		if planned := tickplan.Plan(after, cal, now); planned != nil {
			after = planned
		}
		if after != known {
			writes = append(writes, store.RuleWrite{Before: r, After: after})
		} else {
			left.stays++
		}
	}
	return writes, left
}

// complainEvery is how often the log says the same about a rule.
const complainEvery = time.Minute

// complain tells the operator of a rule that this engine cannot handle, not at every look.
func (p *Periodic) complain(ruleID string, err error) {
	now := p.store.Local().Monotonic()
	p.mu.Lock()
	last, known := p.complained[ruleID]
	if quiet := known && now-last < complainEvery; !quiet {
		p.complained[ruleID] = now
		defer p.log.Error().Err(err).Str("rule_id", ruleID).Msg("a rule cannot be read, or what was decided about it is refused; the others go on")
	}
	if len(p.complained) > 10_000 { // of rules that are long gone
		clear(p.complained)
	}
	p.mu.Unlock()
}

// sweepPlanned carries out what was decided and left: its process died, or froze.
func (p *Periodic) sweepPlanned(ctx context.Context) error {
	for skip := 0; ; {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		began, now := clock.Read(p.store.Local()), p.store.Clock.Now()
		rules, unread, err := p.store.Rules.Planned(call, now.Add(-slow), skip, perSweep)
		cancel()
		if err != nil || len(rules)+len(unread) == 0 {
			return err
		}
		for _, u := range unread {
			p.complain(u.ID, u.Err)
		}
		var mine []*schedule.Rule
		for _, r := range rules {
			if late := now.Sub(r.PlannedAt) - slow; late > slow || p.turn(r.ID, 0) {
				mine = append(mine, r)
			}
		}
		others := len(rules) - len(mine)
		if mine, err = p.unlessFrozen(ctx, began, mine); err != nil {
			return err
		}
		stuck, err := p.carryOut(ctx, mine)
		if err != nil && stuck == 0 || len(rules)+len(unread) < perSweep {
			return err
		}
		if err != nil {
			p.log.Error().Err(err).Msg("deciding ticks")
		}
		skip += stuck + others + len(unread)
	}
}

// betweenTicks is how long it is until the middle of a second. Ticks come in whole ones: an
// end that is told to a rule while its tick is decided makes that decision void, and the
// tick later by another one.
func betweenTicks(now time.Time) time.Duration {
	d := now.Truncate(time.Second).Add(time.Second / 2).Sub(now)
	if d <= 0 {
		d += time.Second
	}
	return d
}

// endsLoop tells the rules of runs that ended. One engine does it for all, by a permit.
func (p *Periodic) endsLoop(ctx context.Context) {
	runner := outcome.New(p.store, p.log, ends{p})
	defer runner.Close()
	const lease = 10 * time.Second
	sweeps := clock.NewPacer(p.store.Local(), 0, longestPace)
	mine, asked, lost := false, time.Duration(0), -lostEvery
	wait, looked := false, -look // whether runs of any rule wait, whoever decided that
	for ctx.Err() == nil {
		if now := p.store.Local().Monotonic(); asked == 0 || now-asked > lease/3 {
			call, cancel := context.WithTimeout(ctx, callTimeout)
			got, err := p.store.Turns.Take(call, "periodic", p.id, lease)
			cancel()
			mine, asked = err == nil && got, now
		}
		pause := betweenTicks(p.store.Clock.Now())
		if mine {
			var found int
			call, cancel := context.WithTimeout(ctx, callTimeout)
			err := sweeps.Do(func() (err error) {
				found, err = runner.Sweep(call, 0)
				return err
			})
			cancel()
			if left := sweeps.Left(); left > pause && found == 0 {
				pause = left + betweenTicks(p.store.Clock.Now().Add(left))
			}
			now, reached := p.store.Local().Monotonic(), err == nil
			if reached && now-lost >= lostEvery {
				lost = now
				err = p.sweepLost(ctx)
			}
			if reached && now-looked >= look*9/10 { // the loop's seconds are not quite a second
				looked = now
				var unknown error
				wait, unknown = p.runsWait(ctx)
				err = errors.Join(err, unknown)
			}
			if found > 0 || wait {
				pause = look / 10 // more will end
			}
			if err != nil && ctx.Err() == nil && !store.Outage(err) {
				p.log.Error().Err(err).Msg("telling rules that their runs ended")
			}
		}
		clock.Pause(ctx, pause)
	}
	if mine {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := p.store.Turns.Leave(last, "periodic", p.id); err != nil {
			p.log.Debug().Err(err).Msg("giving the permit for ended runs back")
		}
	}
}
