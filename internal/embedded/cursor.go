package embedded

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/plan"
	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// maxCursors bounds how many results may be left half read.
const maxCursors = 10_000

// batchBytes is how large a batch of documents may become.
const batchBytes = 16 << 20

// cursor is a result a client reads in batches. What costs memory while it is
// left half read is bounded: documents it holds by their bytes, over all cursors;
// the snapshots of a collection by what was overwritten since.
type cursor struct {
	id      int64
	ns      string
	session string
	txn     *storage.Txn // in which it was opened; nil for none
	// next delivers the next document; false at the end, or when there is none
	// now, in a change stream.
	next  func() (bson.Raw, bool, error)
	stop  func()     // ends next; nil when there is nothing to end
	holds bool       // next has the result in memory: it is taken from it if the cursor stays
	rows  *plan.Rows // that next reads; nil when it reads no snapshot
	tail  *tail      // of a change stream, else nil

	list  []bson.Raw // taken from next, not sent yet
	bytes int        // of list

	gone    chan struct{} // closed when killed
	busy    bool
	killed  bool
	used    time.Time
	forever bool // noCursorTimeout: it ends with its session
	charged int  // of the bound of all cursors
}

// pull returns the next document.
func (c *cursor) pull() (bson.Raw, bool, error) {
	if len(c.list) == 0 {
		return c.next()
	}
	doc := c.list[0]
	c.list[0], c.list = nil, c.list[1:]
	c.bytes -= len(doc)
	return doc, true, nil
}

// keep puts a document back that was taken too early, or ahead of its turn.
func (c *cursor) keep(doc bson.Raw, at int) {
	c.list = slices.Insert(c.list, at, doc)
	c.bytes += len(doc)
}

// drain takes from next what it holds, as long as that is within most bytes.
func (c *cursor) drain(most int) error {
	for c.bytes <= most {
		doc, ok, err := c.next()
		if err != nil {
			return err
		}
		if !ok {
			c.end()
			c.next, c.rows = func() (bson.Raw, bool, error) { return nil, false, nil }, nil
			break
		}
		c.keep(doc, len(c.list))
	}
	return nil
}

// end lets go of what next reads.
func (c *cursor) end() {
	if c.stop != nil {
		c.stop()
		c.stop = nil
	}
}

// held is what the cursor costs while nobody reads it.
func (c *cursor) held() int {
	n := c.bytes
	if c.rows != nil {
		const entry = 48 // of the map of records seen
		n += entry * c.rows.Seen()
	}
	return n
}

// cursors is all cursors of a server.
type cursors struct {
	now     func() time.Time
	current func(ns string) *storage.Collection
	limit   int // bytes

	mu    sync.Mutex
	m     map[int64]*cursor
	last  int64
	bytes int
}

func newCursors(s *Server) *cursors {
	return &cursors{now: s.opt.Now, current: func(ns string) *storage.Collection { return s.store.Snapshot().Collection(ns) }, limit: s.opt.CursorBytes,
		m: map[int64]*cursor{}, last: s.opt.Now().UnixNano() & (1<<62 - 1)}
}

// add keeps a cursor that was opened.
func (l *cursors) add(c *cursor) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.m) >= maxCursors {
		return mongoerr.New(mongoerr.OperationFailed, "%d cursors are open", maxCursors)
	}
	l.last++
	c.id, c.gone = l.last, make(chan struct{})
	l.m[c.id] = c
	return l.release(c, false)
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
		return nil, mongoerr.New(mongoerr.IllegalOperation, "cursor id %d is already in use", id)
	}
	c.busy = true
	return c, nil
}

// put gives a cursor back; done removes it. It fails when the cursor alone holds
// too much.
func (l *cursors) put(c *cursor, done bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.release(c, done)
}

func (l *cursors) release(c *cursor, done bool) error {
	c.busy, c.used = false, l.now()
	if done || c.killed {
		l.remove(c)
		return nil
	}
	held := c.held()
	l.bytes += held - c.charged
	c.charged = held
	if held > l.limit {
		l.remove(c)
		return l.holdTooMuch()
	}
	if l.bytes > l.limit {
		l.makeRoom(c)
	}
	return nil
}

