package proxy

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Proxy passes connections on to one server. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	dial     func() (net.Conn, error)
	work     sync.WaitGroup
	closing  chan struct{}

	mu      sync.Mutex
	conns   map[*link]struct{}
	cut     bool
	delay   time.Duration
	patient bool
	traps   []*Trap
	fates   func(command string) Fate
	rewrite func(request, answer bson.Raw) bson.Raw
}

// Start makes a proxy for the server of a connection string with one host.
func Start(uri string) (*Proxy, error) {
	u, err := url.Parse(uri)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("the proxy needs a connection string with one host, not %q: %w", uri, err)
	}
	var l net.Listener
	if isPipe(u.Host) {
		l = ListenPipes()
	} else if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("starting the proxy: %w", err)
	}
	return Between(l, func() (net.Conn, error) { return new(Dialer).DialContext(context.Background(), "tcp", u.Host) }), nil
}

// Between makes a proxy that accepts clients from a listener, which it closes, and dials a server for each.
func Between(clients net.Listener, server func() (net.Conn, error)) *Proxy {
	p := &Proxy{listener: clients, dial: server, closing: make(chan struct{}), conns: map[*link]struct{}{}}
	p.work.Go(p.accept)
	return p
}

// URI is how clients connect through the proxy.
func (p *Proxy) URI() string {
	return "mongodb://" + p.listener.Addr().String() + "/?directConnection=true"
}

// Close ends the proxy and all its connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	select {
	case <-p.closing:
	default:
		close(p.closing)
	}
	p.mu.Unlock()
	_ = p.listener.Close() // it is not needed any more
	p.Cut()
	p.work.Wait()
}

// Cut breaks all connections and refuses new ones until [Proxy.Mend].
func (p *Proxy) Cut() {
	p.mu.Lock()
	p.cut = true
	p.mu.Unlock()
	p.Drop()
}

// Mend lets connections through again.
func (p *Proxy) Mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

// Drop breaks all connections; new ones get through.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.conns {
		l.close()
	}
}

// Delay makes every command wait before it is passed on.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Fate is what becomes of a command: nothing or a break of the connection, and how slow the network is.
type Fate struct {
	Do            Action        // Pass, CutBefore or CutAfter
	Before, After time.Duration // how long the command, and each answer, is on its way, beside [Proxy.Delay]
	Answer        bson.Raw      // the client gets it, and the server never sees the command; nil = the server answers
}

// Fates lets a function decide about each command that no trap wants; nil = they pass.
func (p *Proxy) Fates(f func(command string) Fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fates = f
}

// fate is that of a command.
func (p *Proxy) fate(command string) Fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := Fate{}
	if p.fates != nil {
		f = p.fates(command)
	}
	f.Before += p.delay
	return f
}

// Patient gives the server as long as it needs: the time limits that commands carry become an
// hour. It is for tests that count commands or what one of them does, however slow the machine is.
func (p *Proxy) Patient() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.patient = true
}

// Rewrite lets a function change the answers of the server: nil changes nothing.
func (p *Proxy) Rewrite(f func(command string, answer bson.Raw) bson.Raw) {
	if f == nil {
		p.RewriteWith(nil)
		return
	}
	p.RewriteWith(func(request, answer bson.Raw) bson.Raw {
		return f(request.Index(0).Key(), answer)
	})
}

// RewriteWith is [Proxy.Rewrite] for answers that depend on all of the command.
func (p *Proxy) RewriteWith(f func(request, answer bson.Raw) bson.Raw) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rewrite = f
}

// Set sets a trap. Of several that want a command the first one set gets it.
func (p *Proxy) Set(r Rule) *Trap {
	t := &Trap{rule: r, proxy: p, hit: make(chan struct{}), release: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traps = append(p.traps, t)
	return t
}

// Clear releases and removes all traps.
func (p *Proxy) Clear() {
	p.mu.Lock()
	traps := p.traps
	p.traps = nil
	p.mu.Unlock()
	for _, t := range traps {
		t.Release()
	}
}

// trapped is the trap for a command, nil for none.
func (p *Proxy) trapped(m message, name, collection string) *Trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.traps {
		if t.wants(m, name, collection) {
			return t
		}
	}
	return nil
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.mu.Lock()
		cut := p.cut
		p.mu.Unlock()
		if cut {
			_ = c.Close() // refused
			continue
		}
		server, err := p.dial()
		if err != nil {
			_ = c.Close() // as refused
			continue
		}
		l := &link{proxy: p, client: c, server: server, ended: make(chan struct{})}
		p.mu.Lock()
		if p.cut {
			l.close()
		}
		p.conns[l] = struct{}{}
		p.mu.Unlock()
		p.work.Go(l.run)
	}
}
