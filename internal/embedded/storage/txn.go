package storage

import (
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
)

// intent is what an open transaction holds until it ends: a document (index and
// key empty) or a key of a unique index (record zero).
type intent struct {
	collection uint64
	record     uint64
	index, key string
}

// Txn is a multi-document transaction: a snapshot, and its own writable copy of
// each collection it wrote to. One goroutine at a time may use it.
type Txn struct {
	Session   bson.Raw // lsid, for events
	TxnNumber int64

	s       *Store
	base    *Snapshot
	own     map[string]*Collection
	writes  map[string]map[uint64]bool // by namespace, records written
	events  []*Event
	intents []intent
	size    int
	done    chan struct{} // closed at the end
	ended   bool
}

// maxTxnBytes bounds what one transaction may write.
const maxTxnBytes = 256 << 20

// Begin starts a transaction on what is committed now.
func (s *Store) Begin(session bson.Raw, number int64) *Txn {
	return &Txn{
		Session: session, TxnNumber: number, s: s, base: s.Snapshot(),
		own: map[string]*Collection{}, writes: map[string]map[uint64]bool{}, done: make(chan struct{}),
	}
}

// Collection returns the transaction's view of a collection, to read; nil when
// there is none.
func (t *Txn) Collection(ns string) *Collection {
	if c := t.own[ns]; c != nil {
		return c.freeze()
	}
	return t.base.Collection(ns)
}

// conflict is the answer that makes a driver start the transaction again.
func conflict() error {
	e := mongoerr.New(mongoerr.WriteConflict, "WriteConflict error: this operation conflicted with another operation. Please retry your operation or multi-document transaction.")
	e.Labels = []string{"TransientTransactionError"}
	return e
}

// writable returns the transaction's own copy of a collection. The store is
// locked.
func (t *Txn) writable(ns string) (*Collection, error) {
	live := t.s.live[ns]
	if c := t.own[ns]; c != nil {
		if live == nil || live.id != c.id {
			return nil, conflict() // dropped since
		}
		return c, nil
	}
	base := t.base.Collection(ns)
	switch {
	case base == nil && live == nil:
		return nil, nil
	case base == nil && live.Len() == 0:
		base = live.freeze() // created since, by this transaction or another
	case base == nil || live == nil || live.id != base.id:
		return nil, conflict()
	}
	c := base.thaw()
	t.own[ns] = c
	t.writes[ns] = map[uint64]bool{}
	return c, nil
}

// hold takes what change ch of collection c needs, or fails with WriteConflict
// when somebody else has it or wrote it since the snapshot. The store is locked.
func (t *Txn) hold(c *Collection, ch change) error {
	live := t.s.live[c.Namespace]
	wrote := t.writes[c.Namespace]
	id := ch.after.ID
	if ch.after.Doc == nil {
		id = ch.before.ID
	}
	doc := intent{collection: c.id, record: id}
	if ch.before.Doc != nil && !wrote[id] {
		if now, ok := live.Get(id); !ok || !now.Same(ch.before) {
			return conflict()
		}
	}
	if t.heldByOther(doc) {
		return conflict()
	}
	// A key that appeared since the snapshot is as much a conflict as a document.
	if x, _ := live.taken(ch, func(id uint64) bool { return wrote[id] }); x != nil {
		return conflict()
	}
	wanted := append(uniqueIntents(c, ch), doc)
	if slices.ContainsFunc(wanted, t.heldByOther) {
		return conflict()
	}
	for _, in := range wanted {
		if t.s.intents[in] == nil {
			t.s.intents[in] = t
			t.intents = append(t.intents, in)
		}
	}
	return nil
}

func (t *Txn) heldByOther(in intent) bool {
	h := t.s.intents[in]
	return h != nil && h != t
}

// uniqueIntents returns the unique keys that ch adds.
func uniqueIntents(c *Collection, ch change) (list []intent) {
	for _, e := range ch.edits {
		if x := c.Indexes[e.index]; x.Spec.Unique {
			for _, key := range e.add {
				list = append(list, intent{collection: c.id, index: x.Spec.Name, key: string(key)})
			}
		}
	}
	return list
}

// Abort ends the transaction without a trace. It may be called at any time by
// anyone, also after the end.
func (t *Txn) Abort() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.end()
}

// end lets go of everything. The store is locked.
func (t *Txn) end() {
	if t.ended {
		return
	}
	t.ended = true
	for _, in := range t.intents {
		delete(t.s.intents, in)
	}
	t.intents = nil
	close(t.done)
}

// Commit makes the transaction's writes visible, all at once, and durable. The
// record of it, for a client that asks again, is part of the same write.
func (w *Writer) Commit(t *Txn, sessionKey string) error {
	w.lock()
	if t.ended {
		w.unlock()
		return noSuchTransaction()
	}
	if err := t.checkCommit(); err != nil {
		t.end()
		w.unlock()
		return err
	}
	for _, ns := range slices.Sorted(maps.Keys(t.own)) {
		own, live := t.own[ns], w.s.live[ns]
		for _, id := range slices.Sorted(maps.Keys(t.writes[ns])) {
			before, _ := live.Get(id)
			after, _ := own.Get(id)
			if before.Doc == nil && after.Doc == nil {
				continue
			}
			before.ID, after.ID = id, id
			ch, err := live.prepare(before, after)
			if err != nil {
				// It was prepared once, with the same indexes.
				panic(err)
			}
			w.apply(live, ch)
		}
	}
	b := w.s.openBatch()
	for _, e := range t.events {
		e.TS = w.s.tick()
		e.Session, e.TxnNumber = t.Session, t.TxnNumber
		b.events = append(b.events, e)
	}
	w.remember(sessionKey, &Retry{TxnNumber: t.TxnNumber, Committed: true})
	w.batch = b
	t.end()
	return w.Finish()
}

// checkCommit finds what makes a commit impossible: a collection dropped or an
// index built since. The store is locked.
func (t *Txn) checkCommit() error {
	for ns, own := range t.own {
		live := t.s.live[ns]
		if live == nil || live.id != own.id || !slices.EqualFunc(live.Indexes, own.Indexes,
			func(a, b *Index) bool { return a.Spec == b.Spec }) {
			return conflict()
		}
	}
	return nil
}

func noSuchTransaction() error {
	e := mongoerr.New(mongoerr.NoSuchTransaction, "Given transaction does not match any in-progress transactions.")
	e.Labels = []string{"TransientTransactionError"}
	return e
}
