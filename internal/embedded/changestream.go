package embedded

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/query"
	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// defaultAwait is how long a getMore waits for an event unless the client says.
const defaultAwait = time.Second

// A resume token is a cluster time and what was seen of it.
type tokenKind byte

const (
	tokenMark       tokenKind = iota // everything up to the time
	tokenEvent                       // the event of that time
	tokenInvalidate                  // the end of the stream which that event meant
)

func encodeToken(ts uint64, kind tokenKind) bson.Raw {
	data := hex.EncodeToString(append(binary.BigEndian.AppendUint64(nil, ts), byte(kind)))
	return newDoc().string("_data", data).end()
}

func decodeToken(v bson.RawValue) (ts uint64, kind tokenKind, err error) {
	bad := mongoerr.New(mongoerr.InvalidResumeToken, "Bad resume token")
	if v.Type != bson.TypeEmbeddedDocument {
		return 0, 0, bad
	}
	data, _ := value.Lookup(v.Value, "_data")
	text, _ := data.StringValueOK()
	b, e := hex.DecodeString(text)
	if e != nil || len(b) != 9 || b[8] > byte(tokenInvalidate) {
		return 0, 0, bad
	}
	return binary.BigEndian.Uint64(b), tokenKind(b[8]), nil
}

// tail is an open change stream.
type tail struct {
	s        *Server
	watched  string // "db.collection" or "db."
	waiter   *storage.Waiter
	pipeline *query.Pipeline
	lookup   bool

	queue  []*storage.Event // read from the log, not looked at yet
	upTo   uint64           // searched up to here, when queue is empty
	resume bson.Raw         // token to go on from
	// invalid is the time of the event that ends the stream, to be told next.
	invalid uint64
	ended   bool
}

// tailOptions is what $changeStream says.
type tailOptions struct {
	after  uint64 // events later than this
	given  bool   // the client said where to start
	kind   tokenKind
	lookup bool
}

func parseTailOptions(spec bson.Raw) (o tailOptions, err error) {
	starts := 0
	for it := value.NewIter(spec); it.Next(); {
		switch name := string(it.Key); name {
		case "resumeAfter", "startAfter":
			if o.after, o.kind, err = decodeToken(it.Value); err != nil {
				return o, err
			}
			if name == "resumeAfter" && o.kind == tokenInvalidate {
				return o, mongoerr.New(mongoerr.InvalidResumeToken, "Attempting to resume a change stream using 'resumeAfter' is not allowed from an invalidate notification.")
			}
			starts++
		case "startAtOperationTime":
			if it.Value.Type != bson.TypeTimestamp {
				return o, mongoerr.New(mongoerr.TypeMismatch, "BSON field '$changeStream.startAtOperationTime' is the wrong type")
			}
			t, i := it.Value.Timestamp()
			o.after, o.kind = uint64(t)<<32+uint64(i)-1, tokenMark
			starts++
		case "fullDocument":
			switch mode, _ := it.Value.StringValueOK(); mode {
			case "default":
			case "updateLookup":
				o.lookup = true
			default:
				return o, mongoerr.NotImplemented("fullDocument: " + mode)
			}
		case "fullDocumentBeforeChange":
			if mode, _ := it.Value.StringValueOK(); mode != "off" {
				return o, mongoerr.NotImplemented("fullDocumentBeforeChange: " + mode)
			}
		case "allChangesForCluster", "showExpandedEvents":
			if !isOff(it.Value) {
				return o, mongoerr.NotImplemented(name)
			}
		default:
			return o, mongoerr.New(40415, "BSON field '$changeStream.%s' is an unknown field.", name)
		}
	}
	if starts > 1 {
		return o, mongoerr.New(mongoerr.InvalidOptions, "Do not specify both 'resumeAfter' and 'startAfter', or either with 'startAtOperationTime', in a $changeStream stage.")
	}
	o.given = starts == 1
	return o, nil
}

// openTail serves aggregate with $changeStream.
func (r *request) openTail(spec bson.RawValue, stages []bson.Raw, batchSize int) (*docBuilder, error) {
	if r.inTxn {
		return nil, mongoerr.New(mongoerr.OperationNotSupportedInTxn, "$changeStream is not allowed in a multi-document transaction")
	}
	if level := r.readConcernLevel(); level != "" && level != "majority" {
		return nil, mongoerr.New(mongoerr.InvalidOptions, "$changeStream cannot run with a readConcern other than 'majority', or in a multi-document transaction. Current readConcern: %s", level)
	}
	if spec.Type != bson.TypeEmbeddedDocument {
		return nil, mongoerr.New(50808, "$changeStream stage expects a document as argument")
	}
	o, err := parseTailOptions(bson.Raw(spec.Value))
	if err != nil {
		return nil, err
	}
	t := &tail{s: r.s, lookup: o.lookup}
	if t.pipeline, err = query.CompilePipeline(stages); err != nil {
		return nil, err
	}
	if !t.pipeline.Only("$match", "$project") {
		return nil, mongoerr.NotImplemented("a stage other than $match and $project behind $changeStream")
	}
	ns := r.db + ".$cmd.aggregate"
	if name, ok := r.args[0].value.StringValueOK(); ok {
		if ns, err = r.namespace(); err != nil {
			return nil, err
		}
		t.watched = r.db + "." + name
	} else {
		t.watched = r.db + "."
	}
	t.waiter = r.s.store.Log().Watch(t.watched)
	if err := t.start(o); err != nil {
		t.close()
		return nil, err
	}
	return r.firstBatch(&cursor{ns: ns, src: t, tail: t}, batchSize, false)
}

