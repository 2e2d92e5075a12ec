package storage

import (
	"context"
	"runtime"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/query"
)

// Writer carries out the writes of one command. It takes the store's lock when
// it needs it and keeps it from write to write, until Pause or Finish: many
// small writes are one section, which readers see whole. Inside a transaction it
// writes to the transaction's copies.
type Writer struct {
	ctx     context.Context
	s       *Store
	txn     *Txn
	locked  bool
	dirty   bool
	writes  int    // in this section, with the documents looked for by _id
	batch   *batch // that has its last write
	seen    *batch // the newest that what it looked at may be part of
	counted *batch // whose writers it is one of
	lost    error  // why what an earlier section wrote, or looked at, was taken back
	// Remember is called at the end of a section that wrote something, with the
	// lock held; it returns what a retry of the command must find, or nil.
	Remember func() (session string, r *Retry)
	// Long is to be set for a command of many writes: it lets those of few go first.
	Long bool
	// Paths are what updates write to, for their events.
	Paths []query.Path
}

const (
	// maxSection bounds how many documents are written without letting others in.
	maxSection = 256
	// minSection is how many a long command writes before it lets a short one in: what has been
	// published is copied before it is changed again, so shorter sections cost more.
	minSection = 16
)

// maxDocument is the largest document stored.
const maxDocument = 16 << 20

// Writer returns a writer for one command; txn is nil outside a transaction.
// Finish must be called.
func (s *Store) Writer(ctx context.Context, txn *Txn) *Writer {
	return &Writer{ctx: ctx, s: s, txn: txn}
}

func (w *Writer) lock() {
	if w.locked {
		return
	}
	switch {
	case w.s.mu.TryLock():
	case w.Long:
		w.s.mu.Lock()
	default:
		w.s.short.Add(1)
		w.s.mu.Lock()
		w.s.short.Add(-1)
	}
	w.locked, w.writes = true, 0
	for _, b := range []*batch{w.batch, w.seen} {
		if b != nil && b.err != nil {
			w.lost = b.err
		}
	}
	if w.s.pending != nil {
		w.seen = w.s.pending
	} else {
		w.seen = w.s.flushing
	}
}

// unlock ends a section: what it wrote becomes visible, or is on its way to the
// file.
func (w *Writer) unlock() {
	if !w.locked {
		return
	}
	if w.dirty && w.Remember != nil {
		if session, r := w.Remember(); r != nil {
			w.remember(session, r)
		}
	}
	s := w.s
	if s.pending != nil && s.file == nil {
		b := s.pending
		s.pending = nil
		s.publish(s.freezeAll())
		s.log.append(b.events)
		s.times.shown(nil)
		close(b.done)
	} else if s.pending != nil && !s.closed {
		if w.dirty && w.counted != s.pending {
			s.pending.writers++
			w.counted = s.pending
		}
		select {
		case s.kick <- struct{}{}:
		default: // it was kicked and has not looked yet
		}
	}
	w.locked, w.dirty = false, false
	s.mu.Unlock()
}

// Pause lets other writers in, if the section has become long.
func (w *Writer) Pause() {
	bound, short := maxSection, w.s.short.Load() > 0
	if short {
		bound = minSection
	}
	if !w.locked || w.writes < bound {
		return
	}
	if w.unlock(); short {
		runtime.Gosched() // or this goroutine takes the lock again before the other runs
	}
}

// Finish ends the last section and waits until everything written is durable, and
// everything it looked at: "nothing matched" must not come before the write that
// made it so can be read. It may be called again.
func (w *Writer) Finish() error {
	w.unlock()
	for _, b := range []*batch{w.batch, w.seen} {
		if b == nil {
			continue
		}
		if <-b.done; b.err != nil {
			return b.err
		}
	}
	return w.lost
}

// FinishWith is Finish for a defer, so that a command that panics lets go of the store
// too. What went wrong before says more.
func (w *Writer) FinishWith(err *error) {
	if e := w.Finish(); *err == nil {
		*err = e
	}
}

// openBatch returns the batch that gathers writes now.
func (s *Store) openBatch() *batch {
	if s.pending == nil {
		s.pending = &batch{done: make(chan struct{})}
	}
	return s.pending
}

// View returns a collection as the next write will find it, to look for
// documents in; nil when there is none. It ends the section: others write while
// the caller looks.
func (w *Writer) View(ns string) *Collection {
	if w.txn != nil {
		return w.txn.Collection(ns)
	}
	w.lock()
	defer w.unlock()
	if c := w.s.live[ns]; c != nil {
		return c.freeze()
	}
	return nil
}

// FindID returns the document with that _id as the next write will find it. It
// is View for the most frequent case, without the cost of a snapshot.
func (w *Writer) FindID(ns string, id bson.RawValue) (Record, bool) {
	var c *Collection
	if w.txn == nil {
		w.lock()
		w.writes++
		c = w.s.live[ns]
	} else if c = w.txn.own[ns]; c == nil {
		c = w.txn.base.Collection(ns)
	}
	if c == nil {
		return Record{}, false
	}
	return c.ByID(id)
}

// Verdict is what a write decides about a document it was shown.
type Verdict uint8

