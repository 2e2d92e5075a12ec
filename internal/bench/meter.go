package bench

import (
	"context"
	"maps"
	"net"
	"sync"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/scratch"
	"github.com/mscheduler/mscheduler/internal/store"
)

// meter counts what one client sends: commands by name as the driver reports them, and
// bytes as they go over its connections.
type meter struct {
	read, written atomic.Int64
	fetches       bool                  // note the times of fetches too
	also          *event.CommandMonitor // hears of commands, too; nil = nobody

	mu       sync.Mutex
	commands map[string]int64
	calls    map[store.Purpose]calls
	limits   map[int64]int // of fetches under way, by request
	fetched  []fetch
}

// fetch is one query for due tasks.
type fetch struct {
	MS    float64 `json:"ms"`
	Found int     `json:"found"`
	Limit int     `json:"limit"`
}

// attach makes a client one that is counted.
func (m *meter) attach(o *options.ClientOptions) {
	m.commands, m.calls, m.limits = map[string]int64{}, map[store.Purpose]calls{}, map[int64]int{}
	o.SetMonitor(&event.CommandMonitor{Started: m.started, Succeeded: m.succeeded, Failed: m.failed}).SetDialer(&dialer{meter: m})
}

func (m *meter) connect(uri string) (*mongo.Client, error) {
	return scratch.Connect(uri, "bench", m.attach)
}

func (m *meter) started(ctx context.Context, e *event.CommandStartedEvent) {
	var limit int64
	if c, ok := callOf(ctx, e.CommandName); ok && c.Purpose == store.Finding && m.fetches {
		limit, _ = e.Command.Lookup("limit").AsInt64OK()
	}
	if m.also != nil {
		m.also.Started(ctx, e)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.commands[e.CommandName]++
	if limit > 1 { // of one is not a fetch: it asks when the next task is due
		m.limits[e.RequestID] = int(limit)
	}
}

func (m *meter) succeeded(ctx context.Context, e *event.CommandSucceededEvent) {
	if m.also != nil {
		m.also.Succeeded(ctx, e)
	}
	m.answered(ctx, e.CommandFinishedEvent, e.Reply)
}

func (m *meter) failed(ctx context.Context, e *event.CommandFailedEvent) {
	m.answered(ctx, e.CommandFinishedEvent, nil)
}

// answered counts one command of a purpose. A query names no tasks: it found those in
// its reply.
func (m *meter) answered(ctx context.Context, e event.CommandFinishedEvent, reply bson.Raw) {
	c, ok := callOf(ctx, e.CommandName)
	if !ok {
		return
	}
	if c.Purpose == store.Finding {
		c.Tasks = foundIn(reply)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[c.Purpose] = m.calls[c.Purpose].plus(calls{1, int64(c.Tasks), int64(e.Duration)}, 1)
	if limit := m.limits[e.RequestID]; limit > 0 && reply != nil {
		m.fetched = append(m.fetched, fetch{MS: round(millis(e.Duration)), Found: c.Tasks, Limit: limit})
	}
	delete(m.limits, e.RequestID)
}

// reset forgets what was counted so far.
func (m *meter) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.commands)
	clear(m.calls)
	m.fetched = nil
	m.read.Store(0)
	m.written.Store(0)
}

// totals are what was counted since the reset.
func (m *meter) totals() totals {
	m.mu.Lock()
	defer m.mu.Unlock()
	return totals{Commands: maps.Clone(m.commands), Calls: maps.Clone(m.calls), Read: m.read.Load(), Written: m.written.Load()}
}

// takeFetches hands over the fetches since the last call.
func (m *meter) takeFetches() []fetch {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.fetched
	m.fetched = nil
	return out
}

// dialer opens connections whose bytes are counted.
type dialer struct {
	net   net.Dialer
	meter *meter
}

func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.net.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &countedConn{c, d.meter}, nil
}

type countedConn struct {
	net.Conn
	meter *meter
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.meter.read.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.meter.written.Add(int64(n))
	return n, err
}
