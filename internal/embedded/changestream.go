package embedded

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/query"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// defaultAwait is how long a getMore waits for an event unless the client says.
const defaultAwait = time.Second

// position is a point of a change stream, and what a resume token says: a cluster
// time and what was seen of it.
type position struct {
	ts   uint64
	kind tokenKind
}

type tokenKind byte

const (
	tokenMark       tokenKind = iota // everything up to the time
	tokenEvent                       // the event of that time
	tokenInvalidate                  // the end of the stream which that event meant
	tokenStart                       // what the client named as its start; nothing was seen yet
)

func (p position) token() bson.Raw {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 9), p.ts)
	return newDoc().string("_data", hex.EncodeToString(append(b, byte(p.kind)))).end()
}

func decodeToken(v bson.RawValue) (p position, err error) {
	doc, _ := v.DocumentOK()
	data, _ := value.Lookup(doc, "_data")
	text, _ := data.StringValueOK()
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 9 || b[8] > byte(tokenStart) {
		return p, mongoerr.New(mongoerr.InvalidResumeToken, "Bad resume token")
	}
	return position{binary.BigEndian.Uint64(b), tokenKind(b[8])}, nil
}

// isIn reports whether the log may have given this position. A file that was restored
// from a copy lacks what came after the copy: who saw that must not go on as if it had been here.
func (p position) isIn(log *storage.Log) bool {
	switch p.kind {
	case tokenMark:
		return log.HasEnded(p.ts)
	case tokenEvent, tokenInvalidate:
		return log.HasEvent(p.ts)
	}
	return true
}

// tail is an open change stream. It holds nothing between two batches: what it
// has not sent it reads in the log again.
type tail struct {
	s        *Server
	watched  string // "db.collection" or "db."
	waiter   *storage.Waiter
	pipeline *query.Pipeline
	lookup   bool

	tailState
	before tailState        // the last event of next
	queue  []*storage.Event // read from the log, not looked at yet
	upTo   uint64           // the log was searched up to here, when queue is empty
	known  docBuilder       // what an event costs nothing to say
}

type tailState struct {
	at      position // the client has seen what is up to here
	invalid uint64   // the time of the event that ends the stream, to be told next
	ended   bool
}

// parse reads what $changeStream says; given tells that it says where to start.
func (t *tail) parse(spec bson.Raw) (given bool, err error) {
	starts := 0
	for it := value.NewIter(spec); it.Next(); {
		mode, _ := it.Value.StringValueOK()
		switch name := string(it.Key); name {
		case "resumeAfter", "startAfter":
			if t.at, err = decodeToken(it.Value); err != nil {
				return false, err
			}
			if name == "resumeAfter" && t.at.kind == tokenInvalidate {
				return false, mongoerr.New(mongoerr.InvalidResumeToken, "Attempting to resume a change stream using "+
					"'resumeAfter' is not allowed from an invalidate notification.")
			}
			starts++
		case "startAtOperationTime":
			sec, i, ok := it.Value.TimestampOK()
			if !ok {
				return false, mongoerr.New(mongoerr.TypeMismatch, "BSON field '$changeStream.startAtOperationTime' is the wrong type")
			}
			t.at = position{t.s.store.Log().Since(max(uint64(sec)<<32+uint64(i), 1) - 1), tokenStart}
			starts++
		case "fullDocument":
			t.lookup = mode == "updateLookup"
			if !t.lookup && mode != "default" {
				return false, mongoerr.NotImplemented("fullDocument: " + mode)
			}
		case "fullDocumentBeforeChange":
			if mode != "off" {
				return false, mongoerr.NotImplemented("fullDocumentBeforeChange: " + mode)
			}
		case "allChangesForCluster", "showExpandedEvents":
			if !isOff(it.Value) {
				return false, mongoerr.NotImplemented(name)
			}
		default:
			return false, mongoerr.New(40415, "BSON field '$changeStream.%s' is an unknown field.", name)
		}
	}
	if starts > 1 {
		return false, mongoerr.New(mongoerr.InvalidOptions, "Do not specify both 'resumeAfter' and 'startAfter', "+
			"or either with 'startAtOperationTime', in a $changeStream stage.")
	}
	return starts == 1, nil
}

