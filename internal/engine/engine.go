package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
)

// Engine is a kind of deployment that tests can run on.
type Engine struct {
	Name string
	// Slow engines get fewer tasks.
	Slow bool
	// Variable is the environment variable that asks for this engine; "" = there is none.
	Variable string
	// Start starts a deployment of its own and waits until it takes writes. The error is
	// a *MissingError when this machine does not have the engine.
	Start func(ctx context.Context) (*Deployment, error)
}

// asked reports whether the environment asks for this engine.
func (e Engine) asked() bool { return e.Variable != "" && os.Getenv(e.Variable) != "" }

// MissingError says that an engine is not at hand, and why.
type MissingError struct {
	Engine string
	Reason string
}

func (e *MissingError) Error() string { return e.Engine + ": " + e.Reason }

func missing(engine, format string, args ...any) error {
	return &MissingError{Engine: engine, Reason: fmt.Sprintf(format, args...)}
}

// Deployment is a running server. Its methods may be called concurrently.
type Deployment struct {
	Engine string // the name of its engine
	URI    string // what a driver connects with; the same after a restart

	mu      sync.Mutex
	server  server
	closed  bool
	closing error
}

// server is what a deployment does to its server; nil for one that is somebody else's.
type server interface {
	// restart ends the server without warning and starts it again with its data, if it
	// keeps any, at the same address.
	restart(ctx context.Context) error
	close() error
}

// ErrNotOurs is returned by [Deployment.Restart] for a server that was not started here.
var ErrNotOurs = errors.New("the server was not started by this process")

// Restart ends the server without warning (kill -9 for a process) and starts it again
// at the same address. An embedded server without a file comes back empty.
func (d *Deployment) Restart(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.server == nil:
		return ErrNotOurs
	case d.closed:
		return errors.New("restarting a deployment that is closed")
	default:
		return d.server.restart(ctx)
	}
}

// PID is the id of the server's process; 0 = it is not a process that was started here. It changes with a restart.
func (d *Deployment) PID() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p, ok := d.server.(*process); ok && !d.closed {
		return p.server.PID()
	}
	return 0
}

// Close ends the server and removes its data. Further calls return the same.
func (d *Deployment) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed && d.server != nil {
		d.closing = d.server.close()
	}
	d.closed = true
	return d.closing
}

// External makes a deployment of a server that others know how to end, such as a
// container; it cannot be restarted. closeIt may be nil.
func External(engine, uri string, closeIt func() error) *Deployment {
	if closeIt == nil {
		return &Deployment{Engine: engine, URI: uri}
	}
	return &Deployment{Engine: engine, URI: uri, server: external(closeIt)}
}

type external func() error

func (external) restart(context.Context) error { return ErrNotOurs }
func (e external) close() error                { return e() }
