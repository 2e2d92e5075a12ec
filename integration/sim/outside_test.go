package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mscheduler/mscheduler/internal/promises"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
)

// Executions that end from outside: those of workers that pull, and parked ones, by their handles.

// parksFor is how long an execution waits for its completion, which may come later.
const parksFor = 5 * time.Second

// pulls has a process fetch tasks for a worker of another language, until the process ends.
func (p *process) pulls(ctx context.Context) {
	puller, name := pull.New(p.producer), p.name+"-pulls"
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, 10*time.Second)
		got, err := puller.Fetch(call, pull.FetchRequest{WorkerID: name, Types: []string{pulled}, Max: 2})
		cancel()
		if err != nil || p.dead.Load() {
			got = nil
		}
		for _, f := range got {
			p.work.Go(func() { p.pulled(ctx, puller, f) })
		}
		select {
		case <-time.After(p.draw.between(time.Second, 5*time.Second)):
		case <-ctx.Done():
		}
	}
}

// pulled is one execution of such a worker. It stops when its lease is over, by the database's clock, unless it is deaf.
func (p *process) pulled(ctx context.Context, puller *pull.Puller, f pull.Fetched) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	lapse := time.AfterFunc(f.Until.Sub(p.w.db.now()), stop)
	defer lapse.Stop()
	x := &execution{p: p, ctx: ctx, task: f.Task.ID, typ: pulled, token: f.Token, Execution: promises.Execution{Name: f.Handle, Began: time.Now()}}
	p.w.note(p.name, "pulls %s, try %d, token %v", x.task, f.Task.Attempt, f.Token)
	if ctx.Err() == nil {
		p.w.run(x)
	} else {
		p.w.runsLate(x)
	}
	deaf := p.draw.of(0.15)
	for left := p.draw.between(0, 8*time.Second); left > 0 && (deaf || ctx.Err() == nil); left -= f.PingInterval {
		time.Sleep(min(left, f.PingInterval))
		if deaf {
			continue
		}
		pinged, err := puller.Ping(ctx, f.Handle)
		switch {
		case errors.Is(err, model.ErrFenced):
			stop()
		case err == nil && ctx.Err() == nil:
			lapse.Reset(pinged.Until.Sub(p.w.db.now()))
		}
	}
	var err error
	end, say := func(ctx context.Context) (*model.Task, error) { return puller.Complete(ctx, f.Handle, x.Name) }, "completes "
	switch p.draw.below(6) {
	case 0:
		err = fmt.Errorf("the %d. try fails", f.Task.Attempt)
		end, say = func(ctx context.Context) (*model.Task, error) {
			return puller.Fail(ctx, f.Handle, err.Error(), producer.Failure{})
		}, "fails "
	case 1:
		err = errGivenBack
		end, say = func(ctx context.Context) (*model.Task, error) {
			return puller.GiveBack(ctx, f.Handle, "no time")
		}, "gives back "
	}
	p.w.ends(x, err)
	p.ends(x, say, end)
}

var errGivenBack = errors.New("given back")

// completesLater completes a parked execution, in time or too late.
func (p *process) completesLater(x *execution, handle string) {
	p.work.Go(func() {
		time.Sleep(p.draw.between(0, parksFor*3/2))
		p.ends(x, "completes ", func(ctx context.Context) (*model.Task, error) { return p.producer.Complete(ctx, handle, x.Name) })
	})
}

// ends sends the end of an execution until it is answered, and notes the answer.
func (p *process) ends(x *execution, say string, end func(ctx context.Context) (*model.Task, error)) {
	tries := 0
	p.sure(say+x.task, func(ctx context.Context) error {
		tries++
		t, err := end(ctx)
		p.w.saw(t)
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		switch {
		case err == nil:
			x.accepted = x.Err == ""
		case errors.Is(err, model.ErrFenced):
			x.fenced = tries == 1 // otherwise an earlier try may have been carried out, and a new life has begun
		default:
			x.unsure = true
			return err
		}
		return nil
	})
}

// checkOutside: of the ends of a life that were accepted, one at most is a success, and it is the result; what was
// refused is not. The handle of an execution names it.
func (w *world) checkOutside(t *model.Task) {
	result, _ := t.Result.StringValueOK()
	accepted := 0
	for _, x := range w.ran[t.ID] {
		if x.life() != lifeOf(t) {
			continue
		}
		if x.accepted {
			accepted++
			if !t.Status.Succeeded() || result != x.Name {
				w.violated("the success of %s on %s was accepted, and the task is %s with the result %q", t.ID, x.p.name, t.Status, result)
			}
		}
		if x.fenced && t.Status.Succeeded() && result == x.Name {
			w.violated("the success of %s on %s was refused, and is its result", t.ID, x.p.name)
		}
	}
	if accepted > 1 {
		w.violated("%d successes of %s were accepted", accepted, t.ID)
	}
}

// secretKey seals the keys of callbacks.
const secretKey = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
