package cli

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/bulk"
	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/secret"
)

const workHelp = `Run a worker for the built-in types, http and exec, in the foreground. It also delivers the
callbacks of all tasks; MSCHEDULER_SECRET_KEY decrypts the secrets that sign them. It runs bulk jobs
(mscheduler bulk), too.

--tenant, --category and --creator restrict the tasks that it runs, and combine. They do not
restrict callbacks.

exec runs programs that a task names, as this process's user. It is off unless --allow-exec
is given. http, periodic rules and callbacks do not call link-local and cloud metadata
addresses unless --allow-link-local is given. With --http-allow they call only the listed hosts.

With --periodic it also sends the tasks of periodic rules (mscheduler periodic). At least one
such process must run, or no rule fires. Run several for redundancy; they share the work.

With --flow it also runs the engine of flows (mscheduler flow). At least one such process must
run, or no flow continues. Run several for redundancy; they share the work.

With --plan it also runs the engine of plans (mscheduler plan). At least one such process must
run, or no plan gets beyond the step that waits. Run several for redundancy; they share the work.

With --completion-addr it also accepts the completions of asynchronous HTTP targets, for the rules of
all workers: POST or PUT /api/v1/callbacks/{token}. Targets call --completion-url. It is required
where --completion-addr is every address of the machine (:8080, 0.0.0.0:8080).

The first Ctrl-C (or SIGTERM) stops gracefully. The worker claims nothing new, handlers have
--shutdown-timeout, and unfinished tasks go back at once. A second signal, at least half a
second later, ends the process; other workers take its tasks over when their leases lapse.

OTEL_EXPORTER_OTLP_ENDPOINT names the collector of traces (docs/traces.md).

The worker waits for a database that goes away later. A database that does not answer at the
start is an error.

` + checkConfigHelp

// workFlags configure a worker.
type workFlags struct {
	workerID        string
	concurrency     int
	tenants         []string
	categories      []string
	creators        []string
	shutdownTimeout time.Duration
	pollInterval    time.Duration
	noStream        bool
	allowExec       bool
	allowLinkLocal  bool
	allowHosts      []string
	completionAddr  string
	completionURL   string
	bodyLimit       int
	outputLimit     int
	events          bool
	withStdin       bool
	periodic        bool // decide the ticks of periodic rules, too
	flow            bool // run the engine of flows, too
	plan            bool // run the engine of plans, too

	reach httpcall.Reach // where http tasks and the targets of rules may call; callbacks, too
}

func (w *workFlags) register(f *pflag.FlagSet) {
	f.StringVar(&w.workerID, "worker-id", "", "name of this worker; defaults to host, process and random letters")
	f.IntVar(&w.concurrency, "concurrency", 100, "number of tasks that run at once")
	withVariable(f, "worker-id", "MSCHEDULER_WORKER_ID")
	withVariable(f, "concurrency", "MSCHEDULER_CONCURRENCY")
	f.StringSliceVar(&w.tenants, "tenant", nil, "run only tasks of these tenants; - for tasks without a tenant; defaults to all")
	f.StringSliceVar(&w.categories, "category", nil, "run only tasks of these categories; defaults to all")
	f.StringSliceVar(&w.creators, "creator", nil, "run only tasks of these creators; defaults to all")
	spanVar(f, &w.shutdownTimeout, "shutdown-timeout", 30*time.Second, "how long running tasks may continue after the first Ctrl-C")
	spanVar(f, &w.pollInterval, "poll-interval", 30*time.Second, "interval of polls for tasks, next to the change stream")
	f.BoolVar(&w.noStream, "no-stream", false, "poll for tasks instead of watching the change stream")
	f.BoolVar(&w.allowExec, "allow-exec", false, "run exec tasks: any program that a task names, as this process's user")
	f.BoolVar(&w.allowLinkLocal, "allow-link-local", false, "let http tasks and callbacks call link-local and cloud metadata addresses")
	f.StringSliceVar(&w.allowHosts, "http-allow", nil, "hosts (example.org, *.example.org) and networks (10.0.0.0/8) that http tasks, periodic rules and callbacks may call; defaults to all")
	f.StringVar(&w.completionAddr, "completion-addr", "", "address that accepts the completions of periodic HTTP targets (default none)")
	f.StringVar(&w.completionURL, "completion-url", "", "public URL of that address, or of another process that accepts completions (default http://ADDR of --completion-addr)")
	f.IntVar(&w.bodyLimit, "http-body-limit", 64<<10, "most bytes of a response that a result keeps")
	f.IntVar(&w.outputLimit, "exec-output-limit", 64<<10, "most bytes of a program's output that a result keeps")
	f.BoolVar(&w.events, "events", false, "write events to stdout, one JSON object per line")
	f.BoolVar(&w.withStdin, "stop-with-stdin", false, "stop when stdin ends, because the parent process has ended")
	_ = f.MarkHidden("stop-with-stdin")
}