// openTail serves aggregate with $changeStream.
func (r *request) openTail(spec bson.RawValue, stages []bson.Raw, batchSize int) (*docBuilder, error) {
	if r.inTxn {
		return nil, mongoerr.New(mongoerr.OperationNotSupportedInTxn, "$changeStream is not allowed in a multi-document transaction")
	}
	if level := r.readConcernLevel(); level != "" && level != "majority" {
		return nil, mongoerr.New(mongoerr.InvalidOptions, "$changeStream cannot run with a readConcern other than 'majority', "+
			"or in a multi-document transaction. Current readConcern: %s", level)
	}
	doc, ok := spec.DocumentOK()
	if !ok {
		return nil, mongoerr.New(50808, "$changeStream stage expects a document as argument")
	}
	t := &tail{s: r.s, watched: r.db + "."}
	given, err := t.parse(doc)
	if err != nil {
		return nil, err
	}
	if t.pipeline, err = query.CompilePipeline(stages); err != nil {
		return nil, err
	}
	if !t.pipeline.Only("$match", "$project") {
		return nil, mongoerr.NotImplemented("a stage other than $match and $project behind $changeStream")
	}
	ns := r.db + ".$cmd.aggregate"
	if r.subject().Type == bson.TypeString {
		ns = r.namespace()
		t.watched = ns
	}
	if r.err != nil {
		return nil, r.err
	}
	t.waiter = r.s.store.Log().Watch(t.watched)
	if err := t.start(given); err != nil {
		t.close()
		return nil, err
	}
	return r.firstBatch(&cursor{ns: ns, next: t.next, stop: t.close, tail: t}, batchSize, false)
}

// start positions the stream, and fails when the log does not reach back.
func (t *tail) start(given bool) error {
	log := t.s.store.Log()
	if !given {
		t.at = position{log.Last(), tokenMark}
	}
	t.upTo = t.at.ts
	if !t.at.isIn(log) {
		return mongoerr.New(mongoerr.ChangeStreamFatalError, "cannot resume stream; the resume token was not found. %s", t.token())
	}
	if t.at.kind == tokenEvent {
		// A stream that ended with this event must tell so again.
		events, _, err := log.After(t.at.ts-1, t.waiter, 1)
		if err == nil && len(events) == 1 && events[0].TS == t.at.ts && t.ends(events[0]) {
			t.invalid = t.at.ts
		}
	}
	_, _, err := log.After(t.at.ts, t.waiter, 1)
	return err
}

// ends reports whether an event is the end of what the stream watches.
func (t *tail) ends(e *storage.Event) bool {
	switch e.Kind {
	case storage.Dropped:
		return e.Namespace == t.watched
	case storage.DatabaseDropped:
		return strings.HasPrefix(t.watched, e.Namespace+".")
	}
	return false
}

// token is where a client that has seen all so far should resume.
func (t *tail) token() bson.Raw { return t.at.token() }

func (t *tail) close() { t.s.store.Log().Unwatch(t.waiter) }

// next returns the next event that passes the pipeline, if there is one now.
func (t *tail) next() (bson.Raw, bool, error) {
	for t.before = t.tailState; ; {
		switch {
		case t.ended:
			return nil, false, nil
		case t.invalid != 0:
			t.ended = true
			t.at = position{t.invalid, tokenInvalidate}
			return t.pass(newDoc().doc("_id", t.token()).string("operationType", "invalidate").
				timestamp("clusterTime", storage.Timestamp(t.invalid)).end())
		case len(t.queue) == 0:
			const step = 128
			events, upTo, err := t.s.store.Log().After(t.upTo, t.waiter, step)
			if err != nil {
				return nil, false, err
			}
			if t.queue, t.upTo = events, upTo; len(events) == 0 {
				if t.at.ts < upTo {
					t.at = position{upTo, tokenMark}
				}
				return nil, false, nil
			}
		}
		e := t.queue[0]
		t.queue = t.queue[1:]
		if t.ends(e) {
			t.invalid = e.TS
		}
		// What a collection stream sees of its database's end is only its own.
		if e.Kind == storage.DatabaseDropped && !strings.HasSuffix(t.watched, ".") {
			continue
		}
		t.at = position{e.TS, tokenEvent}
		if !t.mayPass(e) {
			continue
		}
		if doc, keep, err := t.pass(t.document(e)); err != nil || keep {
			return doc, keep, err
		}
	}
}

// forget lets go of what was read of the log and not looked at.
func (t *tail) forget() {
	if len(t.queue) > 0 {
		t.queue, t.upTo = nil, t.at.ts
	}
}

