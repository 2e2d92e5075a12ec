package sim

import (
	"context"
	"errors"
	"net"
	"sync"
)

// pipes is a listener whose connections are pipes: within a bubble of synctest, who waits for one
// lets time pass.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return host{} }

// host is the address of everybody: nobody is asked who it is.
type host struct{}

func (host) Network() string { return "pipe" }
func (host) String() string  { return "database:27017" }

var errRefused = errors.New("connection refused")

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, errRefused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// DialContext implements the driver's dialer.
func (p *pipes) DialContext(ctx context.Context, _, _ string) (net.Conn, error) { return p.dial(ctx) }
