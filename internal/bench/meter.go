package bench

import (
	"context"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

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

// calls counts the answered commands of one purpose.
type calls struct {
	Commands int64 `json:"commands"`
	Tasks    int64 `json:"tasks"` // found by a find, named by an update
	Nanos    int64 `json:"nanos"`
}

func (c calls) plus(o calls, sign int64) calls {
	return calls{c.Commands + sign*o.Commands, c.Tasks + sign*o.Tasks, c.Nanos + sign*o.Nanos}
}

// callOf tells finds, claims and ends from all other commands. A claim or an end that
// looks at its tasks again sends a find of the same purpose, which does not count.
func callOf(ctx context.Context, command string) (c store.Call, ok bool) {
	c, ok = store.CallOf(ctx)
	return c, ok && (command == "find") == (c.Purpose == store.Finding)
}

// foundIn counts the documents in the reply of a find; it is called for each fetch.
func foundIn(reply bson.Raw) (n int) {
	batch, _ := reply.Lookup("cursor", "firstBatch").ArrayOK()
	if len(batch) < 5 {
		return 0
	}
	for rest := bsoncore.Document(batch[4:]); ; n++ {
		_, left, ok := bsoncore.ReadElement(rest)
		if !ok {
			return n
		}
		rest = left
	}
}

// Calls are the commands of one purpose that the measured clients sent.
type Calls struct {
	Commands int64    `json:"commands"`
	MeanMS   *float64 `json:"mean_ms"`    // as the client measures it
	MeanSize *float64 `json:"mean_tasks"` // tasks that a command found or named
}

// summary is nil where nothing was counted, as with a worker of an older build.
func (c calls) summary() *Calls {
	if c.Commands == 0 {
		return nil
	}
	n := float64(c.Commands)
	return &Calls{c.Commands, quotient(ptr(millis(time.Duration(c.Nanos))), &n), quotient(ptr(float64(c.Tasks)), &n)}
}
