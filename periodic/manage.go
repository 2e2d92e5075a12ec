package periodic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/rulespec"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Create stores a new rule. The rule does not fire until it is enabled, by s.Enabled or
// [Periodic.Enable]. If the tenant already has a rule with this name, the error is a
// *[model.RefusedError]. Create encrypts secrets before it stores them.
func (p *Periodic) Create(ctx context.Context, s schedule.Spec) (*schedule.Rule, error) {
	ctx = store.Outside(ctx)
	if err := p.store.Prepare(ctx); err != nil {
		return nil, fmt.Errorf("creating the rule %s: %w", s.Name, err)
	}
	began, now := clock.Read(p.store.Local()), p.store.Clock.Now()
	sealed, err := rulespec.Seal(p.secrets, s, nil)
	if err != nil {
		return nil, fmt.Errorf("creating the rule %s: %w", s.Name, err)
	}
	r, cal, err := rulespec.Build(&sealed, now)
	if err != nil {
		return nil, fmt.Errorf("creating the rule %s: %w", s.Name, err)
	}
	r.ID = input.NewKey(now)
	if s.Enabled != nil && *s.Enabled {
		r = tickplan.Enable(r, cal, now)
	}
	if err := p.store.Rules.Insert(ctx, r); err != nil {
		return nil, fmt.Errorf("creating a rule: %w", err)
	}
	p.decider.Decided(ctx, began, r) // it plans nothing: this process's engine looks soon
	return r, nil
}

// Update replaces the spec of the rule if the rule still has this version; otherwise the error
// is [model.ErrChanged]. The old spec decides current ticks up to now; older undecided ticks are
// skipped (edited). Secrets given as "***" keep their stored values. A rule that had ended
// because of EndAt or MaxRuns resumes if the edit gives it more ticks. s.Enabled enables or
// disables it in the same write, like [Periodic.Enable] and [Periodic.Disable]. If it is false, a
// rule that is already disabled keeps its note. If s is the stored definition and Enabled changes
// nothing, Update writes nothing and returns the stored rule: no tick is skipped (edited).
// id is the ID of the rule, see [Periodic.Named].
func (p *Periodic) Update(ctx context.Context, id string, version int64, s schedule.Spec) (*schedule.Rule, error) {
	return p.change(ctx, "changing", id, func(r *schedule.Rule, old *calendar.Schedule, now time.Time) (*schedule.Rule, error) {
		if r.Version != version {
			return nil, fmt.Errorf("the rule was %w: its version is %d, not %d", model.ErrChanged, r.Version, version)
		}
		if rulespec.Unchanged(p.secrets, s, r) {
			return turned(r, old, s.Enabled, now), nil
		}
		sealed, err := rulespec.Seal(p.secrets, s, r)
		if err != nil {
			return nil, err
		}
		edited, _, err := rulespec.Build(&sealed, rulespec.Since(&sealed, now, r))
		if err != nil {
			return nil, err
		}
		if edited.Tenant != r.Tenant {
			return nil, input.Invalid("tenant", "is %q; want %q, because a rule cannot change its tenant", s.Tenant, r.Tenant)
		}
		edited.CreatedAt = r.CreatedAt
		cal, err := p.calendarOf(edited)
		if err != nil {
			return nil, err
		}
		if s.Enabled != nil {
			return tickplan.EditTurned(r, old, cal, edited, *s.Enabled, now), nil
		}
		return tickplan.Edit(r, old, cal, edited, now), nil
	})
}

// Apply makes the rule with this tenant and name what s defines: it creates the rule, updates it if
// its definition differs, and otherwise writes nothing. Services call it when they start. If s.Enabled
// is true, the same write enables the rule, also one that a person has disabled. If it is nil, an existing
// rule stays as it is, and a new one is disabled. Any number of processes may call Apply at once.
// Differences and secrets are as in [Periodic.Update].
func (p *Periodic) Apply(ctx context.Context, s schedule.Spec) (*schedule.Rule, error) {
	ctx = store.Outside(ctx)
	for range maxTries {
		stored, err := p.Named(ctx, s.Tenant, s.Name)
		switch {
		case errors.Is(err, store.ErrNoRule):
			r, err := p.Create(ctx, s)
			if !errors.Is(err, store.ErrRuleExists) {
				return r, err
			}
		case err != nil:
			return nil, fmt.Errorf("applying the rule %s: %w", s.Name, err)
		default:
			r, err := p.Update(ctx, stored.ID, stored.Version, s)
			if !errors.Is(err, model.ErrChanged) && !errors.Is(err, store.ErrNoRule) {
				return r, err
			}
		}
	}
	return nil, fmt.Errorf("applying the rule %s: %d attempts conflicted with other changes", s.Name, maxTries)
}

