package storage

import (
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Retry is what the last numbered command of a session did, so that a client
// which did not get the answer can ask again. It is stored with the writes.
type Retry struct {
	TxnNumber int64       `bson:"n"`
	Committed bool        `bson:"c,omitempty"` // it was a transaction, and is committed
	Done      []Statement `bson:"d,omitempty"` // statements that took effect
	Reply     bson.Raw    `bson:"r,omitempty"` // of findAndModify: the fields of the answer
}

// Statement is a statement of a command that took effect, or a run of them of
// which each did the same: a command may have a hundred thousand.
type Statement struct {
	ID       int32         `bson:"i"`
	Last     int32         `bson:"l"` // ID of the last of the run
	N        int32         `bson:"n"`
	Modified int32         `bson:"m"`
	Upserted bson.RawValue `bson:"u,omitempty"` // type 0: nothing
}

// Add adds statement id to those that took effect. It copies the _id, which is a part of
// the whole document's memory.
func (r *Retry) Add(id int32, st Statement) {
	st.ID, st.Last = id, id
	st.Upserted.Value = slices.Clone(st.Upserted.Value)
	if n := len(r.Done) - 1; n >= 0 && st.Upserted.Type == 0 {
		if run := &r.Done[n]; run.Upserted.Type == 0 && run.Last == id-1 && run.N == st.N && run.Modified == st.Modified {
			run.Last = id
			return
		}
	}
	r.Done = append(r.Done, st)
}

// Find returns the statement of that id; a nil Retry has none.
func (r *Retry) Find(id int32) (Statement, bool) {
	if r == nil {
		return Statement{}, false
	}
	for _, s := range r.Done {
		if s.ID <= id && id <= s.Last {
			return s, true
		}
	}
	return Statement{}, false
}

// Retry returns what is remembered of a session, nil for nothing.
func (s *Store) Retry(session string) *Retry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retries[session]
}

// Remembered returns the sessions of which something is remembered.
func (s *Store) Remembered() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.retries))
}

// Forget drops what is remembered of sessions that ended.
func (s *Store) Forget(sessions []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range sessions {
		if s.retries[name] == nil {
			continue
		}
		delete(s.retries, name)
		if s.file != nil && !s.closed {
			// It rides with the next write: nobody waits for it.
			b := s.openBatch()
			delete(b.retries, name)
			b.ops = append(b.ops, putSession(name, nil))
		}
	}
}

// remember notes r with the writes of the open batch. The store is locked. Its
// command may add to r later, with the lock held and more writes.
func (w *Writer) remember(session string, r *Retry) {
	s := w.s
	b := s.openBatch()
	w.batch = b
	if old := s.retries[session]; s.file != nil && old != r {
		b.undo = append(b.undo, func() {
			if old == nil {
				delete(s.retries, session)
			} else {
				s.retries[session] = old
			}
		})
	}
	s.retries[session] = r
	if s.file != nil {
		if b.retries == nil {
			b.retries = map[string]*Retry{}
		}
		b.retries[session] = r
	}
}

// keepRetries adds to a batch that goes to the file what is remembered with it, as
// it is now. The store is locked.
func (s *Store) keepRetries(b *batch) {
	for session, r := range b.retries {
		kept := *r
		kept.Done = slices.Clone(r.Done)
		s.retries[session] = &kept
		b.ops = append(b.ops, putSession(session, &kept))
	}
}
