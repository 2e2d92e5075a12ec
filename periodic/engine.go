package periodic

import (
	"context"
	"hash/fnv"
	"os"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/outcome"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	// look is how often an engine looks for due rules when it knows of none: rules are
	// enabled by other processes, too.
	look = time.Second
	// perLook is how many rules it reads at a time.
	perLook = 1000
	// yieldTime is how long the others leave a rule to the engine whose turn it is.
	yieldTime = 400 * time.Millisecond
	// slow is after what time a decision that is not seen to be carried out is somebody
	// else's: its process died, or froze.
	slow        = 10 * time.Second
	callTimeout = 20 * time.Second
	// engineType is what engines call themselves among the workers.
	engineType = "mscheduler.periodic"
)

// rank is this engine's place among those that are alive.
type rank struct{ place, of int }

// Run is the engine: it decides ticks until ctx ends, then returns nil. Any number of
// processes may run one. A server that is down is waited for; it returns an error for what
// no waiting mends, such as a schema of another release.
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
	if err := p.store.RemoveWorker(last, p.id); err != nil {
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
		sleep(ctx, wait)
	}
}

// beat tells that this engine is alive, reads the database's clock, and learns its rank.
func (p *Periodic) beat(ctx context.Context) error {
	host, _ := os.Hostname()
	err := p.store.Heartbeat(ctx, store.Worker{ID: p.id, Host: host, PID: os.Getpid(), Types: []string{engineType}, Stream: "off"})
	if err != nil {
		return err
	}
	workers, err := p.store.Workers(ctx)
	if err != nil {
		return err
	}
	now := p.store.Clock.Now()
	var engines []string
	for _, w := range workers {
		if slices.Contains(w.Types, engineType) && w.Alive(now) {
			engines = append(engines, w.ID)
		}
	}
	slices.Sort(engines)
	p.mu.Lock()
	p.rank = rank{place: max(slices.Index(engines, p.id), 0), of: max(len(engines), 1)}
	p.mu.Unlock()
	return nil
}

// turn says whether it is this engine's turn to decide the rule, or the others have had
// their time.
func (p *Periodic) turn(r *model.Rule, now time.Time) bool {
	p.mu.Lock()
	k := p.rank
	p.mu.Unlock()
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.ID))
	return int(h.Sum32()%uint32(max(k.of, 1))) == k.place || now.Sub(r.NextFireAt) > yieldTime
}

// ticksLoop decides what is due, at its time.
func (p *Periodic) ticksLoop(ctx context.Context) {
	lastBeat, lastSweep := p.store.Local().Monotonic(), time.Duration(0)
	for ctx.Err() == nil {
		began := p.store.Local().Monotonic()
		pause, err := p.decideDue(ctx)
		if err == nil && began-lastSweep >= slow/2 {
			lastSweep = began
			err = p.sweepPlanned(ctx)
		}
		if err == nil && began-lastBeat >= store.HeartbeatInterval {
			lastBeat = began
			call, cancel := context.WithTimeout(ctx, callTimeout)
			err = p.beat(call)
			cancel()
		}
		if err != nil && ctx.Err() == nil {
			if !store.Unreachable(err) {
				p.log.Error().Err(err).Msg("deciding ticks")
			}
			pause = look
		}
		sleep(ctx, pause)
	}
}

// decideDue decides all that is due and says when to look again.
func (p *Periodic) decideDue(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	entered := p.store.Local().Monotonic()
	for {
		if p.store.Local().Monotonic()-entered > look {
			return 0, nil // a backlog: the engine must tell that it lives, too
		}
		began, now := clock.Read(p.store.Local()), p.store.Clock.Now()
		due, err := p.store.DueRules(ctx, now, 0, perLook)
		if err != nil {
			return 0, err
		}
		var writes []store.RuleWrite
		others, stays := false, false
		for _, r := range due {
			if !p.turn(r, now) {
				others = true
				continue
			}
			cal, err := p.calendarOf(r)
			if err != nil { // of a later release, or written by hand
				p.log.Error().Err(err).Str("rule_id", r.ID).Msg("the times of a rule cannot be read")
				stays = true
				continue
			}
			if after := Plan(r, cal, now); after != nil {
				writes = append(writes, store.RuleWrite{Before: r, After: after})
			} else {
				stays = true
			}
		}
		if _, err := p.decideAll(ctx, began, writes); err != nil {
			return 0, err
		}
		switch {
		case stays && len(writes) == 0:
			return look, nil // to look at once would find the same
		case len(due) == perLook && len(writes) > 0:
			continue
		case others:
			return yieldTime / 4, nil
		case len(writes) > 0: // there may be more of them by now
			continue
		}
		next, err := p.store.NextFire(ctx)
		if err != nil || next.IsZero() {
			return look, err
		}
		return min(max(next.Sub(p.store.Clock.Now()), time.Millisecond), look), nil
	}
}

// sweepPlanned carries out what was decided and left: its process died, or froze.
func (p *Periodic) sweepPlanned(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rules, err := p.store.PlannedRules(ctx, p.store.Clock.Now().Add(-slow), perLook)
	if err != nil || len(rules) == 0 {
		return err
	}
	return p.carryOut(ctx, rules)
}

// endsLoop tells the rules of runs that ended. One engine does it for all, by a permit.
func (p *Periodic) endsLoop(ctx context.Context) {
	runner := outcome.New(p.store, p.log, ends{p})
	defer runner.Close()
	const lease = 10 * time.Second
	mine, asked := false, time.Duration(0)
	for ctx.Err() == nil {
		if now := p.store.Local().Monotonic(); asked == 0 || now-asked > lease/3 {
			call, cancel := context.WithTimeout(ctx, callTimeout)
			got, err := p.store.TakeJob(call, "periodic", p.id, lease)
			cancel()
			mine, asked = err == nil && got, now
		}
		pause := look
		if mine {
			call, cancel := context.WithTimeout(ctx, callTimeout)
			found, err := runner.Sweep(call, 0)
			cancel()
			if found > 0 {
				pause = look / 10 // more will end
			}
			if err != nil && ctx.Err() == nil && !store.Unreachable(err) {
				p.log.Error().Err(err).Msg("telling rules that their runs ended")
			}
		}
		sleep(ctx, pause)
	}
	if mine {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if err := p.store.LeaveJob(last, "periodic", p.id); err != nil {
			p.log.Debug().Err(err).Msg("giving the permit for ended runs back")
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