// turned enables or disables the rule, if enabled (nil = leave it) says otherwise than it is. An enabled rule goes on if
// the database's clock has been set back.
func turned(r *schedule.Rule, cal *calendar.Schedule, enabled *bool, now time.Time) *schedule.Rule {
	switch on := tickplan.Enabled(r); {
	case on && (enabled == nil || *enabled) && tickplan.Ahead(r, now):
		return tickplan.Enable(r, cal, now)
	case enabled == nil || *enabled == on:
		return nil
	case *enabled:
		return tickplan.Enable(r, cal, now)
	default:
		return tickplan.Disable(r, cal, "", now)
	}
}

// Enable makes the rule fire from now on. One record lists the ticks that it missed while it
// was disabled as skipped. Enabling an enabled rule is not an error. If the database's clock has been set
// back, the rule fires from now on, too: ticks that ran while it was ahead do not run again. version is the
// version that the caller read, or 0 for any; if the rule has another version, the error is
// [model.ErrChanged].
// id is the ID of the rule, see [Periodic.Named].
func (p *Periodic) Enable(ctx context.Context, id string, version int64) (*schedule.Rule, error) {
	return p.change(ctx, "enabling", id, p.withTimes(func(r *schedule.Rule, cal *calendar.Schedule, now time.Time) (*schedule.Rule, error) {
		if err := hasVersion(r, version); err != nil {
			return nil, err
		}
		return tickplan.Enable(r, cal, now), nil
	}))
}

// Disable stops the rule at once. Waiting and running runs continue. note gives the reason and
// may be empty. Disabling a disabled rule is not an error. version is the version that the
// caller read, or 0 for any; if the rule has another version, the error is [model.ErrChanged].
// id is the ID of the rule, see [Periodic.Named].
func (p *Periodic) Disable(ctx context.Context, id string, version int64, note string) (*schedule.Rule, error) {
	return p.change(ctx, "disabling", id, func(r *schedule.Rule, cal *calendar.Schedule, now time.Time) (*schedule.Rule, error) {
		if err := hasVersion(r, version); err != nil {
			return nil, err
		}
		if err := input.Note(note); err != nil {
			return nil, err
		}
		return tickplan.Disable(r, cal, note, now), nil
	})
}

// Delete deletes the rule logically: it never fires again, waiting runs are cancelled, its
// records stay, and its name becomes free. Engines remove the document after 90 days, or after
// RunRetention if that is longer. version is the version that the caller read, or 0
// for any; if the rule has another version, the error is [model.ErrChanged].
// id is the ID of the rule, see [Periodic.Named].
func (p *Periodic) Delete(ctx context.Context, id string, version int64) error {
	_, err := p.change(ctx, "deleting", id, func(r *schedule.Rule, cal *calendar.Schedule, now time.Time) (*schedule.Rule, error) {
		if err := hasVersion(r, version); err != nil {
			return nil, err
		}
		return tickplan.Delete(r, cal, now), nil
	})
	return err
}

// hasVersion says that a rule is not the one that somebody saw, whose version it names (0 =
// any): it was edited, or deleted, meanwhile.
func hasVersion(r *schedule.Rule, version int64) error {
	if version != 0 && r.Version != version {
		return fmt.Errorf("the rule was %w: its version is %d, not %d", model.ErrChanged, r.Version, version)
	}
	return nil
}

// Get reads a rule by its id.
// id is the ID of the rule, see [Periodic.Named].
func (p *Periodic) Get(ctx context.Context, id string) (*schedule.Rule, error) {
	r, err := p.store.Rules.Get(ctx, id)
	if err == nil && !r.DeletedAt.IsZero() {
		err = fmt.Errorf("%w: %s was deleted", store.ErrNoRule, id)
	}
	return r, err
}

// Named reads a rule by tenant ("" = none) and name.
func (p *Periodic) Named(ctx context.Context, tenant, name string) (*schedule.Rule, error) {
	return p.store.Rules.Living(ctx, tenant, name)
}

// List returns the rules of a tenant ("" = all tenants), without deleted ones, ordered by
// tenant and name: at most limit, from 1 to 1,000, after the rule whose Living is after ("" =
// from the first). If this release cannot read some rules, List returns the others and an
// [*model.UnreadableError] with their [schedule.Rule.Living]. Those do not fire.
func (p *Periodic) List(ctx context.Context, tenant, after string, limit int) ([]*schedule.Rule, error) {
	if limit < 1 || limit > 1000 {
		return nil, input.Invalid("limit", "is %d; want 1 to 1000", limit)
	}
	rules, unread, err := p.store.Rules.List(ctx, tenant, after, limit)
	if err != nil {
		return nil, err
	}
	return rules, store.UnreadError("rule", unread)
}
