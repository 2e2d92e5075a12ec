package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mscheduler/mscheduler/producer"
)

// scenario is one or several parts, each with a database of its own.
type scenario struct {
	name, short string
	parts       func(c *Config) []part
}

type part struct {
	name      string // of its result
	processes int
	run       func(context.Context, *run) error
}

var scenarios = []scenario{
	{"preloaded", "drain a backlog of no-op tasks with one process", preloaded},
	{"fleet", "the same with several processes", fleet},
	{"paced", "a fixed rate: how late handlers start, with one and with several idle processes", paced},
	{"delayed", "preloaded beside a million tasks that are not due, and beside those of other workers", delayed},
	{"steady", "tasks are sent as fast as they finish: rate and fetches by the half minute", steady},
	{"limited", "starts a second of a type with max_running: alone, beside and behind a backlog of another type", limited},
	{"idle", "commands a minute of idle workers, one and ten", idle},
	{"takeover", "a worker killed with a thousand executions: from each lapse to its new start", takeover},
	{"archive", "what workers lose while finished tasks move to the history, and whether all arrive", archive},
	{"periodic", "500 rules of every second: how late their tasks are stored; and what 100,000 rules cost of which one is due a second", periodics},
	{"send", "producers only: one by one, concurrent, batched", send},
}

// Names are the scenarios in the order in which they run by default.
func Names() []string {
	out := make([]string, len(scenarios))
	for i, s := range scenarios {
		out[i] = s.name
	}
	return out
}

// Help says what each scenario does, a line each.
func Help() string {
	var out string
	for _, s := range scenarios {
		out += fmt.Sprintf("  %-10s %s\n", s.name, s.short)
	}
	return out
}

// Run runs the scenarios one after the other and hands over each result when it is there.
// When it fails or ctx ends, the part that was under way reports what it measured until
// then, marked as Partial, and the rest is left out. The error wraps [ErrRefused] when
// the database or the file exists. Everything that it made is gone afterwards.
func Run(ctx context.Context, c Config, result func(Result) error) error {
	if err := c.Validate(); err != nil {
		return err
	}
	c = c.withDefaults()
	all := &results{}
	for _, name := range c.Scenarios {
		at := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
		for _, p := range scenarios[at].parts(&c) {
			if err := runPart(ctx, &c, p, all, result); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	return nil
}

// results are those of this bench so far, for comparisons between parts.
type results struct{ list []Result }

func (r *results) of(name string) (Result, bool) {
	for _, x := range slices.Backward(r.list) {
		if x.Scenario == name && !x.Partial {
			return x, true
		}
	}
	return Result{}, false
}

// run is one part under way.
type run struct {
	cfg     *Config
	arena   *arena
	res     *Result
	earlier *results
	extra   []Result // beside its own
	name    string

	yard yardstick // tasks 0 = none
	raw  spent     // by the yardstick, before and after
	cpu  *float64  // microseconds of processor time a task
}

func runPart(ctx context.Context, c *Config, p part, all *results, result func(Result) error) (err error) {
	r := &run{cfg: c, name: p.name, earlier: all, res: &Result{Scenario: p.name, Processes: p.processes, Concurrency: c.Concurrency}}
	r.arena, err = openArena(ctx, c)
	if err != nil {
		return err
	}
	r.res.Engine = r.arena.engine
	if err = p.run(ctx, r); err == nil {
		err = r.measureAgain(ctx)
	}
	err = errors.Join(err, r.arena.close(ctx))
	r.res.Partial = err != nil
	if err != nil && r.res.Tasks == 0 && r.res.RawPerSecond == nil && len(r.res.Commands) == 0 {
		return err // nothing was measured
	}
	for _, x := range append([]Result{*r.res}, r.extra...) {
		all.list = append(all.list, x)
		err = errors.Join(err, result(x))
	}
	return err
}

func (r *run) progress(step string) func(done, total int) {
	return func(done, total int) { r.cfg.OnProgress(r.name, step, done, total) }
}

func (r *run) note(format string, values ...any) {
	r.res.Notes = append(r.res.Notes, fmt.Sprintf(format, values...))
}

// measureRaw comes first in every part that has a yardstick. It is repeated at the end,
// and the mean counts: on a machine that does other things, too, the two differ.
func (r *run) measureRaw(ctx context.Context, y yardstick) error {
	r.yard = y
	return r.measureYard(ctx)
}

func (r *run) measureYard(ctx context.Context) error {
	s, err := raw(ctx, r.arena, r.yard, r.cfg.ArgsBytes, r.progress("raw writes"))
	if err != nil {
		return err
	}
	r.raw.add(s)
	r.res.yardstick(perSecond(r.raw.tasks, r.raw.took))
	return nil
}

// measureAgain repeats the yardstick after the scenario.
func (r *run) measureAgain(ctx context.Context) error {
	if r.yard.tasks == 0 {
		return nil
	}
	if err := r.measureYard(ctx); err != nil {
		return err
	}
	for i := range r.extra {
		r.extra[i].yardstick(r.res.RawPerSecond)
	}
	if each := r.raw.cpuEach(); each != nil && r.cpu != nil && r.arena.server != nil {
		r.note("processor time a task, server included: raw %.0f µs, here %.0f µs, %.2f", *each, *r.cpu, *each / *r.cpu)
	}
	return nil
}

// crew makes the workers of the part; the returned function ends them.
func (r *run) crew() (*crew, func()) {
	c := newCrew(r.cfg)
	return c, c.dismiss
}

// spec is what worker number i is told, if it is nothing special.
func (r *run) spec(i int) spec {
	return spec{URI: r.arena.uri, Database: r.arena.name, WorkerID: workerID(i), Concurrency: r.cfg.Concurrency}
}

func workerID(i int) string { return fmt.Sprintf("bench-%d", i+1) }

// producer makes one on the arena's database; the caller closes it.
func (r *run) producer() (*producer.Producer, error) {
	return producer.New(producer.Config{Database: r.arena.db, Clock: r.cfg.Clock})
}
