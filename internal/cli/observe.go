package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/internal/probe"
	"github.com/mscheduler/mscheduler/metrics"
)

// observeFlags are where a process shows how it does, apart from what it serves: these addresses ask for no
// token.
type observeFlags struct {
	metricsBind, profileBind string
}

func (o *observeFlags) register(f *pflag.FlagSet) {
	f.StringVar(&o.metricsBind, "metrics-bind", "", "address of /metrics, /livez and /readyz, which need no token (default none)")
	f.StringVar(&o.profileBind, "profile-bind", "", "loopback address of the profiles at /debug/pprof/ (default none)")
}

// observed is [app.connect] for a process that may export metrics, and what shows them until stop is called.
func (a *app) observed(ctx context.Context, o *observeFlags) (conn *connection, stop func(), err error) {
	var commands *metrics.Commands
	if o.metricsBind != "" {
		commands = new(metrics.Commands)
		a.monitor = commands.Monitor()
	}
	flush, err := a.exportTraces(ctx)
	if err != nil {
		return nil, nil, err
	}
	if conn, err = a.connect(ctx); err != nil {
		flush()
		return nil, nil, err
	}
	stops := []func(){a.followFile(), flush}
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	for _, side := range []struct {
		flag, bind string
		local      bool
		handler    func() (http.Handler, error)
		what       string
	}{
		{"--metrics-bind", o.metricsBind, false, func() (http.Handler, error) { return a.metrics(conn, commands, ctx.Done()) }, "metrics are at http://%s/metrics"},
		{"--profile-bind", o.profileBind, true, profiles, "profiles are at http://%s/debug/pprof/"},
	} {
		if side.bind == "" {
			continue
		}
		listener, err := net.Listen("tcp", side.bind) //nolint:noctx // it takes no time
		if err != nil {
			stop()
			return nil, nil, usage("%s: %v", side.flag, err)
		}
		if side.local {
			if err := o.local(listener.Addr()); err != nil {
				stop()
				return nil, nil, errors.Join(err, listener.Close())
			}
		}
		handler, err := side.handler()
		if err != nil {
			stop()
			return nil, nil, errors.Join(err, listener.Close())
		}
		stops = append(stops, serveBeside(listener, handler))
		a.say(side.what, listener.Addr())
	}
	return conn, stop, nil
}

// local says whether only this machine reaches the profiles.
func (o *observeFlags) local(addr net.Addr) error {
	if at, ok := addr.(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		return usage("--profile-bind is %q; want a loopback address such as 127.0.0.1:6060", o.profileBind)
	}
	return nil
}

// serveBeside answers requests until stop is called, which cuts off those in progress: nobody depends on
// them.
func serveBeside(listener net.Listener, handler http.Handler) (stop func()) {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 2 * time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // until it is closed
	}()
	return func() {
		_ = server.Close()
		<-done
	}
}

// metrics shows what this process and its fleet do, and what the Go runtime says.
func (a *app) metrics(conn *connection, commands *metrics.Commands, stopping <-chan struct{}) (http.Handler, error) {
	log := a.logger()
	collector, err := metrics.New(metrics.Config{Database: conn.db, Prefix: conn.prefix, Commands: commands, Logger: log})
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, ErrorHandling: promhttp.ContinueOnError}))
	probe.Add(mux, conn.store, log, stopping)
	return mux, nil
}

// profiles shows the profiles of the Go runtime, to programs of this machine and not to pages that a
// browser on it shows.
func profiles() (http.Handler, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !probe.LocalName(r.Host) {
			http.Error(w, "this server answers only to its own machine", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	}), nil
}
