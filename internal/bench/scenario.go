package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// scenario is one or several parts, each with a database of its own.
type scenario struct {
	name, short string
	parts       func(c *Config) []part
}

// part is one measurement, as [run.drive] carries it out.
type part struct {
	name        string // of its result
	workers     int    // 0 = none
	concurrency int    // of each worker, and in send of the senders; 0 = the Config's
	raw         yardstick
	load        func(context.Context, *run) error // stores what the workers find; nil = nothing
	orders      func(*run, *spec)                 // changes what each worker is told; nil = nothing
	here        bool                              // the workers run in this process
	build       string                            // the executable of the workers; "" = this build
	rtt         time.Duration                     // added to each round trip of the workers
	settle      time.Duration                     // for how long workers that watch are left alone first; 0 = they start when it is measured
	usage       bool                              // what the server used is reported, too
	profiles    bool                              // measure calls Config.OnMeasure itself
	// measure waits until what is to be measured has happened, and sets the result's rate,
	// also when it fails.
	measure func(context.Context, *run) error
	after   func(*run) // completes the result, also a partial one; nil = nothing
}

var scenarios = []scenario{
	{"preloaded", "drain a backlog of no-op tasks with one process", drainByOne},
	{"fleet", "the same with several processes", drainByMany},
	{"paced", "start latency at a fixed rate, with one idle process and with several", paced},
	{"delayed", "preloaded next to a million tasks that are not due, and next to tasks of other workers", delayed},
	{"steady", "tasks are sent as fast as they finish; rate and fetch times by the half minute", steady},
	{"limited", "starts a second of a type with max_running: alone, next to and behind a backlog of another type", limited},
	{"idle", "commands a minute of idle workers, one and ten", idle},
	{"takeover", "kill a worker with a thousand executions; time from each lapse to the new start", takeover},
	{"archive", "throughput while finished tasks move to the history, and whether all arrive", archive},
	{"periodic", "how late the tasks of 500 rules of every second are stored; what 100,000 rules at rest cost", periodics},
	{"flow", "what a node of a flow costs beside a plain task, and how soon it starts after its parent", flows},
	{"plan", "how late the steps of 100,000 plans in a minute start beside ticks; a plan beside a delayed send; 100,000 plans at rest", plans},
	{"pull", "drain a backlog with 200 workers that fetch over HTTP, beside one in the process", pulls},
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