func (l *cursors) holdTooMuch() error {
	return mongoerr.New(mongoerr.QueryExceededMemoryLimit, "the results that open cursors hold would exceed the limit of "+
		"%d bytes (Options.CursorBytes): read cursors to their end or close them, or ask for less at a time", l.limit)
}

// makeRoom ends cursors that nobody reads at the moment, the least recently used
// first, until the others are within the limit.
func (l *cursors) makeRoom(reader *cursor) {
	var idle []*cursor
	for _, c := range l.m {
		if c != reader && !c.busy && c.charged > 0 {
			idle = append(idle, c)
		}
	}
	slices.SortFunc(idle, func(a, b *cursor) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.id, b.id)) })
	for _, c := range idle {
		if l.bytes <= l.limit {
			return
		}
		l.fail(c, l.holdTooMuch())
	}
}

// fail ends a cursor that is not busy: the next getMore gets the error.
func (l *cursors) fail(c *cursor, err error) {
	c.end()
	c.rows, c.list, c.bytes = nil, nil, 0
	l.bytes -= c.charged
	c.charged = 0
	c.next = func() (bson.Raw, bool, error) { return nil, false, err }
}

// remove forgets a cursor that is not busy.
func (l *cursors) remove(c *cursor) {
	delete(l.m, c.id)
	l.bytes -= c.charged
	c.charged = 0
	c.end()
}

// killIf kills cursors; a busy one is removed when it is put back.
func (l *cursors) killIf(match func(*cursor) bool) []int64 {
	ids := []int64{}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, c := range l.m {
		if c.killed || !match(c) {
			continue
		}
		ids = append(ids, id)
		c.killed = true
		close(c.gone)
		if c.busy {
			delete(l.m, id)
		} else {
			l.remove(c)
		}
	}
	return ids
}

// sweep closes cursors that nobody used for long, and lets go of snapshots that
// keep too much alive: the next getMore says why.
func (l *cursors) sweep(timeout time.Duration) {
	now := l.now()
	l.killIf(func(c *cursor) bool { return !c.busy && !c.forever && now.Sub(c.used) > timeout })
	l.mu.Lock()
	defer l.mu.Unlock()
	var ns string
	var newer *storage.Collection // than the next one, of those that stay
	kept := 0
	for _, c := range l.newestFirst() {
		if c.ns != ns {
			ns, newer, kept = c.ns, l.current(c.ns), 0
		}
		reads := c.rows.Reads()
		if more := reads.KeptAlive(newer); c.busy || kept+more <= l.limit {
			newer, kept = reads, kept+more
			continue
		}
		l.fail(c, &mongoerr.Error{Code: 239, Name: "SnapshotTooOld", Message: "more than " + strconv.Itoa(l.limit) +
			" bytes (Options.CursorBytes) were overwritten of its collection since the cursor was opened: read it faster, or in parts"})
	}
}

// newestFirst is the cursors that read a snapshot, those of one collection together.
func (l *cursors) newestFirst() (list []*cursor) {
	for _, c := range l.m {
		if c.rows != nil && c.rows.Reads() != nil && c.txn == nil {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *cursor) int {
		return cmp.Or(strings.Compare(a.ns, b.ns), b.rows.Reads().Age(a.rows.Reads()))
	})
	return list
}

// fill appends up to n documents (0: as many as fit) to the array that is open
// in d. more tells that there may be further ones.
func (c *cursor) fill(ctx context.Context, d *docBuilder, n int) (count int, more bool, err error) {
	start := len(d.b)
	for ; n == 0 || count < n; count++ {
		if count%256 == 255 && ctx.Err() != nil {
			return count, false, storage.ContextError(ctx)
		}
		doc, ok, err := c.pull()
		if err != nil || !ok {
			return count, false, err
		}
		if count > 0 && len(d.b)-start+len(doc) > batchBytes {
			if c.tail != nil {
				c.tail.unread() // the token must not be that of an event which was not sent
			} else {
				c.keep(doc, 0)
			}
			break
		}
		d.doc(arrayKey(count), doc)
	}
	return count, true, nil
}

var cursorFields = knownFields("batchSize", "")

