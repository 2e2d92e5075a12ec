package testdb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// Verdict is what a [Proxy] does with a command.
type Verdict int

// The verdicts. The two losses also end the connection, as a broken network does.
const (
	Pass        Verdict = iota
	LoseRequest         // the server never sees it
	LoseReply           // the server carries it out, the client never hears of it
)

// Proxy stands between a client and the server and breaks the connection where a test
// says so.
type Proxy struct {
	t        testing.TB
	listener net.Listener
	server   string
	work     sync.WaitGroup

	mu    sync.Mutex
	judge func(command string) Verdict
	down  bool
	conns map[net.Conn]struct{}
}

// NewProxy starts a proxy before the deployment of [URI], which must have one host. It
// ends with the test; disconnect its clients before.
func NewProxy(t testing.TB) *Proxy {
	t.Helper()
	u, err := url.Parse(URI(t))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{t: t, listener: l, server: u.Host, conns: map[net.Conn]struct{}{}}
	p.work.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// URI is how clients connect through the proxy.
func (p *Proxy) URI() string {
	return "mongodb://" + p.listener.Addr().String() + "/?directConnection=true"
}

// Judge sets what becomes of each command from now on; nil passes everything.
func (p *Proxy) Judge(judge func(command string) Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judge = judge
}

// SetDown cuts all connections and refuses new ones, until it is called with false.
func (p *Proxy) SetDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
	if down {
		p.cutAll()
	}
}

func (p *Proxy) cutAll() {
	for c := range p.conns {
		_ = c.Close() // it is to be broken
	}
}

func (p *Proxy) close() {
	p.SetDown(true)
	_ = p.listener.Close() // accept ends by it
	p.work.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			p.t.Errorf("proxy: %v", err)
			return
		}
		p.work.Go(func() { p.serve(c) })
	}
}

// keep registers connections that SetDown cuts; false when it is down.
func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return false
	}
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
	return true
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil || !p.keep(client, server) {
		return
	}
	defer server.Close()
	lost := make(chan struct{}) // closed before the request whose reply is lost goes out
	var replies sync.WaitGroup
	replies.Go(func() {
		defer client.Close()
		for {
			msg, err := message(server)
			if err != nil {
				return
			}
			select {
			case <-lost:
				return
			default:
			}
			if _, err := client.Write(msg); err != nil {
				return
			}
		}
	})
	p.requests(client, server, lost)
	replies.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, client)
	delete(p.conns, server)
}

func (p *Proxy) requests(client, server net.Conn, lost chan struct{}) {
	for {
		msg, err := message(client)
		if err != nil {
			break
		}
		verdict := p.verdict(msg)
		if verdict == LoseRequest {
			break
		}
		if verdict == LoseReply {
			close(lost)
		}
		if _, err := server.Write(msg); err != nil || verdict == LoseReply {
			return // the replies' side reads on to the end of the lost reply
		}
	}
	_ = server.Close() // wakes the replies' side
}

func (p *Proxy) verdict(msg []byte) Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.judge == nil {
		return Pass
	}
	return p.judge(command(msg))
}

// message reads one wire message, whose first four bytes are its length.
func message(r io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	msg := make([]byte, max(binary.LittleEndian.Uint32(head), 4))
	copy(msg, head)
	_, err := io.ReadFull(r, msg[4:])
	return msg, err
}

// command is the name of an OP_MSG's command: the first key of its document, which
// follows header, flags, the section's kind and the document's length.
func command(msg []byte) string {
	const opMsg, key = 2013, 16 + 4 + 1 + 4 + 1
	if len(msg) <= key || binary.LittleEndian.Uint32(msg[12:]) != opMsg {
		return ""
	}
	name, _, _ := bytes.Cut(msg[key:], []byte{0})
	return string(name)
}
