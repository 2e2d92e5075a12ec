package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"os"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/embedded"
)

const devHelp = `Run the embedded server, the dashboard, the REST API, a worker for the built-in types, the
periodic rules, the flows and the plans, in the foreground: all that is needed to try mscheduler
out. It prints where the dashboard is. Without --bind, that is 127.0.0.1:8080, or any free port
where another program has that one.

While it runs, every other mscheduler command in the same directory uses its database by
itself: the file ` + devFileName + ` says where it is. Without --path the tasks are gone when it
ends. It is for development; in production workers share a MongoDB deployment.`

func (a *app) devCommand() *cobra.Command {
	var f serveFlags
	var addr, path string
	cmd := &cobra.Command{
		Use: "dev", Short: "Run a development server and a worker in this directory", Long: devHelp, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.given("uri") {
				return usage("dev starts its own server; to run a worker on a database, use: mscheduler work --uri ...")
			}
			return a.dev(cmd.Context(), &f, addr, path)
		},
	}
	f.register(cmd.Flags())
	f.registerTraceURL(cmd.Flags())
	_ = cmd.Flags().MarkHidden("completion-addr")
	cmd.Flags().Lookup("completion-url").Usage = "public URL of the REST API, which asynchronous HTTP targets call (default: the address of --bind)"
	cmd.Flags().StringVar(&f.bind, "bind", "", "address of the dashboard and the REST API (default 127.0.0.1:8080, or a free port)")
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:0", "address to listen on; port 0 is any free one")
	cmd.Flags().StringVar(&path, "path", "", "database file; defaults to none: in memory")
	return cmd
}

func (a *app) dev(ctx context.Context, f *serveFlags, addr, path string) error {
	cfg, err := a.workConfig(&f.workFlags)
	if err != nil {
		return err
	}
	listener, err := f.listenForDev()
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // if nobody has
	if err := a.freeDevFile(ctx); err != nil {
		return err
	}
	server, err := a.startEmbedded(embedded.Options{Addr: addr, Path: path})
	if err != nil {
		return err
	}
	return closing(server, a.devOn(ctx, server, path, func(conn *connection) error {
		return a.serveAt(ctx, listener, conn, f, cfg)
	}))
}

// listenForDev listens at --bind, and without it at a free port if another program has the usual one.
func (f *serveFlags) listenForDev() (net.Listener, error) {
	given := f.bind
	f.bind = cmp.Or(given, "127.0.0.1:8080")
	if err := f.prepare(consumer.Config{}); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", f.bind) //nolint:noctx // it takes no time
	if err != nil && given == "" {
		listener, err = net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it takes no time
	}
	if err != nil {
		return nil, usage("--bind: %v", err)
	}
	return listener, nil
}

// freeDevFile makes sure that no dev server runs in this directory.
func (a *app) freeDevFile(ctx context.Context) error {
	old, err := readDevFile(a.Dir)
	if err != nil || old == nil {
		return err
	}
	if old.alive(ctx) {
		return coded(ExitRefused, "a dev server is already running in this directory (pid %d, %s)", old.PID, old.URI)
	}
	a.say("the dev server of %s (pid %d) is no longer running; replacing its file", devFileName, old.PID)
	return nil
}

// devOn leaves the address file while work runs on the server.
func (a *app) devOn(ctx context.Context, server *embedded.Server, path string, work func(*connection) error) error {
	t, err := a.targetOf(server.URI(), "the embedded server")
	if err != nil {
		return err
	}
	conn, err := a.dial(t)
	if err != nil {
		return err
	}
	defer a.close() // before the server
	f := &devFile{
		URI: server.URI(), Database: t.database, PID: os.Getpid(), Server: rand.Text(), Path: path, Started: a.clock().Now().UTC(),
	}
	if err := setServerID(ctx, conn.client, f.Server); err != nil {
		return unreachable(t, err)
	}
	if err := conn.store.Ready(ctx); err != nil {
		return err
	}
	if err := f.write(a.Dir); err != nil {
		return err
	}
	if err := a.devHello(server.URI(), path); err != nil {
		return errors.Join(err, f.remove(a.Dir))
	}
	return errors.Join(work(conn), f.remove(a.Dir))
}

func (a *app) devHello(uri, path string) error {
	if a.asJSON() {
		return a.printJSON(map[string]string{"uri": uri})
	}
	keeps := "in memory: its tasks are lost when it stops; --path keeps them"
	if path != "" {
		keeps = "in the file " + path
	}
	a.say("dev server at %s (%s)", uri, keeps)
	a.say("for development, tests and a single small machine")
	a.say("try, in this directory:  mscheduler send http --args '{\"url\": \"https://example.org\"}' --wait")
	return nil
}
