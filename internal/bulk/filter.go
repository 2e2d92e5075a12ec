package bulk

import (
	"errors"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Filter selects tasks, as a written form. A task must match all that it says.
type Filter struct {
	Tenant        string     `json:"tenant,omitzero" doc:"tenant; - for tasks without one"`
	Type          string     `json:"type,omitzero" doc:"type"`
	Key           string     `json:"key,omitzero" doc:"the key begins with this text"`
	Status        []string   `json:"status,omitzero" doc:"any of these; defaults to those in which the action is likely wanted"`
	Category      string     `json:"category,omitzero" doc:"category"`
	Creator       string     `json:"creator,omitzero" doc:"creator"`
	WorkerID      string     `json:"worker_id,omitzero" doc:"has an execution of this worker in its list"`
	Error         string     `json:"error,omitzero" doc:"the last error contains this text, in upper or lower case"`
	Arg           []string   `json:"arg,omitzero" doc:"PATH=VALUE, such as order.id=17: the arguments have each of these texts, numbers, true or false"`
	CreatedAfter  *form.Time `json:"created_after,omitzero" doc:"created at this time or later"`
	CreatedBefore *form.Time `json:"created_before,omitzero" doc:"created before this time; at the latest the start of the job"`
	History       string     `json:"history,omitzero" doc:"of redeliver: past lives, too: no (default), also, only"`
}

// places are the values of [Filter.History].
var places = map[string]store.Where{"": store.InTasks, "no": store.InTasks, "also": store.InBoth, "only": store.InHistory}

// of is the filter as the store takes it. Times without an offset are UTC, and durations count from now.
func (f *Filter) of(now time.Time) (store.Filter, store.Where, error) {
	out := store.Filter{Tenant: f.Tenant, Type: f.Type, Key: f.Key, Category: f.Category, Creator: f.Creator, WorkerID: f.WorkerID, Error: f.Error, Args: f.Arg}
	for _, s := range f.Status {
		out.Statuses = append(out.Statuses, model.Status(s))
	}
	var errs []error
	read := func(field string, t *form.Time, selects string) (at time.Time) {
		if t == nil {
			return at
		}
		at, err := form.ParsePast(string(*t), time.UTC, now, selects)
		if err != nil {
			errs = append(errs, input.Invalid(field, "%v", err))
		}
		return at
	}
	out.After, out.Before = read("created_after", f.CreatedAfter, "no task"), read("created_before", f.CreatedBefore, "every task")
	where, known := places[f.History]
	if !known {
		errs = append(errs, input.Invalid("history", "is %q; want no, also or only", f.History))
	}
	errs = append(errs, input.Renamed(out.Check(), func(field string) string { return strings.Replace(field, "after", "created_after", 1) }))
	return out, where, errors.Join(errs...)
}

// Empty says whether the filter says nothing, and so selects every task.
func (f *Filter) Empty() bool {
	return f == nil || f.Tenant == "" && f.Type == "" && f.Key == "" && len(f.Status) == 0 && f.Category == "" && f.Creator == "" && f.WorkerID == "" &&
		f.Error == "" && len(f.Arg) == 0 && f.CreatedAfter == nil && f.CreatedBefore == nil
}

// FilterOf is the written form of a filter that was read from flags.
func FilterOf(f store.Filter, where store.Where) *Filter {
	out := &Filter{Tenant: f.Tenant, Type: f.Type, Key: f.Key, Category: f.Category, Creator: f.Creator, WorkerID: f.WorkerID, Error: f.Error, Arg: f.Args}
	for _, s := range f.Statuses {
		out.Status = append(out.Status, string(s))
	}
	out.CreatedAfter, out.CreatedBefore = timeOf(f.After), timeOf(f.Before)
	for name, w := range places {
		if w == where && where != store.InTasks {
			out.History = name
		}
	}
	return out
}

func timeOf(t time.Time) *form.Time {
	if t.IsZero() {
		return nil
	}
	return new(form.Time(t.UTC().Format(time.RFC3339Nano)))
}
