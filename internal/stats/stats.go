// Package stats summarizes what a fleet, or a tenant, has to do and what it has done lately. All of it is bounded:
// the census of the fleet (package census), a count of the first tasks of a tenant, and the tasks that ended
// last.
package stats

import (
	"context"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/census"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	// MostWindow is how far back ended tasks are looked at.
	MostWindow = 24 * time.Hour
	// mostEnded is how many ended tasks of one retention are read.
	mostEnded = 5000
	// mostRetentions is how many different retentions of types are looked at.
	mostRetentions = 20
	// mostTallied is how many tasks of a tenant are counted.
	mostTallied = 10_000
)

// Query says what to summarize.
type Query struct {
	Tenant string // "" = the whole fleet; model.NoTenant = tasks without one
	Type   string // "" = all
	Window time.Duration
}

// Stats is the summary as JSON.
type Stats struct {
	At    string `json:"at" format:"date-time" doc:"the database's time"`
	Queue *Queue `json:"queue,omitempty" doc:"what the fleet has to do, counted at most every 15 s; absent for a tenant"`
	Tasks *Tally `json:"tasks,omitempty" doc:"the stored tasks of a tenant by type and status; absent for the whole fleet"`
	Ended Ended  `json:"ended" doc:"tasks that ended within the window and are kept for their type's retention"`
}

// Queue is the census.
type Queue struct {
	CountedAt string      `json:"counted_at" format:"date-time"`
	Complete  bool        `json:"complete" doc:"false: a count took too long, and is that of an earlier census"`
	NextTick  string      `json:"next_tick_at,omitempty" format:"date-time" doc:"the earliest tick of an enabled rule that no engine has decided yet"`
	Types     []TypeQueue `json:"types" doc:"types beyond the first hundred are one, named other"`
}

// TypeQueue is what was counted of a type: each number is at most 100,000.
type TypeQueue struct {
	Type      string `json:"type"`
	Due       int64  `json:"due" doc:"a worker may claim them now"`
	OldestDue string `json:"oldest_due_at,omitempty" format:"date-time" doc:"the due task that has waited longest"`
	Delayed   int64  `json:"delayed" doc:"due later: start times and retries"`
	Running   int64  `json:"running" doc:"have an open execution"`
	Others    bool   `json:"others,omitempty" doc:"it is no type, but all beyond the first hundred"`

	Uncounted []string `json:"uncounted,omitempty" doc:"due, delayed, running: these numbers are 0 because no count has been quick enough yet, or because the type is beyond the first hundred"`
}

// Tally counts tasks by type and status.
type Tally struct {
	Complete bool                              `json:"complete" doc:"false: only the first 10,000 tasks by id were counted"`
	Types    map[string]map[model.Status]int64 `json:"types"`
}

// Ended are tasks that ended lately.
type Ended struct {
	From      string               `json:"from" format:"date-time" doc:"begin of the window; later than asked for where more tasks ended than are read"`
	Complete  bool                 `json:"complete" doc:"true: all tasks of the window that was asked for were read"`
	Count     int64                `json:"count"`
	PerSecond float64              `json:"per_second"`
	Types     map[string]TypeEnded `json:"types"`
}

// TypeEnded are those of a type.
type TypeEnded struct {
	Count    int64                  `json:"count"`
	Statuses map[model.Status]int64 `json:"statuses"`
	Late     Spread                 `json:"late_ms" doc:"from the start time to the first claim"`
	Took     Spread                 `json:"exec_time_ms" doc:"the execution that ended last"`
}

// Spread are quantiles in milliseconds.
type Spread struct {
	Median int64 `json:"p50"`
	P95    int64 `json:"p95"`
	Max    int64 `json:"max"`
}

