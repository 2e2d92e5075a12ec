package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/internal/bench"
)

const benchHelp = `Measure throughput and latency on a server, next to the raw writes of that server.

Most scenarios first measure the raw rate of the same writes on the same server: a bulk
insert, then two batches of guarded updates for each document. RATIO is the scenario's rate
divided by the raw rate. Without arguments all scenarios run:

%s
The bench runs on an embedded server: in memory, or on a file with --path. With --uri or
MSCHEDULER_MONGODB_URI it runs on that deployment. Each part creates its own database and
drops it afterwards, also after Ctrl-C. A database that exists is refused. Nothing else on
the server is touched, but the load is real: do not run it next to production.

preloaded and fleet also report the finds, claims and ends: their number, mean time and mean
size. They report the processor time of the workers, and of a server on this machine (Linux).

With -o json each scenario, or part of one, prints one object on a line. A part that ended
early reports its measurements so far.`

type benchFlags struct {
	bench.Config
	cpuProfile string
}

func (b *benchFlags) register(f *pflag.FlagSet) {
	f.IntVar(&b.Tasks, "tasks", 0, "number of tasks, in steady of the raw writes only, in limited of the backlog; the default depends on the scenario")
	f.IntVar(&b.Processes, "processes", 0, "worker processes of fleet, paced, limited and idle; defaults to 4, 8, 4 and 10")
	f.IntVar(&b.Concurrency, "concurrency", 0, "executions at once in each process; in send, senders at once; in pull, of the worker in the process; defaults to 100")
	spanVar(f, &b.Duration, "duration", 0, "how long paced without --tasks, steady and idle take, archive before and after, and each part of periodic and plan that waits; defaults to 30s, 5m, 3m, 30s, and 30s or 1m")
	f.Float64Var(&b.Rate, "rate", 0, "tasks a second of paced; defaults to 100")
	f.IntVar(&b.ArgsBytes, "args-bytes", 0, "size of each task's arguments; defaults to 100")
	f.IntVar(&b.Later, "later", 0, "tasks that are not due beside those of delayed; defaults to 1000000")
	f.IntVar(&b.Others, "others", 0, "tasks for another worker beside those of delayed; defaults to 100000")
	f.BoolVar(&b.Results, "results", false, "preloaded, fleet and delayed: each handler returns a different result, and the raw writes use one statement for each end")
	spanVar(f, &b.RTT, "rtt", 0, "preloaded and fleet: measure again behind a proxy that adds this time to each round trip, such as 5ms")
	f.StringVar(&b.Against, "against", "", "preloaded and fleet: measure again with workers of this other build of mscheduler")
	f.StringVar(&b.Path, "path", "", "file of the embedded server, made and removed; defaults to none, in memory")
	f.BoolVar(&b.Small, "small", false, "smaller defaults: all scenarios in a few minutes")
	f.StringVar(&b.cpuProfile, "cpuprofile", "", "write a CPU profile of what is measured; this process is also the embedded server. Each further part and each worker process has a file of its own, its name appended")
}

func (a *app) benchCommand() *cobra.Command {
	var b benchFlags
	cmd := &cobra.Command{
		Use: "bench [SCENARIO...]", Short: "Measure throughput and latency, next to the raw writes of the server",
		Long: fmt.Sprintf(benchHelp, bench.Help()), ValidArgs: bench.Names(),
		RunE: func(cmd *cobra.Command, args []string) error {
			b.Scenarios = args
			for _, w := range b.Warnings() {
				a.say("%s", w)
			}
			if err := a.benchConfig(&b); err != nil {
				return err
			}
			return a.bench(cmd.Context(), &b)
		},
	}
	b.register(cmd.Flags())
	cmd.AddCommand(a.benchScaleCommand(), a.benchCompareCommand(), &cobra.Command{
		Use: "worker", Hidden: true, Args: noArgs, Short: "Run a worker of a bench",
		RunE: func(cmd *cobra.Command, _ []string) error { return bench.Work(cmd.Context(), a.Stdin, a.Stdout) },
	})
	return cmd
}

// benchConfig completes the configuration by the shared flags and the process's own.
func (a *app) benchConfig(b *benchFlags) error {
	if err := b.Validate(); err != nil {
		return err
	}
	if b.Path != "" && a.given("uri") {
		return usage("--path is for the embedded server, --uri for a deployment: give one of them")
	}
	if a.flags.uri != "" && b.Path == "" {
		t, err := a.targetOf(a.flags.uri, a.from("uri"))
		if err != nil {
			return err
		}
		b.URI = t.uri
	}
	b.Database = a.flags.database
	if !a.given("database") { // never the environment's, nor the URI's: those are somebody's
		b.Database = "mscheduler_bench_" + strings.ToLower(rand.Text()[:10])
	}
	b.Executable, b.WorkerArgs, b.WorkerEnv = a.Executable, []string{"bench", "worker"}, a.Environ
	return a.validDatabase(b.Database)
}

func (a *app) bench(ctx context.Context, b *benchFlags) (err error) {
	if b.cpuProfile != "" {
		p, err := newBenchProfile(b.cpuProfile)
		if err != nil {
			return err
		}
		b.OnMeasure, b.WorkerProfile = p.measure, p.worker
		defer func() {
			if p.failed != nil {
				a.say("writing the profile: %v", p.failed)
			}
		}()
	}
	if b.URI != "" {
		a.say("the bench makes the database %s and drops it afterwards", b.Database)
	}
	watch := &benchWatch{app: a}
	b.OnProgress = watch.step
	t := newTable(bench.Headings...)
	began := a.clock().Monotonic()
	err = bench.Run(ctx, b.Config, func(r bench.Result) error {
		watch.end()
		t.add(r.Row()...)
		for _, n := range r.Notes {
			a.say("%s: %s", r.Scenario, n)
		}
		if a.asJSON() {
			return a.printJSON(r)
		}
		if a.StderrTerminal {
			a.say("%s: done after %s", r.Scenario, (a.clock().Monotonic() - began).Round(time.Second))
		}
		return nil
	})
	watch.end()
	if !a.asJSON() && len(t.rows) > 0 {
		err = errors.Join(err, a.print(t.flush()))
	}
	if errors.Is(err, bench.ErrRefused) {
		return coded(ExitRefused, "%w", err)
	}
	return err
}

// benchWatch shows how far a step is. Several goroutines may call it.
type benchWatch struct {
	app  *app
	mu   sync.Mutex
	bar  *progressbar.ProgressBar // nil between two steps
	what string
}

func (w *benchWatch) step(scenario, step string, done, total int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if what := scenario + " " + step; what != w.what || w.bar == nil {
		w.finish()
		w.what, w.bar = what, w.app.bar(int64(total), what)
	}
	_ = w.bar.Set(min(done, total)) // what it draws is not the result
}

// end takes the bar away.
func (w *benchWatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finish()
}

func (w *benchWatch) finish() {
	if w.bar != nil {
		_ = w.bar.Finish() // what it draws is not the result
		w.bar = nil
	}
}
