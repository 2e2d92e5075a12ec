// Package doctor examines a deployment: the connection, the server, the schema and its indexes, the clocks, the workers,
// engines and tasks that wait. The command line and the REST API show the same findings. Every read is bounded.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Config says what to examine.
type Config struct {
	Store    *store.Store
	Database string             // its name in findings
	Server   string             // what answers, in findings, such as its addresses
	Machine  string             // whose clock is compared, in findings
	Writes   bool               // tries the user's privileges to write, which makes a small collection and drops it
	Text     func(error) string // of an error of the database
}

// Finding is what one check has found.
type Finding struct {
	Check  string `json:"check"`
	State  string `json:"state" enum:"ok,warn,fail"`
	Detail string `json:"detail"`
	Advice string `json:"advice,omitempty" doc:"what to do"`
}

// Report is what an examination has found.
type Report struct {
	Findings    []Finding
	Unreachable bool // the database does not answer, so little was examined
}

// Count counts the findings that are fail, and those that are warn.
func (r *Report) Count() (fails, warns int) {
	for _, f := range r.Findings {
		switch f.State {
		case "fail":
			fails++
		case "warn":
			warns++
		}
	}
	return fails, warns
}

// Unreached is the report on a database that does not answer.
func Unreached(reason string) *Report {
	advice := "check the addresses, tls and replicaSet in the URI, the network, and that a primary is elected"
	return &Report{Unreachable: true, Findings: []Finding{{"connection", "fail", human.OneLine(reason, 300), advice}}}
}

// Examine goes through all checks.
func Examine(ctx context.Context, c Config) *Report {
	d := &doctor{Config: c, store: c.Store}
	d.examine(ctx)
	return &d.Report
}

type doctor struct {
	Config
	Report
	store *store.Store
	now   time.Time
}

func (d *doctor) ok(check, format string, args ...any) {
	d.Findings = append(d.Findings, Finding{check, "ok", fmt.Sprintf(format, args...), ""})
}

func (d *doctor) warn(check, detail, advice string) {
	d.Findings = append(d.Findings, Finding{check, "warn", detail, advice})
}

func (d *doctor) fail(check string, err error, advice string) {
	d.Findings = append(d.Findings, Finding{check, "fail", human.OneLine(d.Text(err), 300), advice})
}

// examine goes through all checks; one that makes the others senseless ends it.
func (d *doctor) examine(ctx context.Context) {
	top, ok := d.reach(ctx)
	if !ok {
		return
	}
	d.server(top)
	d.clocks(ctx)
	d.permissions(ctx, top)
	if d.schema(ctx) {
		if top.Sharded {
			d.sharding(ctx)
		}
		d.pauses(ctx)
		d.workers(ctx)
		d.lapses(ctx)
	}
}

func (d *doctor) reach(ctx context.Context) (store.Topology, bool) {
	began := d.store.Local().Monotonic()
	top, err := d.store.Topology(ctx)
	var fatal *store.FatalError
	switch {
	case err != nil && store.TooOld(err):
		d.fail("server", err, "use MongoDB 4.4 or later")
		return top, false
	case errors.As(err, &fatal):
		d.fail("connection", err, "check user, password and authSource in the URI")
		return top, false
	case err != nil:
		d.Report = *Unreached(d.Text(err))
		return top, false
	}
	d.ok("connection", "%s answers (first answer after %s)", d.Server, human.Rough(d.store.Local().Monotonic()-began))
	return top, true
}

func (d *doctor) server(top store.Topology) {
	version := top.Version
	if version == "" {
		version = "unknown (the user may not read it)"
	}
	switch {
	case top.Embedded:
		d.warn("server", "the embedded server, which behaves as MongoDB "+version, "suitable for development, tests and a single small machine; in production use a MongoDB replica set")
	case top.Sharded:
		d.ok("server", "MongoDB %s, sharded cluster: workers poll every second", version)
	case top.Fragile():
		d.warn("server", "MongoDB "+version+", replica set with an arbiter: if one member with data is lost, no write is acknowledged",
			"replace the arbiter with a member that has data")
	case top.ReplicaSet:
		d.ok("server", "MongoDB %s, replica set, primary %s", version, top.Primary)
	default:
		d.warn("server", "MongoDB "+version+", standalone: no transactions, and workers poll instead of watching",
			"make it a replica set (one member is enough)")
	}
}

