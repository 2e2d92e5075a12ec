package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/fleet"
)

// program is how a server is run as a process.
type program struct {
	name string
	args func(port, data string) []string
	// prepare is repeated after each start until it succeeds; nil does nothing.
	prepare func(ctx context.Context, admin *mongo.Database, addr string) error
}

// process is a server that runs as a child of this process, in a temporary directory.
type process struct {
	program
	dir  string // holds the data
	port string

	server *fleet.Process
	guard  *guard
}

// startTries: between finding a free port and its use somebody else may take it.
const startTries = 3

var errEnded = errors.New("the process has ended")

func startProcess(ctx context.Context, prog program) (d *Deployment, err error) {
	for range startTries {
		if d, err = tryProcess(ctx, prog); !errors.Is(err, errEnded) {
			return d, err
		}
	}
	return nil, err
}

func tryProcess(ctx context.Context, prog program) (*Deployment, error) {
	dir, err := os.MkdirTemp("", "mscheduler-"+prog.name+"-")
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", prog.name, err)
	}
	port, err := freePort()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", prog.name, err), os.RemoveAll(dir))
	}
	p := &process{program: prog, dir: dir, port: port}
	if err := p.start(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &Deployment{Engine: prog.name, URI: p.uri(), server: p}, nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	port := l.Addr().(*net.TCPAddr).Port
	return strconv.Itoa(port), l.Close()
}

func (p *process) addr() string { return "127.0.0.1:" + p.port }

// uri is direct, so that it works through proxies, which the address in the answer to
// hello does not know.
func (p *process) uri() string { return "mongodb://" + p.addr() + "/?directConnection=true" }

func (p *process) start(ctx context.Context) error {
	data := filepath.Join(p.dir, "data")
	err := os.MkdirAll(data, 0o700)
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	args := p.args(p.port, data)
	if p.server, err = fleet.Start(fleet.Command{Name: p.name, Path: args[0], Args: args[1:], Dir: p.dir}); err != nil {
		return err
	}
	p.guard = startGuard(p.server.PID(), p.dir)
	if err := p.await(ctx, p.server); err != nil {
		p.kill()
		return fmt.Errorf("starting %s: %w\n%s", p.name, err, p.server.Output())
	}
	return nil
}

// await waits until the server takes writes, or has died.
func (p *process) await(ctx context.Context, server *fleet.Process) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		_ = server.Wait() // how it ended is in its output
		cancel(errEnded)
	}()
	return withAdmin(p.uri(), func(admin *mongo.Database) error {
		if p.prepare != nil {
			err := retry(ctx, "preparing", func(ctx context.Context) error { return p.prepare(ctx, admin, p.addr()) })
			if err != nil {
				return err
			}
		}
		return awaitPrimary(ctx, admin)
	})
}

func (p *process) kill() {
	p.guard.dismiss()
	p.server.Kill()
}

func (p *process) restart(ctx context.Context) error {
	p.kill()
	return p.start(ctx)
}

func (p *process) close() error {
	p.kill()
	return os.RemoveAll(p.dir)
}
