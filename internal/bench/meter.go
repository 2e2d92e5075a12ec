package bench

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/store"
)

// meter counts what one client sends: commands by name as the driver reports them, and
// bytes as they go over its connections.
type meter struct {
	read, written atomic.Int64
	fetches       bool                  // note the times of fetches too
	also          *event.CommandMonitor // hears of commands, too; nil = nobody
	now           func() time.Time

	mu       sync.Mutex
	commands map[string]int64
	calls    map[store.Purpose]calls
	limits   map[int64]int // of fetches under way, by request
	fetched  []fetch
}

// fetch is one query for due tasks.
type fetch struct {
	At    int64   `json:"at"` // Unix nanoseconds
	MS    float64 `json:"ms"`
	Found int     `json:"found"`
	Limit int     `json:"limit"`
}

// connect makes a client that is counted.
func (m *meter) connect(uri string) (*mongo.Client, error) {
	m.commands, m.calls, m.limits = map[string]int64{}, map[store.Purpose]calls{}, map[int64]int{}
	o := options.Client().ApplyURI(uri).SetAppName("mscheduler bench").SetServerSelectionTimeout(5 * time.Second).
		SetMonitor(&event.CommandMonitor{Started: m.started, Succeeded: m.succeeded, Failed: m.failed})
	return mongo.Connect(o.SetDialer(&dialer{meter: m}))
}

func (m *meter) started(ctx context.Context, e *event.CommandStartedEvent) {
	limit := 0
	if m.fetches && e.CommandName == "find" {
		if hint, ok := e.Command.Lookup("hint").StringValueOK(); ok && hint == store.IndexDue {
			n, _ := e.Command.Lookup("limit").AsInt64OK()
			limit = int(n)
		}
	}
	if m.also != nil {
		m.also.Started(ctx, e)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.commands[e.CommandName]++
	if limit > 1 { // of one is not a fetch: it asks when the next task is due
		m.limits[e.RequestID] = limit
	}
}

func (m *meter) succeeded(ctx context.Context, e *event.CommandSucceededEvent) {
	if m.also != nil {
		m.also.Succeeded(ctx, e)
	}
	m.answered(ctx, e.CommandName, e.Duration, e.Reply)
	if !m.fetches || e.CommandName != "find" {
		return
	}
	m.mu.Lock()
	limit := m.limits[e.RequestID]
	delete(m.limits, e.RequestID)
	m.mu.Unlock()
	if limit == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fetched = append(m.fetched, fetch{At: m.now().UnixNano(), MS: round(millis(e.Duration)), Found: foundIn(e.Reply), Limit: limit})
}

func (m *meter) failed(ctx context.Context, e *event.CommandFailedEvent) {
	m.answered(ctx, e.CommandName, e.Duration, nil)
	m.mu.Lock()
	defer m.mu.Unlock()
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

// counts adds what was counted since the reset to t.
func (m *meter) counts(t *totals) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.Commands == nil {
		t.Commands = map[string]int64{}
	}
	for name, n := range m.commands {
		t.Commands[name] += n
	}
	if t.Calls == nil {
		t.Calls = map[store.Purpose]calls{}
	}
	for p, c := range m.calls {
		t.Calls[p] = t.Calls[p].plus(c, 1)
	}
	t.Read += m.read.Load()
	t.Written += m.written.Load()
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
