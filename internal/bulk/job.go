package bulk

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/taskchange"
)

// Job is what a job is to do, as a written form. The arguments of its task have it, too.
type Job struct {
	Action string     `json:"action,omitzero" doc:"cancel, retry, resolve, release, update or redeliver"`
	Filter *Filter    `json:"filter,omitzero"`
	Remark string     `json:"remark,omitzero" doc:"why, for those who look at the tasks later; of cancel, retry and resolve"`
	Step   string     `json:"step,omitzero" doc:"of retry: the step to begin from; earlier steps keep their values (default: from the start)"`
	Change *form.Task `json:"change,omitzero"`
	DryRun bool       `json:"dry_run,omitzero" doc:"only count the tasks, and start no job"`
}

// checked is a job in which nothing is wrong.
type checked struct {
	action Action
	filter store.Filter
	where  store.Where
}

// check finds what is wrong with a job, and writes its times and its statuses out, so that they mean the
// same whenever the job is read again. now is the start of the job.
func (j *Job) check(now time.Time) (checked, error) {
	a, known := actionOf(j.Action)
	if !known {
		return checked{}, input.Invalid("action", "is %q; want one of %s", j.Action, strings.Join(ActionNames(), ", "))
	}
	if j.Filter.Empty() {
		return checked{}, input.Invalid("filter", "says nothing, which is every task; want a tenant, a type, a status, a time or the like")
	}
	f, where, err := j.Filter.of(now)
	if err != nil {
		return checked{}, input.Under("filter", err)
	}
	if len(f.Statuses) == 0 {
		f.Statuses = a.ByDefault
	}
	var errs []error
	for _, s := range f.Statuses {
		if !slices.Contains(a.From, s) {
			errs = append(errs, input.Invalid("filter.status", "has %s; only %s can be %s", s, input.Names(a.From), a.Done))
		}
	}
	if where != store.InTasks && !a.Lives {
		errs = append(errs, input.Invalid("filter.history", "is %q; only redeliver goes over the history", j.Filter.History))
	}
	if f.Before.IsZero() || f.Before.After(now) {
		f.Before = now // what comes later is none of the job's business
	}
	refuse := func(field string, given bool, of ...Action) {
		if given && !slices.ContainsFunc(of, func(x Action) bool { return x.Name == a.Name }) {
			errs = append(errs, input.Invalid(field, "is given; the action %s has none", a.Name))
		}
	}
	refuse("remark", j.Remark != "", Cancel, Retry, Resolve)
	refuse("step", j.Step != "", Retry)
	refuse("change", j.Change != nil, Update)
	if a.Name == Update.Name {
		errs = append(errs, input.Under("change", checkChange(f.Type, j.Change, now)))
	}
	j.Filter = FilterOf(f, where)
	return checked{a, f, where}, errors.Join(errs...)
}

// checkChange finds what is wrong with a change of many tasks, of one type unless typ is "", and writes its times out.
func checkChange(typ string, t *form.Task, now time.Time) error {
	if t == nil {
		return input.Invalid("options", "or another field is required: what to change of the tasks")
	}
	var errs []error
	for _, f := range []struct {
		name  string
		given bool
	}{{"type", t.Type != nil}, {"key", t.Key != nil}, {"tenant", t.Tenant != nil}, {"held", t.Held != nil}, {"existing", t.Existing != nil}} {
		if f.given {
			errs = append(errs, input.Invalid(f.name, "cannot be changed"))
		}
	}
	errs = append(errs, secret.CheckArgs(typ, t.Args))
	if t.Options.Callback != nil {
		errs = append(errs, input.Invalid("options.callback", "cannot be changed by a job: its secrets would be stored with the job"))
	}
	for name, at := range map[string]**form.Time{"start_time": &t.StartTime, "options.expires_at": &t.Options.ExpiresAt} {
		if *at == nil {
			continue
		}
		absolute, err := form.ParseTime(string(**at), time.UTC, now)
		if err != nil {
			errs = append(errs, input.Invalid(name, "is %q; %v", string(**at), err))
			continue
		}
		*at = timeOf(absolute)
	}
	it, err := taskchange.Item(t, now)
	if err == nil && len(it.Args) == 0 && len(it.Options) == 0 {
		err = input.Invalid("options", "or another field is required: what to change of the tasks")
	}
	return errors.Join(append(errs, err)...)
}

// read reads the job that the arguments of a task have.
func read(args json.RawMessage) (*Job, checked, error) {
	doc, err := form.ReadJSON[Job]("args", 1, args, "a job")
	if err != nil {
		return nil, checked{}, fmt.Errorf("reading a job: %w", err)
	}
	j := doc.Form
	if j.Filter == nil || j.Filter.CreatedBefore == nil {
		return nil, checked{}, input.Invalid("args", "are not those of a job")
	}
	at, err := form.ParseTime(string(*j.Filter.CreatedBefore), time.UTC, time.Time{})
	if err != nil {
		return nil, checked{}, input.Invalid("args.filter.created_before", "%v", err)
	}
	c, err := j.check(at)
	return j, c, input.Under("args", err)
}

// belongs says whether a job of a tenant keeps to its tasks. A job without a tenant may be about any.
func (j *Job) belongs(tenant string) error {
	if tenant != "" && j.Filter.Tenant != tenant {
		return input.Invalid("args.filter.tenant", "is %q; a job of tenant %s changes only its tasks", j.Filter.Tenant, tenant)
	}
	return nil
}