// The verdicts.
const (
	Skip   Verdict = iota // leave it alone
	Put                   // store the new document, as an update
	Supply                // store the new document, as a replacement
	Remove                // delete it
)

// Modify shows the newest version of a record to decide (one without a document
// when it is gone) and does what it says. It returns false when nothing was
// written. When an open transaction holds the document, Modify waits for its end
// and asks again.
func (w *Writer) Modify(ns string, id uint64, decide func(now Record) (bson.Raw, Verdict, error)) (bool, error) {
	for {
		c, err := w.target(ns)
		if err != nil {
			return false, err
		}
		var now Record
		if c != nil {
			now, _ = c.Get(id)
		}
		doc, verdict, err := decide(now)
		if err != nil || verdict == Skip || now.Doc == nil {
			return false, err
		}
		after := Record{ID: id, Doc: doc}
		if verdict == Remove {
			after.Doc = nil
		}
		waited, err := w.put(c, now, after, verdict)
		if waited && err == nil {
			continue
		}
		return err == nil, err
	}
}

// Insert stores a new document, creating the collection if needed. The document
// must have an _id.
func (w *Writer) Insert(ns string, doc bson.Raw) error {
	for {
		c, err := w.target(ns)
		if err != nil {
			return err
		}
		if c == nil {
			if c, err = w.create(ns); err != nil {
				return err
			}
		}
		w.s.nextRID++
		waited, err := w.put(c, Record{}, Record{ID: w.s.nextRID, Doc: doc}, Put)
		if waited && err == nil {
			continue
		}
		return err
	}
}

// target locks the store and returns the collection to write to.
func (w *Writer) target(ns string) (*Collection, error) {
	w.Pause()
	if err := w.ctx.Err(); err != nil {
		return nil, ContextError(w.ctx)
	}
	w.lock()
	switch {
	case w.s.closed:
		return nil, errClosed()
	case w.lost != nil:
		return nil, w.lost
	}
	if w.txn != nil {
		if w.txn.ended {
			return nil, NoSuchTransaction(w.txn.TxnNumber)
		}
		return w.txn.writable(ns)
	}
	return w.s.live[ns], nil
}

// put writes one document. waited tells that it wrote nothing but waited for a
// transaction, after which everything may be different.
func (w *Writer) put(c *Collection, before, after Record, verdict Verdict) (waited bool, err error) {
	if len(after.Doc) > maxDocument {
		return false, mongoerr.New(mongoerr.BSONObjectTooLarge, "object to insert too large. size in bytes: %d, max size: %d", len(after.Doc), maxDocument)
	}
	ch, err := c.prepare(before, after)
	if err != nil {
		return false, err
	}
	if w.txn == nil && len(w.s.intents) > 0 {
		if t := w.holder(c, ch); t != nil {
			return true, w.wait(t)
		}
	}
	if x, key := c.taken(ch, nil); x != nil {
		return false, duplicate(c, x, key, after.Doc)
	}
	event := &Event{Namespace: c.Namespace}
	switch {
	case before.Doc == nil:
		event.Kind, event.Key, event.Doc = Inserted, documentKey(after.Doc), after.Doc
	case after.Doc == nil:
		event.Kind, event.Key = Deleted, documentKey(before.Doc)
	case verdict == Supply:
		event.Kind, event.Key, event.Doc = Replaced, documentKey(after.Doc), after.Doc
	default:
		event.Kind, event.Key = Updated, documentKey(after.Doc)
		event.before, event.after, event.paths = before.Doc, after.Doc, w.Paths
	}
	if w.txn != nil {
		return false, w.putTxn(c, ch, event)
	}
	w.event(event)
	w.apply(c, ch)
	return false, nil
}

func (w *Writer) putTxn(c *Collection, ch change, e *Event) error {
	t := w.txn
	if t.size += e.size(); t.size > maxTxnBytes {
		return mongoerr.New(mongoerr.TransactionTooLarge, "the transaction writes more than %d bytes", maxTxnBytes)
	}
	if err := t.hold(c, ch); err != nil {
		return err
	}
	id := max(ch.before.ID, ch.after.ID)
	c.apply(ch)
	t.writes[c.Namespace][id] = true
	t.events = append(t.events, e)
	w.writes++
	return nil
}

// apply changes a live collection and notes it for the file.
func (w *Writer) apply(c *Collection, ch change) {
	c.apply(ch)
	w.s.changed[c.Namespace] = struct{}{}
	w.writes++
	w.note(func() fileOp { return putDocument(c.id, Record{ID: max(ch.before.ID, ch.after.ID), Doc: ch.after.Doc}) })
}

// holder returns the open transaction that holds something ch needs.
func (w *Writer) holder(c *Collection, ch change) *Txn {
	if ch.before.Doc != nil {
		if t := w.s.intents[intent{collection: c.id, record: ch.before.ID}]; t != nil {
			return t
		}
	}
	for _, in := range uniqueIntents(c, ch) {
		if t := w.s.intents[in]; t != nil {
			return t
		}
	}
	return nil
}

// wait waits for the end of a transaction, letting everybody else work.
func (w *Writer) wait(t *Txn) error {
	w.unlock()
	select {
	case <-t.done:
		return nil
	case <-w.ctx.Done():
		return ContextError(w.ctx)
	}
}