// start positions the stream, and fails when the log does not reach back.
func (t *tail) start(o tailOptions) error {
	if !o.given {
		o.after, o.kind = t.s.store.Log().Last(), tokenMark
	}
	t.upTo, t.resume = o.after, encodeToken(o.after, o.kind)
	if o.kind == tokenEvent {
		// A stream that ended with this event must tell so again.
		events, _, err := t.s.store.Log().After(o.after-1, t.waiter, 1)
		if err == nil && len(events) == 1 && events[0].TS == o.after && t.ends(events[0]) {
			t.invalid = o.after
		}
	}
	_, _, err := t.s.store.Log().After(o.after, t.waiter, 1)
	return err
}

// ends reports whether an event is the end of what the stream watches.
func (t *tail) ends(e *storage.Event) bool {
	switch e.Kind {
	case storage.Dropped:
		return e.Namespace == t.watched
	case storage.DatabaseDropped:
		return e.Namespace+"." == t.watched || strings.HasPrefix(t.watched, e.Namespace+".")
	}
	return false
}

// token is where a client that has seen all so far should resume.
func (t *tail) token() bson.Raw { return t.resume }

func (t *tail) close() { t.s.store.Log().Unwatch(t.waiter) }

// next returns the next event that passes the pipeline, if there is one now.
func (t *tail) next() (bson.Raw, bool, error) {
	for {
		switch {
		case t.ended:
			return nil, false, nil
		case t.invalid != 0:
			t.ended = true
			t.resume = encodeToken(t.invalid, tokenInvalidate)
			doc := newDoc().doc("_id", t.resume).string("operationType", "invalidate").
				timestamp("clusterTime", storage.Timestamp(t.invalid)).end()
			return t.pass(doc)
		case len(t.queue) == 0:
			const step = 128
			events, upTo, err := t.s.store.Log().After(t.upTo, t.waiter, step)
			if err != nil {
				return nil, false, err
			}
			if t.queue, t.upTo = events, upTo; len(events) == 0 {
				if ts, kind, _ := decodeToken(value.Document(t.resume)); ts < upTo || kind == tokenMark {
					t.resume = encodeToken(upTo, tokenMark)
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
		if e.Kind == storage.DatabaseDropped && strings.Contains(t.watched, ".") && !strings.HasSuffix(t.watched, ".") {
			continue
		}
		t.resume = encodeToken(e.TS, tokenEvent)
		doc, keep, err := t.pass(t.document(e))
		if err != nil || keep {
			return doc, keep, err
		}
	}
}

// pass sends an event through the pipeline, which must leave the token alone.
func (t *tail) pass(doc bson.Raw) (bson.Raw, bool, error) {
	out, keep, err := t.pipeline.Each(doc)
	if err != nil || !keep {
		return nil, false, err
	}
	id, _ := value.Lookup(out, "_id")
	if !value.Identical(id, value.Document(t.resume)) {
		return nil, false, mongoerr.New(mongoerr.ChangeStreamFatalError, "Encountered an event whose _id field, which contains the resume token, was modified by the pipeline. Modifying the _id field of an event makes it impossible to resume the stream from that point. Only transformations that retain the unmodified _id field are allowed.")
	}
	return out, true, nil
}

// document makes the event a client sees.
func (t *tail) document(e *storage.Event) bson.Raw {
	d := newDoc().doc("_id", t.resume).string("operationType", string(e.Kind)).timestamp("clusterTime", storage.Timestamp(e.TS))
	if e.Session != nil {
		d.int64("txnNumber", e.TxnNumber).doc("lsid", e.Session)
	}
	db, coll, _ := strings.Cut(e.Namespace, ".")
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
	d.openDoc("ns").string("db", db)
	if coll != "" {
		d.string("coll", coll)
	}
	d.close()
	if e.Key != nil {
		d.doc("documentKey", e.Key)
	}
	if e.Kind == storage.Updated {
		d.doc("updateDescription", e.Description())
	}
	return d.end()
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
	await := defaultAwait
	if r.ctx.maxTime > 0 {
		await = r.ctx.maxTime // here, the time to wait; no limit of the command
	}
	r.ctx.maxTime = 0
	var timeout *time.Timer
	for {
		got, _, err := c.fill(r.ctx, d, n)
		if err != nil || got > 0 || c.tail.ended {
			return !c.tail.ended || c.pending != nil, err
		}
		if timeout == nil {
			timeout = time.NewTimer(await)
			defer timeout.Stop()
		}
		select {
		case <-c.tail.waiter.C:
		case <-timeout.C:
			return true, nil
		case <-c.gone:
			return false, mongoerr.New(237, "cursor id %d was killed", c.id) // CursorKilled
		case <-r.ctx.Done():
			return false, storage.ContextError(r.ctx)
		}
	}
}
