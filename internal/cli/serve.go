package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/server"
)

const serveHelp = `Run the dashboard, the REST API, a worker for the built-in types, and the engines of periodic rules, flows and
plans, in the foreground. --no-dashboard, --no-worker, --no-engines, --no-callbacks and --no-api
leave these to other processes.

The dashboard is at /ui/. The API is under /api/v1 and describes itself at /api/v1/openapi.json. Requests need a token
(mscheduler token create). Until the first token exists, serve binds to loopback addresses only,
and every request from this machine is allowed. With another --bind address it does not start
until a token exists. /livez, /readyz and the page to try the API at /docs/, which has no data,
answer without a token.

--oidc-issuer accepts tokens of an identity provider, too, and maps their claims to roles and
tenants. Then every request needs a token from the start.

--metrics-bind shows metrics at an address of their own. OTEL_EXPORTER_OTLP_ENDPOINT names the
collector of traces (docs/traces.md).

Asynchronous HTTP targets of periodic rules complete their runs at /api/v1/callbacks/{token}.
--completion-url is the address that they call. A worker requires it where --bind is every address
of the machine. With --no-callbacks it is that of another process.

The first Ctrl-C (or SIGTERM) stops gracefully; see mscheduler work --help for the worker.
/readyz then answers 503. With --shutdown-delay, serve keeps answering for this long, so that load
balancers can remove it.

` + checkConfigHelp

// serveFlags configure mscheduler serve.
type serveFlags struct {
	workFlags
	bind                string
	tlsCert, tlsKey     string
	certs               *certificates // of these
	provider            issuerFlags
	issuer              *server.Issuer // whom they name; nil = none
	noWorker, noEngines bool
	noAPI, noCallbacks  bool
	noDashboard         bool
	traceURL            string
	shutdownDelay       time.Duration
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	var o observeFlags
	var check bool
	cmd := &cobra.Command{
		Use: "serve", Short: "Run the dashboard, the REST API, a worker and the engines", Long: serveHelp, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.workConfig(&f.workFlags)
			err = errors.Join(err, f.prepare(cfg))
			if check {
				return a.checkConfig(cmd, err, func(ctx context.Context, c *connection, answers bool) error {
					return errors.Join(f.check(c, cfg), o.check(), a.checkServe(ctx, c, &f, answers))
				})
			}
			if err != nil {
				return err
			}
			conn, stop, err := a.observed(cmd.Context(), &o)
			if err != nil {
				return err
			}
			defer stop()
			return a.serve(cmd.Context(), conn, &f, cfg)
		},
	}
	f.register(cmd.Flags())
	o.register(cmd.Flags())
	f.provider.register(cmd.Flags())
	f.registerTraceURL(cmd.Flags())
	checkFlag(cmd.Flags(), &check)
	_ = cmd.Flags().MarkHidden("completion-addr")
	cmd.Flags().Lookup("completion-url").Usage = "public URL of this API, which asynchronous HTTP targets call (default: the address of --bind)"
	cmd.Flags().StringVar(&f.bind, "bind", "127.0.0.1:8080", "address to listen on; :8080 is every address of the machine")
	cmd.Flags().StringVar(&f.tlsCert, "tls-cert", "", "file of the TLS certificate; read again when it changes (default none: plain HTTP)")
	cmd.Flags().StringVar(&f.tlsKey, "tls-key", "", "file of the TLS key")
	spanVar(cmd.Flags(), &f.shutdownDelay, "shutdown-delay", 0, "how long requests are still answered after the first Ctrl-C, while /readyz fails (default not at all)")
	cmd.Flags().BoolVar(&f.noWorker, "no-worker", false, "run no tasks and deliver no callbacks in this process")
	cmd.Flags().BoolVar(&f.noEngines, "no-engines", false, "do not run the engines of periodic rules, flows and plans in this process")
	cmd.Flags().BoolVar(&f.noCallbacks, "no-callbacks", false, "accept no completions of asynchronous HTTP targets in this process")
	cmd.Flags().BoolVar(&f.noDashboard, "no-dashboard", false, "serve no pages at /ui/")
	cmd.Flags().BoolVar(&f.noAPI, "no-api", false, "serve only completions, /livez and /readyz")
	return cmd
}

func (f *serveFlags) registerTraceURL(flags *pflag.FlagSet) {
	flags.StringVar(&f.traceURL, "trace-url", "", "address of a trace, to which the dashboard links: https://jaeger.example.org/trace/{trace_id} (default none)")
}

// prepare checks the flags and reads the certificate.
func (f *serveFlags) prepare(cfg consumer.Config) (err error) {
	f.periodic, f.flow, f.plan = !f.noEngines, !f.noEngines, !f.noEngines
	switch {
	case f.bind == "":
		return usage("--bind is empty; want an address such as 127.0.0.1:8080, or :8080 for every address of the machine")
	case f.completionAddr != "":
		return usage("--completion-addr belongs to work; serve and dev accept completions at --bind")
	case f.shutdownDelay < 0 || f.shutdownDelay > time.Minute:
		return usage("--shutdown-delay is %s; want 0 to 1m", span(f.shutdownDelay))
	case (f.tlsCert == "") != (f.tlsKey == ""):
		return usage("--tls-cert and --tls-key belong together")
	case f.tlsCert != "":
		if f.certs, err = readCertificates(f.tlsCert, f.tlsKey, cfg.Logger); err != nil {
			return usage("--tls-cert: %v", err)
		}
	}
	if err := input.TraceURL("--trace-url", f.traceURL); err != nil {
		return usage("%v", err)
	}
	f.issuer, err = f.provider.issuer()
	return err
}

