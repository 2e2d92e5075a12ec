package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/mongo"
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
	dir  string // holds the log and the data
	port string

	cmd   *exec.Cmd
	died  chan struct{}
	guard *guard
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

func (p *process) logFile() string { return filepath.Join(p.dir, "log.txt") }

func (p *process) start(ctx context.Context) error {
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	data := filepath.Join(p.dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	args := p.args(p.port, data)
	p.cmd = exec.Command(args[0], args[1:]...) //nolint:gosec // a server found on PATH, by its name
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = p.dir, log, log
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	p.guard = startGuard(p.cmd.Process.Pid, p.dir)
	cmd, died := p.cmd, make(chan struct{})
	p.died = died
	go func() {
		_ = cmd.Wait() // how it ended is in its log
		close(died)
	}()
	if err := p.await(ctx); err != nil {
		p.kill()
		return fmt.Errorf("starting %s: %w\n%s", p.name, err, p.logTail())
	}
	return nil
}

// await waits until the server takes writes, or has died.
func (p *process) await(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	died := p.died
	go func() {
		select {
		case <-died:
			cancel(errEnded)
		case <-ctx.Done():
		}
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

// logTail is the end of what the server printed.
func (p *process) logTail() []byte {
	const most = 2000
	text, err := os.ReadFile(p.logFile())
	if err != nil {
		return nil
	}
	return bytes.TrimSpace(text[max(0, len(text)-most):])
}

func (p *process) kill() {
	p.guard.dismiss()
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.died
}

func (p *process) restart(ctx context.Context) error {
	p.kill()
	return p.start(ctx)
}

func (p *process) close() error {
	p.kill()
	return os.RemoveAll(p.dir)
}
