package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
)

// Pipes is a listener whose connections are pipes: within a bubble of testing/synctest, who waits for one lets
// time pass. [Dialer] connects to it by its address.
type Pipes struct {
	name   string
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

const pipeSuffix = ".pipe:27017"

var (
	pipeNames atomic.Int64
	listening sync.Map // by name, those that accept connections
)

// ListenPipes makes a listener with an address of its own, or at the given one, which nobody listens at any more.
func ListenPipes(at ...string) *Pipes {
	p := &Pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	if p.name = strings.Join(at, ""); p.name == "" {
		p.name = fmt.Sprint("host-", pipeNames.Add(1), pipeSuffix)
	}
	listening.Store(p.name, p)
	return p
}

// Accept implements [net.Listener].
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *Pipes) Close() error {
	p.once.Do(func() {
		listening.CompareAndDelete(p.name, p)
		close(p.closed)
	})
	return nil
}

// Addr implements [net.Listener].
func (p *Pipes) Addr() net.Addr { return pipeAddr(p.name) }

// Dial connects to the listener.
func (p *Pipes) Dial(ctx context.Context) (net.Conn, error) {
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

var errRefused = errors.New("connection refused")

type pipeAddr string

func (pipeAddr) Network() string  { return "pipe" }
func (a pipeAddr) String() string { return string(a) }

// Dialer connects to addresses of [Pipes], and to others by the network. It is a driver's dialer.
type Dialer struct{ net.Dialer }

// DialContext connects to an address.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if !isPipe(address) {
		return d.Dialer.DialContext(ctx, network, address)
	}
	p, ok := listening.Load(address)
	if !ok {
		return nil, errRefused
	}
	return p.(*Pipes).Dial(ctx)
}

func isPipe(address string) bool { return strings.HasSuffix(address, pipeSuffix) }
