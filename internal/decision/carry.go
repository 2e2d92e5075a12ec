package decision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	// perInsert is how many tasks go out in one command.
	perInsert = 1000
	// perSweep is how many documents with plans that somebody left are read at a time: they may
	// be large.
	perSweep = 100
	// portionBytes is how much is decided, or carried out, at a time: about two hundred small
	// tasks.
	portionBytes = 128 << 10
	// Slow is after what time a decision that is not seen to be carried out is somebody else's:
	// its process died, or froze.
	Slow = 10 * time.Second
	// lazily is how long what was carried out may stay planned, and an end that was told in its
	// task's outbox. It is far below Slow.
	lazily = 3 * time.Second
)

// portions cuts a list so that no part plans more than that, or is of one document. After an
// outage each document may have a hundred tasks to send: all of them at once would take longer
// than a call may, and the next who tried would begin at the beginning again.
func portions[T any](all []T, size func(T) int) (out [][]T) {
	from, bytes := 0, 0
	for i, x := range all {
		n := size(x)
		if i > from && bytes+n > portionBytes {
			out = append(out, all[from:i])
			from, bytes = i, 0
		}
		bytes += n
	}
	if from < len(all) {
		out = append(out, all[from:])
	}
	return out
}

// sent is a portion whose tasks are sent.
type sent[D any] struct {
	docs []D
	held map[string]error // by id: documents with a plan that cannot be carried out now, and why
}

// send sends the tasks of a portion. They come before all else: a record without its task would
// look like a run that nobody started.
func (d *Decider[D]) send(ctx context.Context, docs []D) (sent[D], error) {
	ctx, end := context.WithTimeout(ctx, callTimeout)
	defer end()
	s := sent[D]{docs: docs, held: map[string]error{}}
	var tasks []*model.Task
	var of []D // a task's document
	again := false
	for _, doc := range docs {
		from := d.Planner.Trace(doc)
		planned := d.Planner.Tasks(doc)
		// A task may have been sent, and may have ended, while another plan keeps the document marked as planned.
		again = again || len(planned) > 0 && d.Store.Clock.Now().Sub(d.Documents.PlannedAt(doc)) > frozen/2
		for _, t := range planned {
			if t.Trace == nil && from != nil {
				traced := *t
				traced.Trace = from
				t = &traced
			}
			tasks, of = append(tasks, t), append(of, doc)
		}
	}
	insert := (*store.Tasks).Insert
	if again {
		insert = (*store.Tasks).InsertAgain
	}
	for len(tasks) > 0 {
		n := min(len(tasks), perInsert)
		exists, err := insert(d.Store.Tasks, ctx, tasks[:n])
		var some *store.InsertError
		switch {
		case errors.As(err, &some): // the others are sent: no document stands in another's way
			for i := range some.Refused {
				s.held[d.Documents.ID(of[i])] = fmt.Errorf("sending its tasks: %w", err)
			}
		case err != nil:
			return s, fmt.Errorf("sending tasks: %w", err)
		}
		for i, there := range exists {
			if !there || d.There == nil {
				continue
			}
			if err := d.There(ctx, of[i], tasks[i]); store.Outage(err) {
				return s, err
			} else if err != nil {
				s.held[d.Documents.ID(of[i])] = fmt.Errorf("sending its tasks: %w", err)
			}
		}
		tasks, of = tasks[n:], of[n:]
	}
	return s, nil
}

// finish does the rest of what a portion plans. done are the documents of which nothing is left
// to do; the others, with a reason in s.held, keep their plans, and the error is one of these reasons.
func (d *Decider[D]) finish(ctx context.Context, s *sent[D]) (done []D, err error) {
	ctx, end := context.WithTimeout(ctx, callTimeout)
	defer end()
	held, err := d.Planner.Finish(ctx, s.docs, s.held)
	if err != nil {
		return nil, err
	}
	for id, why := range held {
		s.held[id] = why
	}
	now := d.Store.Clock.Now()
	for _, doc := range s.docs {
		// Plans whose time is still to come stay: by then something else shows that they are carried out.
		if s.held[d.Documents.ID(doc)] == nil && len(d.Documents.PlanIDs(doc)) > 0 && !d.Documents.PlannedAt(doc).After(now.Add(time.Millisecond)) {
			done = append(done, doc)
		}
	}
	if len(s.held) > 0 {
		id := slices.Min(slices.Collect(maps.Keys(s.held)))
		return done, &documentError{id, s.held[id]}
	}
	return done, nil
}

