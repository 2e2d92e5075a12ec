package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Update changes a task that has not ended. Fields without an option stay unchanged. A running
// execution keeps the options that it was claimed with. If the new [Workers] exclude its
// worker, that worker releases the task within two seconds, or at its next ping if it pulls. A
// parked execution of an excluded worker ends at once. While an execution is open, a new
// [LimitKey] is refused with a *[model.RefusedError], because the execution counts for the key
// of its claim.
//
// Update refuses the options Key, Tenant, Held, OnExisting and OutsideTransaction, which apply
// only to a send. [Args] sets new arguments.
// id is that of [Sent], or of [model.TaskID].
func (p *Producer) Update(ctx context.Context, id string, opts ...Option) (*model.Task, error) {
	if err := p.validUpdate(opts); err != nil {
		return nil, fmt.Errorf("updating task %s: %w", id, err)
	}
	rev := gather(Draft{}, opts).rev
	t, err := p.room.Change(ctx, "updating", id, func(t *model.Task) (*model.Task, error) {
		if rev != 0 && t.Rev != rev {
			return nil, fmt.Errorf("the task was %w", model.ErrChanged)
		}
		if input.OwnType(t.Type) {
			return nil, &model.RefusedError{ID: t.ID, Status: t.Status, Reason: "it does the work of mscheduler itself"}
		}
		now := p.room.Store.Clock.Now()
		patch, err := p.patchOf(t, opts, now)
		if err != nil {
			return nil, err
		}
		return lifecycle.Update(t, patch, p.room.Types.Options(t.Type), now)
	})
	if err != nil {
		return nil, err
	}
	if err := p.tellRunning(ctx, t, changesRunning(opts)); err != nil {
		return t, fmt.Errorf("updating task %s: %w", id, err)
	}
	return t, nil
}

// changesRunning says whether the options matter to executions that run already.
func changesRunning(opts []Option) bool {
	s := gather(Draft{}, opts)
	return s.has("Lease") || s.has("ConcurrentWorkers")
}

// fixed are the options that a change cannot have, with the reason.
var fixed = []struct{ option, field, reason string }{
	{"Key", "key", "cannot be changed: it is part of the task's id"},
	{"Tenant", "tenant", "cannot be changed: it is part of the task's id"},
	{"Held", "held", "cannot be changed: a task is held when it is sent, and let go by Release"},
	{"OnExisting", "on_existing", "is for sends"},
	{"OutsideTransaction", "outside_transaction", "is for sends"},
}

// validUpdate finds what is wrong with the options whatever task they are for.
func (p *Producer) validUpdate(opts []Option) error {
	s := gather(Draft{}, opts)
	errs := s.complaints
	for _, f := range fixed {
		if s.has(f.option) {
			errs = append(errs, input.Invalid(f.field, "%s", f.reason))
		}
	}
	if len(slices.DeleteFunc(slices.Clone(s.given), func(name string) bool { return name == "IfRev" })) == 0 && len(errs) == 0 {
		errs = append(errs, input.Invalid("options", "are empty; give at least one change"))
	}
	_, badArgs := codec.EncodeValue("args", s.args, input.MaxArgsBytes)
	d := &s.draft
	d.Type, d.Key, d.Tenant = "any", "any", ""
	return errors.Join(append(errs, badArgs, d.validate(), d.seal(p.room.Secrets))...)
}

// patchOf lays the options over what the task says.
func (p *Producer) patchOf(t *model.Task, opts []Option, now time.Time) (lifecycle.Patch, error) {
	s := gather(Draft{Options: t.Options}, opts)
	d := &s.draft
	if err := errors.Join(input.Options(&d.Options), input.OptionsFor(&d.Options, t.Type)); err != nil { // together with what stays as it was
		return lifecycle.Patch{}, err
	}
	if s.has("Callback") {
		if err := d.seal(p.room.Secrets); err != nil {
			return lifecycle.Patch{}, err
		}
	}
	if d.ExpiresIn > 0 {
		d.Options.ExpiresAt = clock.Millis(now.Add(d.ExpiresIn))
	}
	patch := lifecycle.Patch{Priority: d.Priority, Options: &d.Options}
	if s.has("Args") {
		args, err := codec.EncodeValue("args", s.args, input.MaxArgsBytes)
		if err != nil {
			return lifecycle.Patch{}, err
		}
		patch.Args = &args
	}
	if s.has("At") || s.has("In") {
		if d.In > 0 {
			d.Start = now.Add(d.In)
		}
		if d.Start.IsZero() {
			d.Start = now
		}
		patch.Start = &d.Start
	}
	if s.has("Creator") {
		patch.Creator = &d.Creator
	}
	if s.has("Category") {
		patch.Category = &d.Category
	}
	return patch, nil
}
