package embedded

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/embedded/wire"
	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

// conn is one client connection: requests are answered one after the other.
type conn struct {
	s    *Server
	nc   net.Conn
	in   *bufio.Reader
	out  []byte
	id   int32
	last int32    // id of the last reply
	txn  *session // whose transaction the last command was of; nil for none

	once sync.Once
	gone chan struct{} // closed when the connection is
}

func newConn(s *Server, nc net.Conn) *conn {
	return &conn{s: s, nc: nc, in: bufio.NewReaderSize(nc, 16<<10), id: s.nextConn.Add(1), gone: make(chan struct{})}
}

// hangUp ends the connection, and the command it waits for.
func (c *conn) hangUp() {
	c.once.Do(func() {
		close(c.gone)
		_ = c.nc.Close() // nothing is left to tell the client
	})
}

func (c *conn) serve() {
	defer c.disconnected()
	defer c.hangUp()
	for {
		m, err := wire.Read(c.in)
		if errors.Is(err, wire.ErrMalformed) {
			c.s.zl.Warn().Err(err).Stringer("client", c.nc.RemoteAddr()).Msg("embedded server: refused a message")
		}
		var reply []byte
		switch {
		case err == nil:
			reply = c.answer(m)
		case m != nil:
			reply = c.s.errorReply(mongoerr.New(mongoerr.InvalidBSON, "%v", err))
		default:
			return
		}
		if m.NoReply {
			continue
		}
		c.last++
		c.out = wire.AppendReply(c.out[:0], m, c.last, reply)
		if _, err := c.nc.Write(c.out); err != nil {
			return
		}
		if cap(c.out) > 1<<20 {
			c.out = nil
		}
	}
}

// answer runs a command. A panic is an error of this server that must not take
// the others' connections, or the process it is part of, with it.
func (c *conn) answer(m *wire.Message) (reply []byte) {
	ctx := &opContext{c: c}
	defer ctx.end()
	c.txn = nil
	defer func() {
		if p := recover(); p != nil {
			c.s.zl.Error().Interface("panic", p).Bytes("stack", debug.Stack()).Msg("embedded server: a command panicked")
			reply = c.s.errorReply(mongoerr.New(mongoerr.InternalError, "panic: %v", p))
		}
	}()
	r, err := newRequest(c, m, ctx)
	if err == nil {
		reply, err = r.run()
	}
	if err != nil {
		reply = c.s.errorReply(err)
	}
	if len(reply) > wire.MaxMessage-64 { // less the header
		return c.s.errorReply(mongoerr.New(mongoerr.BSONObjectTooLarge, "an answer of %d bytes is longer than a message may be", len(reply)))
	}
	return reply
}

// opContext is the context of one command: it ends when the client leaves, the
// server closes or maxTimeMS have passed. What that takes, a goroutine that
// listens to the client, exists only for commands that wait (call Done).
type opContext struct {
	c       *conn
	start   time.Time
	maxTime time.Duration // 0: none

	watching bool
	done     chan struct{}
	listener sync.WaitGroup
	timer    *time.Timer
	mu       sync.Mutex
	err      error
}

// Deadline is unknown to those who do not wait.
func (x *opContext) Deadline() (time.Time, bool) { return time.Time{}, false }

// Value has none.
func (x *opContext) Value(any) any { return nil }

// Err returns why the command should stop, nil if it should not.
func (x *opContext) Err() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return x.err
	}
	if x.maxTime > 0 && x.c.s.opt.Now().Sub(x.start) > x.maxTime {
		return context.DeadlineExceeded
	}
	select {
	case <-x.c.gone:
		return context.Canceled
	default:
		return nil
	}
}

func (x *opContext) cancel(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err == nil {
		x.err = err
		close(x.done)
	}
}

// Done begins to watch the client; only the command's own goroutine may call it.
func (x *opContext) Done() <-chan struct{} {
	if x.watching {
		return x.done
	}
	x.watching = true
	x.done = make(chan struct{})
	if x.maxTime > 0 {
		x.timer = time.AfterFunc(x.maxTime-x.c.s.opt.Now().Sub(x.start), func() { x.cancel(context.DeadlineExceeded) })
	}
	x.listener.Go(func() {
		// A client that waits sends nothing: what arrives is the end, or a next
		// command, which stays in the buffer.
		if _, err := x.c.in.Peek(1); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			x.cancel(context.Canceled)
		}
	})
	return x.done
}

// end stops watching.
func (x *opContext) end() {
	if !x.watching {
		return
	}
	if x.timer != nil {
		x.timer.Stop()
	}
	_ = x.c.nc.SetReadDeadline(time.Unix(1, 0)) // fails only if it is closed
	x.listener.Wait()
	_ = x.c.nc.SetReadDeadline(time.Time{})
}
