package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mscheduler/mscheduler/producer"
)

// producer is the part's, made when it is first wanted and closed at the end.
func (r *run) producer() (*producer.Producer, error) {
	if r.sender != nil {
		return r.sender, nil
	}
	p, err := producer.New(producer.Config{Database: r.db.DB, Clock: r.cfg.Clock})
	if err == nil {
		r.sender = p
		r.closes = append(r.closes, p.Close)
	}
	return p, err
}

// args are those of each task, of the size that was asked for.
func (r *run) args() args { return args{Pad: strings.Repeat("x", r.cfg.ArgsBytes)} }

// send stores n tasks with one SendMany.
func (r *run) send(ctx context.Context, n int, opts ...producer.Option) error {
	p, err := r.producer()
	if err != nil {
		return err
	}
	items := slices.Repeat([]producer.Item[args]{{Args: r.args(), Options: opts}}, n)
	_, err = producer.SendMany(ctx, p, noop, items)
	return err
}

// backlog stores tasks.
func (r *run) backlog(ctx context.Context, n int, opts ...producer.Option) error {
	show := r.progress("sending")
	return inTurn(ctx, n, chunk, 1, func(ctx context.Context, from, to int) error {
		defer show(to, n)
		return r.send(ctx, to-from, opts...)
	})
}

// chunk is how many documents are stored at once where that is not measured.
const chunk = 5000

// inTurn cuts n things into pieces of a size and does them in turn, by that many workers. The
// first error ends it.
func inTurn(ctx context.Context, n, size, workers int, do func(ctx context.Context, from, to int) error) error {
	pieces, going := errgroup.WithContext(ctx)
	pieces.SetLimit(workers)
	for from := 0; from < n && going.Err() == nil; from += size {
		pieces.Go(func() error { return do(going, from, min(from+size, n)) })
	}
	err := pieces.Wait()
	return cmp.Or(context.Cause(ctx), err)
}

// outstanding is how many tasks a steady load has under way: enough for full batches, and
// few enough that the queue stays short.
const outstanding = 4 * fullBatch

// feed keeps the number of tasks under way until ctx ends.
func (r *run) feed(ctx context.Context) error {
	for sent := int64(0); ctx.Err() == nil; { // sends that its end cuts off do not matter
		free := 0
		err := r.crew.Await(ctx, func() bool {
			free = outstanding - int(sent-r.crew.sum().Finished)
			return free >= fullBatch/2
		})
		if err == nil {
			n := min(free, fullBatch)
			err = r.send(ctx, n)
			sent += int64(n)
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("keeping the load up: %w", err)
		}
	}
	return nil
}

// beside carries out f while the jobs run, which end when it does. The error of a job ends f.
func beside(ctx context.Context, f func(context.Context) error, jobs ...func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	failed := make(chan error, len(jobs))
	for _, job := range jobs {
		go func() {
			err := job(ctx)
			if err != nil {
				stop(err)
			}
			failed <- err
		}()
	}
	errs := []error{f(ctx)}
	stop(nil)
	for range jobs {
		if err := <-failed; !errors.Is(errs[0], err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// span is what the workers did for a while.
type span struct {
	spent
	fetches []fetch
}

// span measures the steady load until over reports that enough time has passed, and that enough
// tasks have ended meanwhile.
func (r *run) span(ctx context.Context, over func(passed time.Duration, ended int64) (bool, error)) (s span, err error) {
	var before, ended int64
	r.crew.Look(func() { before, r.crew.fetches = r.crew.sum().Finished, nil })
	began, cpu := r.cfg.Clock.Monotonic(), cpuTime()
	for done := false; !done && err == nil; {
		if err = pause(ctx, 20*time.Millisecond); err == nil {
			err = r.crew.Await(ctx, func() bool { return true }) // no worker has ended by itself
		}
		if err == nil {
			r.crew.Look(func() { ended = r.crew.sum().Finished - before })
			done, err = over(r.cfg.Clock.Monotonic()-began, ended)
		}
	}
	s.took, s.cpu = r.cfg.Clock.Monotonic()-began, cpuTime()-cpu
	r.crew.Look(func() { s.tasks, s.fetches = int(r.crew.sum().Finished-before), r.crew.fetches })
	return s, err
}