func (a *app) serve(ctx context.Context, conn *connection, f *serveFlags, cfg consumer.Config) error {
	listener, err := net.Listen("tcp", f.bind) //nolint:noctx // it takes no time
	if err != nil {
		return usage("--bind: %v", err)
	}
	return a.serveAt(ctx, listener, conn, f, cfg)
}

// serveAt is serve on a listener, which it closes.
func (a *app) serveAt(ctx context.Context, listener net.Listener, conn *connection, f *serveFlags, cfg consumer.Config) error {
	defer func() { _ = listener.Close() }() // if Serve has not
	open, err := a.openTo(ctx, conn, f, listener.Addr())
	if err != nil {
		return err
	}
	if err := f.completionsAt(listener.Addr()); err != nil {
		return err
	}
	api, err := server.New(server.Config{
		Database: conn.db, Prefix: conn.prefix, SecretKey: a.Env.SecretKey, NoTokens: open, NoAPI: f.noAPI, NoDashboard: f.noDashboard, TraceURL: f.traceURL, NoCallbacks: f.noCallbacks, Issuer: f.issuer, Version: version(), TracerProvider: a.traces, Logger: cfg.Logger,
	})
	if err != nil {
		return err
	}
	serve := func(ctx context.Context) error { return a.answer(ctx, listener, api, f) }
	a.saysWhere(f, listener.Addr())
	if open {
		a.say("no access token exists: every program on this machine has full access; to require tokens: mscheduler token create NAME --role admin")
	}
	if !f.noWorker {
		return a.runWorker(ctx, conn, &f.workFlags, cfg, serve)
	}
	names, engines := f.engines(conn)
	if len(names) > 0 {
		a.say("runs %s of %s; Ctrl-C stops it gracefully", human.List(names), conn)
	}
	return together(ctx, serve, engines...)
}

// saysWhere tells what answers at the address.
func (a *app) saysWhere(f *serveFlags, addr net.Addr) {
	at := "http://" + addr.String()
	if f.tlsCert != "" {
		at = "https://" + addr.String()
	}
	switch {
	case !f.noAPI:
		if !f.noDashboard {
			a.say("the dashboard is at %s/ui/", at)
		}
		a.say("the API is at %s/api/v1; its description: /api/v1/openapi.json", at)
	case !f.noCallbacks:
		a.say("completions are accepted at %s%s{token}", at, httptarget.CompletionPath)
	default:
		a.say("health is at %s/livez and /readyz", at)
	}
}

// openTo says whether requests need no token: where nobody but this machine can reach the server, no token was
// ever made, and nobody else issues them. Without the API there is nothing for which they would need one.
func (a *app) openTo(ctx context.Context, conn *connection, f *serveFlags, addr net.Addr) (bool, error) {
	if f.issuer != nil || f.noAPI {
		return false, nil
	}
	exist, err := conn.store.Tokens.Exist(ctx)
	at, ok := addr.(*net.TCPAddr)
	switch {
	case err != nil || exist:
		return false, err
	case ok && at.IP.IsLoopback():
		return true, nil
	default:
		return false, coded(ExitRefused, "there is no token, and %s can be reached from other machines; create one first: mscheduler token create NAME --role admin (or accept those of a provider: --oidc-issuer)", addr)
	}
}

// completionsAt has targets complete their runs at the address that serve listens on.
func (f *serveFlags) completionsAt(addr net.Addr) error {
	if f.completionURL != "" || f.noCallbacks || f.noWorker {
		return nil // as it is: nothing here needs another one
	}
	if at, ok := addr.(*net.TCPAddr); ok && at.IP.IsUnspecified() {
		return usage("--bind is %q, which means every address of this machine; set --completion-url to the one that targets call, such as https://tasks.example.org", f.bind)
	}
	scheme := "http://"
	if f.tlsCert != "" {
		scheme = "https://"
	}
	f.completionURL = scheme + addr.String()
	return nil
}

// limited is a server whose clients can neither send large headers nor hold a connection by sending or reading
// slowly. An operation that takes all of its time, 90 seconds, can still be answered.
func limited(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
}

// within ends something, for some time at most, though ctx has ended.
func within(ctx context.Context, limit time.Duration, end func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	return end(ctx)
}

// answer answers requests until ctx ends, and those that are in progress then.
func (a *app) answer(ctx context.Context, listener net.Listener, api *server.Server, f *serveFlags) error {
	h := limited(api)
	h.RegisterOnShutdown(api.Stop)
	done := make(chan error, 1)
	go func() {
		if f.tlsCert == "" {
			done <- h.Serve(listener)
			return
		}
		h.TLSConfig = f.certs.config()
		done <- h.ServeTLS(listener, "", "")
	}()
	select {
	case err := <-done:
		return fmt.Errorf("answering requests: %w", err)
	case <-ctx.Done():
	}
	api.Drain()
	clock.Pause(context.WithoutCancel(ctx), f.shutdownDelay) // a second signal ends it
	err := within(ctx, 10*time.Second, h.Shutdown)
	if ended := <-done; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return errors.Join(err, within(ctx, 5*time.Second, api.Close)) // also after a request that took all of its time
}