// clocks compares this machine's clock with the server's. Workers go by the server's;
// a difference matters to people, who read both.
func (d *doctor) clocks(ctx context.Context) {
	local := d.store.Local()
	began := local.Monotonic()
	server, err := d.store.ServerTime(ctx)
	trip := local.Monotonic() - began
	if err != nil {
		d.fail("clock", err, "")
		d.now = local.Now()
		return
	}
	d.now = server
	diff := local.Now().Sub(server) - trip/2
	if diff.Abs() < time.Second {
		d.ok("clock", "%s differs from the database by %s (round trip: %s)", d.Machine, human.Rough(diff.Abs()), human.Rough(trip))
		return
	}
	d.warn("clock", fmt.Sprintf("%s differs from the database by %s", d.Machine, human.Rough(diff.Abs())),
		"workers use the database's time and are unaffected, but times for --at are not; synchronize the clock with NTP")
}

func (d *doctor) permissions(ctx context.Context, top store.Topology) {
	const advice = "grant the user the role readWrite on the database"
	if err := d.store.Tasks.ProbeRead(ctx); err != nil {
		d.fail("reading", err, advice)
	} else {
		d.ok("reading", "allowed")
	}
	if d.Writes {
		if err := d.store.Tasks.ProbeWrite(ctx); err != nil {
			d.fail("writing", err, advice)
		} else {
			d.ok("writing", "allowed, including index creation")
		}
	}
	if !top.Subscriptions() {
		return
	}
	if err := d.store.Tasks.ProbeWatch(ctx); err != nil {
		d.warn("change stream", human.OneLine(d.Text(err), 300), "workers poll instead and react more slowly, and subscriptions are not available; "+advice)
	} else {
		d.ok("change stream", "allowed")
	}
}

// schema says whether the rest can be looked at.
func (d *doctor) schema(ctx context.Context) bool {
	st, err := d.store.Schema(ctx)
	if err != nil {
		d.fail("schema", err, "")
		return false
	}
	state, ready := st.State()
	switch {
	case ready:
		d.ok("schema", "version %d, %s, all indexes are there", st.Version, state)
	case st.Version == 0 && st.Foreign == "":
		d.warn("schema", "database "+d.Database+" is not set up", "if it is the right database, the first send or worker sets it up, or run: mscheduler db migrate")
	default:
		d.fail("schema", errors.New(state), "")
	}
	return st.Version > 0
}

// sharding checks whether the tasks are distributed over the shards of a cluster.
func (d *doctor) sharding(ctx context.Context) {
	all, shards, err := d.store.Sharding(ctx)
	if err != nil {
		d.warn("sharding", "cannot be read: "+human.OneLine(d.Text(err), 200), "grant the user the role clusterMonitor")
		return
	}
	var missing, onOne []string
	for _, s := range all {
		switch {
		case !s.Ready:
			missing = append(missing, s.Collection)
		case s.Shards == 1 && shards > 1:
			onOne = append(onOne, s.Collection)
		}
	}
	if len(missing) > 0 {
		d.warn("sharding", strings.Join(missing, " and ")+": not sharded by {_id: \"hashed\"}, so one shard holds every document", "run: mscheduler db shard")
		return
	}
	if len(onOne) > 0 {
		d.warn("sharding", fmt.Sprintf("%s: sharded, but one of %d shards holds every document", strings.Join(onOne, " and "), shards),
			"spread the chunks as docs/operations.md says under \"Shard a cluster\"")
		return
	}
	d.ok("sharding", "tasks and history are distributed over the shards")
}

func (d *doctor) pauses(ctx context.Context) {
	pauses, err := d.store.Control.Pauses(ctx)
	if err != nil {
		d.fail("pauses", err, "")
		return
	}
	if len(pauses) == 0 {
		d.ok("pauses", "none")
		return
	}
	var types, notes []string
	all := false
	for i := range pauses {
		p := &pauses[i]
		name := p.Type()
		if name == "" {
			name, all = "all types", true
		} else {
			types = append(types, name)
		}
		if p.Note != "" {
			notes = append(notes, name+": "+human.OneLine(p.Note, 100))
		}
	}
	named := strings.Join(types, " ")
	detail, advice := "claiming is paused for "+named, "to resume: mscheduler resume "+named
	switch {
	case all && named != "": // each has its own end
		detail, advice = "claiming is paused for all types, and for "+named+" by name", "to resume: mscheduler resume --all, and mscheduler resume "+named
	case all:
		detail, advice = "claiming is paused for all types", "to resume: mscheduler resume --all"
	}
	if len(notes) > 0 {
		detail += " (" + strings.Join(notes, "; ") + ")"
	}
	d.warn("pauses", detail, advice)
}