func (a *app) workCommand() *cobra.Command {
	var w workFlags
	var o observeFlags
	var check bool
	cmd := &cobra.Command{
		Use: "work", Short: "Run a worker for the built-in types", Long: workHelp, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.workConfig(&w)
			if check {
				return a.checkConfig(cmd, err, func(_ context.Context, c *connection, _ bool) error { return errors.Join(w.check(c, cfg), o.check()) })
			}
			if err != nil {
				return err
			}
			c, stop, err := a.observed(cmd.Context(), &o)
			if err != nil {
				return err
			}
			defer stop()
			return a.runWorker(cmd.Context(), c, &w, cfg)
		},
	}
	w.register(cmd.Flags())
	o.register(cmd.Flags())
	checkFlag(cmd.Flags(), &check)
	cmd.Flags().BoolVar(&w.periodic, "periodic", false, "also run the engine of periodic rules")
	cmd.Flags().BoolVar(&w.flow, "flow", false, "also run the engine of flows")
	cmd.Flags().BoolVar(&w.plan, "plan", false, "also run the engine of plans")
	return cmd
}

// workConfig checks the flags and makes the consumer's configuration.
func (a *app) workConfig(w *workFlags) (consumer.Config, error) {
	cfg := consumer.Config{
		WorkerID: w.workerID, Concurrency: w.concurrency, NoStream: w.noStream, Version: version(), Logger: a.logger(),
		Tenants: w.tenants, Categories: w.categories, Creators: w.creators,
	}
	cfg.Callbacks = &consumer.CallbackConfig{
		SecretKey: a.Env.SecretKey, AllowLinkLocal: w.allowLinkLocal, Allow: w.allowHosts, Proxy: http.ProxyFromEnvironment,
	}
	const most = 512 << 10 // a result has at most 1 MiB, and base64 takes a third more
	var errs []error
	if w.concurrency == 0 { // the consumer would take it for its default
		errs = append(errs, input.Invalid("concurrency", "is 0; want 1 to 1000000"))
	}
	for _, l := range []struct {
		name string
		n    int
	}{{"http-body-limit", w.bodyLimit}, {"exec-output-limit", w.outputLimit}} {
		if l.n < 1 || l.n > most {
			errs = append(errs, usage("--%s is %d; want 1 to %d", l.name, l.n, most))
		}
	}
	cfg.ShutdownTimeout, cfg.PollInterval = w.shutdownTimeout, w.pollInterval
	if cfg.ShutdownTimeout == 0 {
		cfg.ShutdownTimeout = -1 // not at all; 0 would be the consumer's default
	}
	allow, err := httpcall.ParseAllow("--http-allow", w.allowHosts)
	if err != nil {
		cfg.Callbacks.Allow = nil // or the consumer reports the mistake again
	}
	w.reach = httpcall.Reach{AllowLinkLocal: w.allowLinkLocal, Allow: allow, Proxy: http.ProxyFromEnvironment}
	return cfg, errors.Join(append(errs, err)...)
}