// cursorBatch returns the size of the first batch that the option cursor asks for.
func (r *request) cursorBatch(required bool) int {
	if required && r.given("cursor").Type == 0 {
		r.fail(mongoerr.New(mongoerr.FailedToParse,
			"The 'cursor' option is required, except for aggregate with the explain argument"))
	}
	f := fields{of: r.of + ".cursor"}
	f.read(r.document("cursor"), cursorFields, 0)
	n := f.count("batchSize", defaultBatch)
	r.fail(f.err)
	return n
}

// firstBatch answers with it, and keeps the cursor if there is more.
func (r *request) firstBatch(c *cursor, batchSize int, single bool) (*docBuilder, error) {
	if r.session != nil {
		c.session = r.session.key
	}
	c.txn = r.txn
	d := newDoc().openDoc("cursor").openArray("firstBatch")
	more := true
	var err error
	if batchSize > 0 {
		if _, more, err = c.fill(r.ctx, d, batchSize); err == nil && more && c.tail == nil && !single {
			// Look one ahead, so that a result that just fits needs no second round.
			var doc bson.Raw
			if doc, more, err = c.pull(); more {
				c.keep(doc, 0)
			}
		}
	}
	r.snapshotTime(d.close())
	if c.tail != nil {
		c.tail.forget()
		d.doc("postBatchResumeToken", c.tail.token())
		more = !c.tail.ended
	}
	more = more && !single
	if err == nil && more && c.holds {
		err = c.drain(r.s.opt.CursorBytes)
	}
	if err == nil && more {
		err = r.s.cursors.add(c)
	}
	if err != nil || !more {
		c.end()
	}
	return d.int64("id", c.id).string("ns", c.ns).close(), err
}

func runGetMore(r *request) (*docBuilder, error) {
	id, ok := r.subject().Int64OK()
	if !ok {
		r.wrongType("getMore", "long", r.subject())
	}
	batchSize := r.count("batchSize", 0)
	if r.err != nil {
		return nil, r.err
	}
	c, err := r.s.cursors.take(id)
	if err != nil {
		return nil, err
	}
	name, _ := r.get("collection").StringValueOK()
	switch {
	case r.db+"."+name != c.ns:
		err = mongoerr.New(mongoerr.Unauthorized,
			"Requested getMore on namespace '%s.%s', but cursor belongs to a different namespace %s", r.db, name, c.ns)
	case c.txn != r.txn:
		err = mongoerr.New(50740, "Cannot run getMore on cursor %d outside the transaction it was created in, or in another", id)
	case c.tail == nil && r.get("maxTimeMS").Type != 0:
		err = mongoerr.New(mongoerr.BadValue, "cannot set maxTimeMS on getMore command for a non-awaitData cursor")
	}
	if err != nil {
		_ = r.s.cursors.put(c, false) // it is as it was
		return nil, err
	}
	if c.rows != nil {
		c.rows.Within(r.ctx)
	}
	d := newDoc().openDoc("cursor").openArray("nextBatch")
	var more bool
	if c.tail != nil {
		more, err = r.fillTail(c, d, batchSize)
	} else {
		_, more, err = c.fill(r.ctx, d, batchSize)
	}
	d.close()
	if c.tail != nil {
		d.doc("postBatchResumeToken", c.tail.token())
	}
	if e := r.s.cursors.put(c, err != nil || !more); err == nil {
		err = e
	}
	if !more {
		id = 0
	}
	return d.int64("id", id).string("ns", c.ns).close(), err
}

func runKillCursors(r *request) (*docBuilder, error) {
	v := r.get("cursors")
	if v.Type != bson.TypeArray {
		r.wrongType("cursors", "array", v)
		return nil, r.err
	}
	missing := []int64{}
	for it := value.NewIter(v.Value); it.Next(); {
		if id, ok := value.AsInteger(it.Value); ok {
			missing = append(missing, id)
		}
	}
	killed := r.s.cursors.killIf(func(c *cursor) bool { return slices.Contains(missing, c.id) })
	missing = slices.DeleteFunc(missing, func(id int64) bool { return slices.Contains(killed, id) })
	return newDoc().any("cursorsKilled", killed).any("cursorsNotFound", missing).
		any("cursorsAlive", bson.A{}).any("cursorsUnknown", bson.A{}), nil
}

func arrayKey(i int) string { return strconv.Itoa(i) }