// overdue is how long a due task may wait for a claim before the examination warns.
const overdue = time.Minute

// workers says who lives, and whether due tasks have somebody to run them.
func (d *doctor) workers(ctx context.Context) {
	all, err := d.store.Workers.List(ctx)
	if err != nil {
		d.fail("workers", err, "")
		return
	}
	served := map[string]*takers{}
	serves := func(w *store.Worker, typ string) {
		if served[typ] == nil {
			served[typ] = &takers{}
		}
		served[typ].add(lifecycle.ConditionsFor(w.Only, typ))
	}
	all = slices.DeleteFunc(all, func(w store.Worker) bool { return !w.Alive(d.now) })
	d.sharedIDs(all)
	d.living(all)
	all = slices.DeleteFunc(all, func(w store.Worker) bool { return w.Draining })
	for i := range all {
		for _, t := range all[i].Types {
			serves(&all[i], t)
		}
	}
	d.callbacks(ctx, served[input.CallbackType] != nil)
	d.engines(ctx, func(typ string) bool { return served[typ] != nil })
	due, err := d.store.Tasks.DueTypes(ctx, d.now)
	if err != nil {
		d.fail("due tasks", err, "")
		return
	}
	for _, t := range due {
		for i := range all {
			if w := &all[i]; w.Serves(t.Type) && !slices.Contains(w.Types, t.Type) { // it pulls by categories
				serves(w, t.Type)
			}
		}
	}
	d.dueTasks(ctx, due, served)
}

// living counts the live workers, and apart from them the engines, which run no tasks.
func (d *doctor) living(alive []store.Worker) {
	workers, engines := 0, 0
	types, kinds := map[string]bool{}, map[string]bool{}
	for i := range alive {
		w, n, of := &alive[i], &workers, types
		if w.Concurrency == 0 && w.Stream != store.Pulling {
			n, of = &engines, kinds
		}
		*n++
		for _, t := range w.Types {
			if !w.Draining {
				of[t] = true
			}
		}
	}
	names := func(of map[string]bool) string {
		if len(of) == 0 {
			return ""
		}
		return ", for " + strings.Join(slices.Sorted(maps.Keys(of)), ", ")
	}
	others := ""
	if engines > 0 {
		others = "; " + human.Plural(engines, "live engine", "live engines") + names(kinds)
	}
	if workers == 0 {
		d.warn("workers", "no live worker"+others, "start one: mscheduler work, or a service with a consumer")
	} else {
		d.ok("workers", "%s%s%s", human.Plural(workers, "live worker", "live workers"), names(types), others)
	}
}

// sharedIDs names live workers whose ids several processes use.
func (d *doctor) sharedIDs(alive []store.Worker) {
	for i := range alive {
		w := &alive[i]
		if other := w.SharedBy(); other != nil {
			d.warn("worker ids", fmt.Sprintf("several processes use the worker id %s: pid %d on %s, and pid %d on %s", w.ID, other.PID, other.Host, w.PID, w.Host),
				"give each process its own worker id")
		}
	}
}

