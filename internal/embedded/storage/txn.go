package storage

import (
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

// intent is what an open transaction holds until it ends: a document (index and
// key empty) or a key of a unique index (record zero).
type intent struct {
	collection uint64
	record     uint64
	index, key string
}

// Txn is a multi-document transaction: a snapshot, and its own writable copy of
// each collection it wrote to, or created. One goroutine at a time may use it.
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

// writable returns the transaction's own copy of a collection, nil when there is
// none. The store is locked.
func (t *Txn) writable(ns string) (*Collection, error) {
	c, base := t.own[ns], t.base.Collection(ns)
	switch {
	case c != nil:
	case base != nil:
		c = t.adopt(base.thaw())
	case t.s.live[ns] == nil:
		return nil, nil
	}
	if c == nil || !t.current(c) {
		return nil, conflict()
	}
	return c, nil
}

func (t *Txn) adopt(c *Collection) *Collection {
	t.own[c.Namespace], t.writes[c.Namespace] = c, map[uint64]bool{}
	return c
}

// current reports whether the collection that own was made from is still there,
// with the same indexes; of one that the transaction created, that nobody else
// created it too. The store is locked.
func (t *Txn) current(own *Collection) bool {
	live := t.s.live[own.Namespace]
	if live == nil || t.base.Collection(own.Namespace) == nil {
		return live == nil && t.base.Collection(own.Namespace) == nil
	}
	return live.id == own.id && slices.EqualFunc(live.Indexes, own.Indexes,
		func(a, b *Index) bool { return a.Spec == b.Spec })
}

// hold takes what change ch of collection c needs, or fails with WriteConflict
// when somebody else has it or wrote it since the snapshot. The store is locked.
func (t *Txn) hold(c *Collection, ch change) error {
	live := t.s.live[c.Namespace]
	if live == nil {
		return nil // the transaction created it: nobody else sees it
	}
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
		return NoSuchTransaction(t.TxnNumber)
	}
	for _, own := range t.own {
		if !t.current(own) { // created, dropped or with other indexes since
			t.end()
			w.unlock()
			return conflict()
		}
	}
	for _, ns := range slices.Sorted(maps.Keys(t.own)) {
		own, live := t.own[ns], w.s.live[ns]
		if live == nil {
			live = newCollection(ns, own.id, own.uuid)
			w.s.live[ns] = live
			w.catalog(live)
		}
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
	for _, e := range t.events {
		e.Session, e.TxnNumber = t.Session, t.TxnNumber
		w.event(e)
	}
	w.remember(sessionKey, &Retry{TxnNumber: t.TxnNumber, Committed: true})
	t.end()
	return w.Finish()
}

// NoSuchTransaction is the answer to who goes on with a transaction that has ended, or
// never began.
func NoSuchTransaction(number int64) error {
	e := mongoerr.New(mongoerr.NoSuchTransaction, "Given transaction number %d does not match any in-progress transactions.", number)
	e.Labels = []string{"TransientTransactionError"}
	return e
}
