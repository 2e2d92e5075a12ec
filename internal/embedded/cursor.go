package embedded

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/storage"
)

// maxCursors bounds how many results may be left half read.
const maxCursors = 10_000

// batchBytes is how large a batch of documents may become.
const batchBytes = 16 << 20

// source delivers the documents of a cursor.
type source interface {
	// next returns the next document; false at the end, or when there is none
	// now, in a source that goes on.
	next() (bson.Raw, bool, error)
	close()
}

// cursor is a result a client reads in batches.
type cursor struct {
	id      int64
	ns      string
	session string
	src     source
	pending bson.Raw // read, but too large for the last batch
	tail    *tail    // of a change stream, else nil

	gone   chan struct{} // closed when killed
	busy   bool
	killed bool
	used   time.Time
}

// cursors is all cursors of a server.
type cursors struct {
	now  func() time.Time
	mu   sync.Mutex
	m    map[int64]*cursor
	last int64
}

func newCursors(now func() time.Time) *cursors {
	return &cursors{now: now, m: map[int64]*cursor{}, last: now().UnixNano() & (1<<62 - 1)}
}

func (l *cursors) add(c *cursor) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.m) >= maxCursors {
		return mongoerr.New(mongoerr.OperationFailed, "%d cursors are open", maxCursors)
	}
	l.last++
	c.id, c.gone, c.used = l.last, make(chan struct{}), l.now()
	l.m[c.id] = c
	return nil
}

// take returns a cursor for one command alone.
func (l *cursors) take(id int64) (*cursor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.m[id]
	if c == nil {
		return nil, mongoerr.New(mongoerr.CursorNotFound, "cursor id %d not found", id)
	}
	if c.busy {
		return nil, mongoerr.New(20, "cursor id %d is already in use", id) // IllegalOperation
	}
	c.busy = true
	return c, nil
}

// put gives a cursor back; done removes it.
func (l *cursors) put(c *cursor, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.busy, c.used = false, l.now()
	if done || c.killed {
		delete(l.m, c.id)
		c.src.close()
	}
}

func (l *cursors) killIf(match func(*cursor) bool) (ids []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, c := range l.m {
		if !match(c) {
			continue
		}
		ids = append(ids, id)
		delete(l.m, id)
		c.killed = true
		close(c.gone)
		if !c.busy {
			c.src.close()
		}
	}
	return ids
}

func (l *cursors) kill(ids []int64) []int64 {
	return l.killIf(func(c *cursor) bool { return slices.Contains(ids, c.id) })
}

func (l *cursors) killSessions(keys []string) {
	l.killIf(func(c *cursor) bool { return c.session != "" && slices.Contains(keys, c.session) })
}

func (l *cursors) closeAll() { l.killIf(func(*cursor) bool { return true }) }

func (l *cursors) sweep(timeout time.Duration) {
	now := l.now()
	l.killIf(func(c *cursor) bool { return !c.busy && now.Sub(c.used) > timeout })
}

// fill appends up to n documents (0: as many as fit) to the array that is open
// in d. more tells that the source may have further ones.
func (c *cursor) fill(ctx context.Context, d *docBuilder, n int) (count int, more bool, err error) {
	start := len(d.b)
	for n == 0 || count < n {
		if count%256 == 255 {
			if ctx.Err() != nil {
				return count, false, storage.ContextError(ctx)
			}
		}
		doc := c.pending
		c.pending = nil
		if doc == nil {
			var ok bool
			if doc, ok, err = c.src.next(); err != nil || !ok {
				return count, false, err
			}
		}
		if count > 0 && len(d.b)-start+len(doc) > batchBytes {
			c.pending = doc
			return count, true, nil
		}
		d.doc(arrayKey(count), doc)
		count++
	}
	return count, true, nil
}

// reply writes the first batch and keeps the cursor if there is more.
func (r *request) firstBatch(c *cursor, batchSize int, single bool) (*docBuilder, error) {
	if r.session != nil {
		c.session = r.session.key
	}
	d := newDoc().openDoc("cursor").openArray("firstBatch")
	more := true
	var err error
	if batchSize > 0 {
		_, more, err = c.fill(r.ctx, d, batchSize)
	}
	if err == nil && more && c.pending == nil && !single && c.tail == nil && batchSize > 0 {
		// Look one ahead, so that a result that just fits needs no second round.
		var doc bson.Raw
		if doc, more, err = c.src.next(); more {
			c.pending = doc
		}
	}
	if err != nil {
		c.src.close()
		return nil, err
	}
	d.close()
	if c.tail != nil {
		d.doc("postBatchResumeToken", c.tail.token())
		more = !c.tail.ended
	}
	if !more || single {
		c.src.close()
		return d.int64("id", 0).string("ns", c.ns).close(), nil
	}
	if err := r.s.cursors.add(c); err != nil {
		c.src.close()
		return nil, err
	}
	return d.int64("id", c.id).string("ns", c.ns).close(), nil
}

func runGetMore(r *request) (*docBuilder, error) {
	id := r.args[0].value
	if id.Type != bson.TypeInt64 {
		return nil, r.wrongType("getMore", "long", id)
	}
	batchSize, err := r.count("batchSize")
	if err != nil {
		return nil, err
	}
	c, err := r.s.cursors.take(id.Int64())
	if err != nil {
		return nil, err
	}
	if name, _ := r.get("collection").StringValueOK(); r.db+"."+name != c.ns {
		r.s.cursors.put(c, false)
		return nil, mongoerr.New(mongoerr.Unauthorized, "Requested getMore on namespace '%s.%s', but cursor belongs to a different namespace %s", r.db, name, c.ns)
	}
	if c.tail == nil && r.get("maxTimeMS").Type != 0 {
		r.s.cursors.put(c, false)
		return nil, mongoerr.New(mongoerr.BadValue, "cannot set maxTimeMS on getMore command for a non-awaitData cursor")
	}
	d := newDoc().openDoc("cursor").openArray("nextBatch")
	var more bool
	if c.tail != nil {
		more, err = r.fillTail(c, d, batchSize)
	} else {
		_, more, err = c.fill(r.ctx, d, batchSize)
	}
	d.close()
	if err == nil && c.tail != nil {
		d.doc("postBatchResumeToken", c.tail.token())
	}
	r.s.cursors.put(c, err != nil || !more)
	if err != nil {
		return nil, err
	}
	reply := int64(0)
	if more {
		reply = c.id
	}
	return d.int64("id", reply).string("ns", c.ns).close(), nil
}

func runKillCursors(r *request) (*docBuilder, error) {
	v := r.get("cursors")
	if v.Type != bson.TypeArray {
		return nil, r.wrongType("cursors", "array", v)
	}
	values, err := bson.Raw(v.Value).Values()
	if err != nil {
		return nil, mongoerr.New(mongoerr.BadValue, "cursors: %v", err)
	}
	var ids []int64
	for _, v := range values {
		if id, ok := v.AsInt64OK(); ok {
			ids = append(ids, id)
		}
	}
	killed := r.s.cursors.kill(ids)
	missing := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(killed, id) })
	return newDoc().any("cursorsKilled", killed).any("cursorsNotFound", missing).
		any("cursorsAlive", bson.A{}).any("cursorsUnknown", bson.A{}), nil
}

func arrayKey(i int) string { return strconv.Itoa(i) }