// Of summarizes.
func Of(ctx context.Context, s *store.Store, taker *census.Taker, q Query) (Stats, error) {
	if q.Window < time.Second || q.Window > MostWindow {
		return Stats{}, input.Invalid("window_ms", "is %d; want 1000 to %d", q.Window.Milliseconds(), MostWindow.Milliseconds())
	}
	if err := (store.Filter{Tenant: q.Tenant, Type: q.Type}).Check(); err != nil {
		return Stats{}, err
	}
	if err := s.Ready(ctx); err != nil {
		return Stats{}, err
	}
	now, err := s.ServerTime(ctx)
	if err != nil {
		return Stats{}, err
	}
	out := Stats{At: stamp(now)}
	if q.Tenant == "" {
		c, _, err := taker.Now(ctx)
		if err != nil {
			return Stats{}, err
		}
		out.Queue = queueOf(&c, q.Type)
	} else {
		counts, more, err := s.Tasks.Tally(ctx, q.Tenant, q.Type, mostTallied)
		if err != nil {
			return Stats{}, err
		}
		out.Tasks = &Tally{Complete: !more, Types: counts}
	}
	out.Ended, err = ended(ctx, s, q, now)
	return out, err
}

func queueOf(c *store.Census, typ string) *Queue {
	out := &Queue{CountedAt: stamp(c.At), Complete: c.Complete, NextTick: stamp(c.Rules.Oldest), Types: []TypeQueue{}}
	for i, t := range c.Types {
		if others := i == measure.Most; typ == "" || typ == t.Type && !others {
			out.Types = append(out.Types, TypeQueue{t.Type, t.Due.N, stamp(t.Due.Oldest), t.Delayed, t.Running, others, t.Uncounted})
		}
	}
	if typ != "" && len(out.Types) == 0 && len(c.Types) > measure.Most { // it may be one of the others
		out.Types = []TypeQueue{{Type: typ, Uncounted: []string{store.CountDue, store.CountDelayed, store.CountRunning}}}
	}
	return out
}

// ended reads what ended within the window, retention by retention.
func ended(ctx context.Context, s *store.Store, q Query, now time.Time) (Ended, error) {
	types, _, err := s.Types.List(ctx)
	if err != nil {
		return Ended{}, err
	}
	from := now.Add(-q.Window)
	complete := true
	found := map[string]*model.Task{}
	for _, retention := range retentions(types) {
		tasks, back, more, err := s.Tasks.Ended(ctx, from, now, retention, mostEnded)
		if err != nil {
			return Ended{}, err
		}
		for _, t := range tasks {
			found[t.ID] = t
		}
		if complete = complete && !more; more && back.After(from) {
			from = back
		}
	}
	return summary(found, q, from, now, complete), nil
}

// retentions are those that tasks have: the default, those of types, and the least one of ticks.
func retentions(types []*model.TaskType) []time.Duration {
	out := []time.Duration{lifecycle.DefaultRetention, lifecycle.MinTickRetention}
	for _, t := range types {
		if r := max(t.Options.Retention, lifecycle.MinRetention); t.Options.Retention > 0 && !slices.Contains(out, r) && len(out) < mostRetentions {
			out = append(out, r)
		}
	}
	return out
}

// summary says what became of tasks that ended after a time.
func summary(tasks map[string]*model.Task, q Query, from, now time.Time, complete bool) Ended {
	out := Ended{From: stamp(from), Complete: complete, Types: map[string]TypeEnded{}}
	late, took := map[string][]int64{}, map[string][]int64{}
	for _, t := range tasks {
		if t.FinishedAt.Before(from) || q.Type != "" && q.Type != t.Type || q.Tenant != "" && q.Tenant != t.Tenant && (q.Tenant != model.NoTenant || t.Tenant != "") {
			continue
		}
		e := out.Types[t.Type]
		if e.Statuses == nil {
			e.Statuses = map[model.Status]int64{}
		}
		e.Count++
		e.Statuses[t.Status]++
		out.Types[t.Type] = e
		out.Count++
		if len(t.WorkerStates) > 0 {
			late[t.Type] = append(late[t.Type], max(t.WorkerStates[0].ClaimedAt.Sub(t.StartTime), 0).Milliseconds())
			took[t.Type] = append(took[t.Type], lifecycle.ExecTime(t).Milliseconds())
		}
	}
	for name, e := range out.Types {
		e.Late, e.Took = spread(late[name]), spread(took[name])
		out.Types[name] = e
	}
	if span := now.Sub(from).Seconds(); span > 0 {
		out.PerSecond = float64(out.Count) / span
	}
	return out
}

func spread(values []int64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	slices.Sort(values)
	at := func(share float64) int64 { return values[int(share*float64(len(values)-1))] }
	return Spread{at(0.5), at(0.95), at(1)}
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(clock.Format)
}
