package rulechange

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/rulespec"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Spec is the rule that a form says, checked and normalised; not whether it still fires, which
// depends on the time.
func Spec(f *form.Rule) (schedule.Spec, error) {
	spec, err := f.Spec()
	checked, wrong := rulespec.Normal(&spec, time.Unix(0, 0))
	return checked, errors.Join(err, builtin.CheckArgs(f.Type, []byte(f.Args)), wrong)
}

// Edit is what a written rule does to the stored one beside what it says: a change of whether
// it is enabled is no edit of the definition.
type Edit struct {
	Stored  *schedule.Rule // nil = the rule is created
	Spec    schedule.Spec  // what is written, as [Spec] returns it
	lines   []string       // what changes of the definition
	turn    *bool          // the rule is enabled or disabled; nil = it stays as it is
	enabled *bool          // what the form says of it
}

// Of compares a written rule with the stored one, nil for none. A rule that fires no more is only
// refused where the form makes it so. Nothing is read or written.
func Of(f *form.Rule, stored *schedule.Rule, box *secret.Box, now time.Time) (e Edit, err error) {
	if e.Spec, err = Spec(f); err != nil {
		return Edit{}, err
	}
	e.Stored = stored
	if stored == nil || !rulespec.Unchanged(box, e.Spec, stored) {
		e.lines = changes(e.Spec, stored, box)
		sealed, err := rulespec.Seal(box, e.Spec, stored)
		if err != nil {
			return e, err
		}
		if err := rulespec.Check(&sealed, stored, now); err != nil {
			return e, err
		}
	}
	on := stored != nil && tickplan.Enabled(stored)
	e.enabled = f.Enabled
	if wanted := e.enabled; wanted != nil && (*wanted != on || *wanted && e.Edits() && stored != nil && tickplan.Rests(stored)) { // it may have a new end
		e.turn = wanted
	}
	return e, nil
}

// changes are the lines of an edit.
func changes(s schedule.Spec, stored *schedule.Rule, box *secret.Box) []string {
	var before *form.Rule
	var old schedule.Spec
	if stored != nil {
		old = rulespec.Of(stored)
		before = form.RuleOf(&old)
	}
	s, err := rulespec.Keep(box, s, stored)
	if err != nil {
		return nil // the edit is refused
	}
	lines := append(form.Changes(before, form.RuleOf(&s)), form.SecretChanges("options.callback", old.Options.Callback, s.Options.Callback)...)
	if s.HTTP != nil {
		lines = append(lines, form.GivenSecrets("http.keys", cmp.Or(old.HTTP, new(schedule.HTTPTarget)).Keys, s.HTTP.Keys)...)
	}
	if field := rulespec.HiddenURL(&s, &old); field != "" {
		lines = append(lines, form.HiddenURL(field))
	}
	field, names := rulespec.GivenHeaders(&s, stored)
	for _, name := range names {
		lines = append(lines, "+ "+field+": the secret of "+name)
	}
	return lines
}

// Edits says whether the definition changes.
func (e Edit) Edits() bool { return len(e.lines) > 0 }

// Lines say for people what changes, a line for each field; none = nothing.
func (e Edit) Lines() []string {
	switch {
	case e.turn == nil:
		return e.lines
	case e.Stored != nil:
		return append(e.lines[:len(e.lines):len(e.lines)], fmt.Sprintf("- enabled: %t", tickplan.Enabled(e.Stored)), fmt.Sprintf("+ enabled: %t", *e.turn))
	default:
		return append(e.lines[:len(e.lines):len(e.lines)], fmt.Sprintf("+ enabled: %t", *e.turn))
	}
}

// Rule is the rule that the edit makes, for a preview. One that is created is so now.
func (e Edit) Rule(now time.Time) (*schedule.Rule, error) {
	r, _, err := rulespec.Build(&e.Spec, time.Unix(0, 0)) // one whose end has come has no ticks, which is no mistake
	if err != nil {
		return nil, err
	}
	r.CreatedAt = now
	if e.Stored != nil {
		r.CreatedAt, r.Runs = e.Stored.CreatedAt, e.Stored.Runs
	}
	return r, nil
}

// Write carries the edit out with one write: it is done as a whole, or not at all. The error is
// model.ErrChanged if the rule has another version by now, and store.ErrRuleExists if there is
// another one of its name.
func (e Edit) Write(ctx context.Context, rules *periodic.Periodic) (*schedule.Rule, error) {
	spec := e.Spec
	spec.Enabled = e.enabled // an edit says it also where it seems so already: somebody may have switched the rule since it was read
	switch {
	case e.Stored == nil:
		return rules.Create(ctx, spec)
	case !e.Edits() && e.turn == nil:
		return e.Stored, nil
	default:
		return rules.Update(ctx, e.Stored.ID, e.Stored.Version, spec)
	}
}