// runWorker works until ctx ends, then stops gracefully. What runs beside the worker ends with it.
func (a *app) runWorker(ctx context.Context, conn *connection, w *workFlags, cfg consumer.Config, beside ...func(context.Context) error) error {
	cfg.Database, cfg.Prefix, cfg.TracerProvider = conn.db, conn.prefix, a.traces
	if w.events {
		events := newEventWriter(a.Stdout)
		defer events.close()
		cfg.OnEvent = events.take
	}
	c, err := consumer.New(cfg)
	if err != nil {
		return err
	}
	takes, err := a.takeCompletions(conn, w)
	if err != nil {
		return err
	}
	defer takes.stop()
	box, err := secret.Parse("MSCHEDULER_SECRET_KEY", a.Env.SecretKey)
	if err != nil {
		return err
	}
	o := builtin.Options{
		Targets: builtin.TargetOptions{CompletionURL: takes.url, Secrets: box},
		HTTP:    builtin.HTTPOptions{BodyLimit: w.bodyLimit, Reach: w.reach},
	}
	types := builtin.HTTP.Name()
	if w.allowExec {
		o.Exec = &builtin.ExecOptions{OutputLimit: w.outputLimit, Env: programEnv(a.Environ)}
		types += " and " + builtin.Exec.Name()
	}
	if err := builtin.Register(c, o); err != nil {
		return err
	}
	if err := bulk.Register(c, bulk.New(conn.producer, conn.admin, conn.store)); err != nil {
		return err
	}
	if w.withStdin {
		var cancel context.CancelFunc
		ctx, cancel = untilEOF(ctx, a.Stdin)
		defer cancel()
	}
	work := []string{types + " tasks"}
	names, engines := w.engines(conn)
	work = append(work, names...)
	a.say("worker %s runs %s of %s; Ctrl-C stops it gracefully", c.WorkerID(), human.List(work), conn)
	defer context.AfterFunc(ctx, func() {
		if n := c.Stats().Held; n > 0 {
			a.say("stopping: waiting at most %s for %s; press Ctrl-C again to exit at once", span(w.shutdownTimeout), human.Plural(n, "task", "tasks"))
		}
	})()
	run := c.Run
	if len(beside) > 0 {
		run = staying(run, func() {
			a.say("worker %s was asked to stop and has stopped; the rest of this process goes on; restart it to run tasks here again", c.WorkerID())
		})
	}
	err = together(ctx, run, append(engines, beside...)...)
	if err == nil {
		s := c.Stats()
		a.say("stopped: %s, %d taken over from other workers, %d late results refused", human.Plural(s.Finished, "execution finished", "executions finished"), s.Takeovers, s.Fenced)
	}
	return err
}

// staying runs a worker in a process that does more. A worker that stops because somebody asked it to does not end the
// process: staying calls say and waits for the end of ctx.
func staying(worker func(context.Context) error, say func()) func(context.Context) error {
	return func(ctx context.Context) error {
		err := worker(ctx)
		if err == nil && ctx.Err() == nil {
			say()
			<-ctx.Done()
		}
		return err
	}
}

// engines are those that the flags ask for, and what they run.
func (w *workFlags) engines(conn *connection) (names []string, run []func(context.Context) error) {
	for _, e := range []struct {
		wanted bool
		name   string
		run    func(context.Context) error
	}{{w.periodic, "the periodic rules", conn.rules.Run}, {w.flow, "the flows", conn.flows.Run}, {w.plan, "the plans", conn.plans.Run}} {
		if e.wanted {
			names, run = append(names, e.name), append(run, e.run)
		}
	}
	return names, run
}

// together runs one thing and the others beside it, until ctx ends or one of them cannot go on.
func together(ctx context.Context, one func(context.Context) error, others ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(others))
	for _, other := range others {
		go func() {
			defer cancel()
			ended <- other(ctx)
		}()
	}
	errs := []error{one(ctx)}
	cancel()
	for range others {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// programEnv is the environment of exec tasks: the worker's own without its settings,
// which hold the database's password, and without those of its exporter of traces, which may
// hold the key of a collector.
func programEnv(environ []string) []string {
	out := []string{}
	for _, kv := range environ {
		if !strings.HasPrefix(kv, "MSCHEDULER_") && !strings.HasPrefix(kv, "OTEL_EXPORTER_OTLP_") {
			out = append(out, kv)
		}
	}
	return out
}

// untilEOF ends the context when r does.
func untilEOF(ctx context.Context, r io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, r) // its end is all that matters, however it comes
		cancel()
	}()
	return ctx, cancel
}