// unread takes back the event that next returned last.
func (t *tail) unread() {
	t.tailState = t.before
	t.queue, t.upTo = nil, t.at.ts
}

// mayPass judges an event by what is known without copying its document and
// working out what an update changed: most streams wait for few of all events.
func (t *tail) mayPass(e *storage.Event) bool {
	d := &t.known
	d.reset()
	describeKey(d.string("operationType", string(e.Kind)), e)
	return t.pipeline.MayPass(d.end(), func(path string) bool {
		top, below, _ := strings.Cut(path, ".")
		switch top {
		case "operationType", "ns", "documentKey":
			return false
		case "updateDescription":
			if rest, ok := strings.CutPrefix(below, "updatedFields."); ok && e.Kind == storage.Updated {
				field, _, _ := strings.Cut(rest, ".")
				return e.Updates(field)
			}
			return e.Kind == storage.Updated
		case "fullDocument":
			return e.Kind != storage.Deleted
		}
		return true
	})
}

// pass sends an event through the pipeline, which must leave the token alone.
func (t *tail) pass(doc bson.Raw) (bson.Raw, bool, error) {
	out, keep, err := t.pipeline.Each(doc)
	if err != nil || !keep {
		return nil, false, err
	}
	id, _ := value.Lookup(out, "_id")
	if !value.Identical(id, value.Document(t.token())) {
		return nil, false, mongoerr.New(mongoerr.ChangeStreamFatalError, "Encountered an event whose _id field, which contains "+
			"the resume token, was modified by the pipeline. Modifying the _id field of an event makes it impossible to resume "+
			"the stream from that point. Only transformations that retain the unmodified _id field are allowed.")
	}
	return out, true, nil
}

// document makes the event a client sees.
func (t *tail) document(e *storage.Event) bson.Raw {
	d := newDoc().doc("_id", t.token()).string("operationType", string(e.Kind)).timestamp("clusterTime", storage.Timestamp(e.TS))
	if e.Session != nil {
		d.int64("txnNumber", e.TxnNumber).doc("lsid", e.Session)
	}
	switch {
	case e.Doc != nil:
		d.doc("fullDocument", e.Doc)
	case e.Kind == storage.Updated && t.lookup:
		if doc := t.lookUp(e); doc != nil {
			d.doc("fullDocument", doc)
		} else {
			d.null("fullDocument")
		}
	}
	describeKey(d, e)
	if e.Kind == storage.Updated {
		d.doc("updateDescription", e.Description())
	}
	return d.end()
}

// describeKey writes which document an event is about.
func describeKey(d *docBuilder, e *storage.Event) {
	db, coll, _ := strings.Cut(e.Namespace, ".")
	d.openDoc("ns").string("db", db)
	if coll != "" {
		d.string("coll", coll)
	}
	d.close()
	if e.Key != nil {
		d.doc("documentKey", e.Key)
	}
}

// lookUp returns the document as it is now.
func (t *tail) lookUp(e *storage.Event) bson.Raw {
	c := t.s.store.Snapshot().Collection(e.Namespace)
	if c == nil {
		return nil
	}
	id, _ := value.Lookup(e.Key, "_id")
	rec, _ := c.ByID(id)
	return rec.Doc
}

// fillTail waits until there is an event to send or the client's patience ends.
func (r *request) fillTail(c *cursor, d *docBuilder, n int) (more bool, err error) {
	defer c.tail.forget()
	await := defaultAwait
	if r.ctx.maxTime > 0 {
		await = r.ctx.maxTime // here, the time to wait; no limit of the command
	}
	r.ctx.maxTime = 0
	var timeout *time.Timer
	for {
		got, _, err := c.fill(r.ctx, d, n)
		if err != nil || got > 0 || c.tail.ended {
			return !c.tail.ended, err
		}
		if timeout == nil {
			timeout = time.NewTimer(await)
			defer timeout.Stop()
		}
		select {
		case <-c.tail.waiter.C:
		case <-timeout.C:
			_, _, err := c.fill(r.ctx, d, n) // for a token that is up to date
			return !c.tail.ended, err
		case <-c.gone:
			return false, mongoerr.New(mongoerr.CursorKilled, "cursor id %d was killed", c.id)
		case <-r.ctx.Done():
			return false, storage.ContextError(r.ctx)
		}
	}
}