// callbacks says whether somebody delivers those that types and rules have. Those of single
// tasks are not looked for: their deliveries count among the due tasks.
func (d *doctor) callbacks(ctx context.Context, delivered bool) {
	types, unread, err := d.store.Types.List(ctx)
	for _, u := range unread {
		d.fail("task types", fmt.Errorf("the stored type %s cannot be read, so its tasks are neither sent nor claimed: %w", u.ID, u.Err), "")
	}
	const few = 5
	var rules []string
	if err == nil {
		rules, err = d.store.Rules.WithCallback(ctx, few)
	}
	if err != nil {
		d.fail("callbacks", err, "")
		return
	}
	var with []string
	for _, t := range types {
		if c := t.Options.Callback; c != nil && (c.Success != nil || c.Error != nil) {
			with = append(with, "the type "+t.Code)
		}
	}
	for _, name := range rules {
		with = append(with, "the rule "+strings.TrimPrefix(name, model.NoTenant+"/"))
	}
	lacked, err := d.lackedKeys(ctx)
	switch {
	case err != nil:
		d.fail("callbacks", err, "")
	case len(lacked) > 0:
		for _, id := range slices.Sorted(maps.Keys(lacked)) {
			d.warn("callbacks", human.Plural(lacked[id], "callback waits", "callbacks wait")+" for a worker with the secret key of id "+id+", which no worker that tried them has",
				"start a worker that has this key in MSCHEDULER_SECRET_KEY, or in CallbackConfig.SecretKey; several keys are separated by commas")
		}
	case len(with) == 0:
		d.ok("callbacks", "no type or rule has one")
	case delivered:
		d.ok("callbacks", "a live worker delivers them")
	default:
		if len(with) > few {
			with = append(with[:few], "and more")
		}
		d.warn("callbacks", "no live worker delivers the callbacks of "+strings.Join(with, ", ")+": their tasks stay Completed",
			"start one that does: mscheduler work, or a service with Callbacks in its consumer.Config")
	}
}

// lackedKeys counts the deliveries that wait for a secret key, by the key's id.
func (d *doctor) lackedKeys(ctx context.Context) (map[string]int, error) {
	reasons, err := d.store.Tasks.NotUnderstood(ctx, input.CallbackType)
	lacked := map[string]int{}
	for _, reason := range reasons {
		if id := secret.MissingKey(reason); id != "" {
			lacked[id]++
		}
	}
	return lacked, err
}

// takers are the live workers of a type.
type takers struct {
	all  bool                    // one of them takes each task
	only []*lifecycle.Conditions // of the others
}

func (t *takers) add(only *lifecycle.Conditions) {
	if t.all = t.all || only == nil; only != nil {
		t.only = append(t.only, only)
	}
}

func (d *doctor) dueTasks(ctx context.Context, due []store.DueType, served map[string]*takers) {
	var nobody []string
	excluded := false
	var oldest store.DueType
	for _, t := range due {
		by, outside := served[t.Type], ""
		if by != nil && !by.all {
			var err error
			if outside, err = d.store.Tasks.DueOutside(ctx, t.Type, by.only, d.now); err != nil {
				d.fail("due tasks", err, "")
				return
			}
		}
		if by == nil {
			nobody = append(nobody, t.Type)
		} else if outside != "" {
			d.warn("due tasks", "no live worker of type "+t.Type+" takes "+outside+": the task does not meet their conditions on tenant, category or creator",
				"start a worker that takes it; `mscheduler task explain` names the conditions")
			excluded = true
		} else if oldest.Type == "" || t.Oldest.Before(oldest.Oldest) {
			oldest = t
		}
	}
	if len(nobody) > 0 {
		d.warn("due tasks", "no live worker handles "+strings.Join(nobody, ", ")+", and tasks of "+human.Plural(len(nobody), "type", "types")+" wait", "start a worker for these types, or cancel the tasks")
	}
	waits := d.now.Sub(oldest.Oldest)
	switch {
	case oldest.Type == "" && len(nobody) == 0 && !excluded:
		d.ok("due tasks", "none waits")
	case oldest.Type == "":
	case waits > overdue:
		d.warn("due tasks", fmt.Sprintf("the oldest, of type %s, has been due since %s", oldest.Type, human.When(oldest.Oldest, d.now)),
			"add workers or raise their concurrency; `mscheduler task explain` says why one waits")
	default:
		d.ok("due tasks", "the oldest, of type %s, waits for %s", oldest.Type, human.Rough(max(waits, 0)))
	}
}

func (d *doctor) lapses(ctx context.Context) {
	const limit, grace = 1000, 10 * time.Second
	tasks, err := d.store.Tasks.LapsedBefore(ctx, d.now.Add(-grace), limit)
	switch {
	case err != nil:
		d.fail("leases", err, "")
	case len(tasks) == 0:
		d.ok("leases", "no lapsed lease is waiting for a takeover")
	default:
		n := fmt.Sprint(len(tasks))
		if len(tasks) == limit {
			n = "at least " + n
		}
		d.warn("leases", fmt.Sprintf("%s lapsed, the oldest (%s) %s", n, human.TaskID(tasks[0].ID), human.When(tasks[0].LapseAt, d.now)),
			"no worker of their types looks for lapsed leases: start one")
	}
}