// documentError is why a document keeps its plans. Like [store.ErrHeld] it concerns that document alone, whatever
// the reason, so it is no outage.
type documentError struct {
	id  string
	why error
}

func (e *documentError) Error() string        { return e.id + ": " + e.why.Error() }
func (e *documentError) Unwrap() error        { return e.why }
func (e *documentError) Is(target error) bool { return target == store.ErrHeld }

// remove removes what the documents plan: it is carried out.
func (d *Decider[D]) remove(ctx context.Context, docs []D) (done bool) {
	ctx, cancel := throughStop(ctx)
	defer cancel()
	_, err := d.Documents.CarriedOut(ctx, docs)
	if err != nil {
		d.later(err)
	}
	return err == nil
}

// CarryOut does what decisions of others planned, portion by portion, so that what is done stays
// done. It returns how many documents keep plans that cannot be carried out.
func (d *Decider[D]) CarryOut(ctx context.Context, docs []D) (stuck int, err error) {
	for _, some := range portions(docs, d.Planner.PlannedBytes) {
		s, failed := d.send(ctx, some)
		var done []D
		if failed == nil {
			done, failed = d.finish(ctx, &s)
		}
		if store.Outage(failed) || failed != nil && ctx.Err() != nil {
			return stuck, failed
		}
		if failed != nil && len(s.held) == 0 { // no document stands in another's way
			left := len(some)
			if left > 1 {
				left, failed = d.apart(ctx, some)
			}
			if stuck += left; failed != nil {
				err = failed
			}
			if store.Outage(err) {
				return stuck, err
			}
			continue
		}
		if failed != nil {
			err = failed
		}
		stuck += len(s.held)
		switch left, gone := d.Documents.CarriedOut(ctx, done); {
		case errors.Is(gone, store.ErrHeld): // it is carried out once more, which changes nothing
			stuck, err = stuck+left, gone
		case gone != nil:
			return stuck, gone
		}
	}
	return stuck, err
}

// apart carries out the two halves of a portion in which the server refuses something.
func (d *Decider[D]) apart(ctx context.Context, docs []D) (stuck int, err error) {
	for _, half := range [][]D{docs[:len(docs)/2], docs[len(docs)/2:]} {
		n, failed := d.CarryOut(ctx, half)
		if stuck += n; failed != nil {
			err = failed
		}
		if store.Outage(failed) {
			return stuck, failed
		}
	}
	return stuck, err
}

// sweep carries out what was decided and left: its process died, or froze. The next round goes on
// where there is more than can be done in busyLook.
func (d *Decider[D]) sweep(ctx context.Context, mine func(id string, late time.Duration) bool) error {
	entered := d.Store.Local().Monotonic()
	for skip := 0; ; {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		began, now := clock.Read(d.Store.Local()), d.Store.Clock.Now()
		most := min(perSweep, d.mostRead())
		docs, unread, err := d.Documents.Planned(call, now.Add(-Slow), skip, most)
		cancel()
		found := len(docs) + len(unread)
		if err != nil || found == 0 {
			return err
		}
		for _, u := range unread {
			d.Complain(u.ID, u.Err)
		}
		docs = slices.DeleteFunc(docs, func(doc D) bool {
			late := now.Sub(d.Documents.PlannedAt(doc)) - Slow
			return late <= Slow && !mine(d.Documents.ID(doc), 0)
		})
		others := found - len(unread) - len(docs)
		if docs, err = d.unlessFrozen(ctx, began, docs); err != nil {
			return err
		}
		stuck, err := d.CarryOut(ctx, docs)
		if err != nil && stuck == 0 || found < most {
			return err
		}
		if err != nil {
			d.Log.Error().Err(err).Msg("could not apply decisions of other engines; retrying")
		}
		if d.Store.Local().Monotonic()-entered > busyLook {
			return nil
		}
		skip += stuck + others + len(unread)
	}
}
