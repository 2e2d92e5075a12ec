package storage

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Retry is what the last numbered command of a session did, so that a client
// which did not get the answer can ask again. It is stored with the writes.
type Retry struct {
	TxnNumber int64
	Committed bool        // it was a transaction, and is committed
	Done      []Statement // statements that took effect
	Reply     bson.Raw    // of findAndModify: the fields of the answer
}

// Statement is one statement of a command that took effect.
type Statement struct {
	ID       int32
	N        int32
	Modified int32
	Upserted bson.RawValue // type 0: nothing
}

// storedRetry is a Retry in the file. A command may have a hundred thousand
// statements, so these are packed.
type storedRetry struct {
	TxnNumber int64    `bson:"n"`
	Committed bool     `bson:"c,omitempty"`
	Done      []byte   `bson:"s,omitempty"`
	Reply     bson.Raw `bson:"r,omitempty"`
}

func (r *Retry) encode() []byte {
	var done []byte
	for _, s := range r.Done {
		done = binary.AppendUvarint(done, uint64(s.ID))
		done = binary.AppendUvarint(done, uint64(s.N))
		done = binary.AppendUvarint(done, uint64(s.Modified))
		done = append(done, byte(s.Upserted.Type))
		done = binary.AppendUvarint(done, uint64(len(s.Upserted.Value)))
		done = append(done, s.Upserted.Value...)
	}
	return mustRaw(storedRetry{r.TxnNumber, r.Committed, done, r.Reply})
}

func decodeRetry(b []byte) (*Retry, error) {
	var s storedRetry
	if err := bson.Unmarshal(b, &s); err != nil {
		return nil, err
	}
	r := &Retry{TxnNumber: s.TxnNumber, Committed: s.Committed, Reply: s.Reply}
	rest := s.Done
	next := func() (n uint64) {
		n, used := binary.Uvarint(rest)
		rest = rest[max(used, 0):]
		return n
	}
	for len(rest) > 0 {
		st := Statement{ID: int32(next()), N: int32(next()), Modified: int32(next())}
		if len(rest) == 0 {
			return nil, errors.New("statement is cut off")
		}
		st.Upserted.Type = bson.Type(rest[0])
		rest = rest[1:]
		n := next()
		if n > uint64(len(rest)) {
			return nil, errors.New("statement is cut off")
		}
		st.Upserted.Value, rest = rest[:n:n], rest[n:]
		r.Done = append(r.Done, st)
	}
	return r, nil
}

// Find returns the statement of that id; a nil Retry has none.
func (r *Retry) Find(id int32) (Statement, bool) {
	if r == nil {
		return Statement{}, false
	}
	for _, s := range r.Done {
		if s.ID == id {
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
			b.ops = append(b.ops, putSession(name, nil))
		}
	}
}

// remember notes r with the writes of the open batch. The store is locked.
func (w *Writer) remember(session string, r *Retry) {
	s := w.s
	old := s.retries[session]
	s.retries[session] = r
	b := s.openBatch()
	w.batch = b
	if s.file == nil {
		return
	}
	b.ops = append(b.ops, putSession(session, r))
	b.undo = append(b.undo, func() {
		if old == nil {
			delete(s.retries, session)
		} else {
			s.retries[session] = old
		}
	})
}
