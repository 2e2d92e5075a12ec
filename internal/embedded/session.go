package embedded

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// session is a logical session of a driver: it owns at most one transaction, and
// its numbered commands run one at a time.
type session struct {
	key  string   // of the id
	lsid bson.Raw // {id: …}
	s    *Server
	turn chan struct{} // holds a token while a command runs

	mu      sync.Mutex
	used    time.Time
	running int   // commands under way
	removed bool  // another session may have its id
	number  int64 // the latest txnNumber seen
	txn     *storage.Txn
	started time.Time // of txn
	conn    *conn     // which served the transaction last
}

// sessions is all sessions of a server.
type sessions struct {
	s  *Server
	mu sync.Mutex
	m  map[string]*session
}

// newSessions knows the sessions that the file remembers writes of, so that these
// expire like all others.
func newSessions(s *Server) *sessions {
	l := &sessions{s: s, m: map[string]*session{}}
	for _, key := range s.store.Remembered() {
		l.add(key)
	}
	return l
}

func (l *sessions) add(key string) *session {
	e := &session{key: key, s: l.s, turn: make(chan struct{}, 1), number: -1, used: l.s.opt.Now()}
	l.m[key] = e
	return e
}

// get returns the session of that id for one command, making it if needed. leave must be called.
func (l *sessions) get(id bson.RawValue, lsid bson.Raw) *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.m[string(id.Value)]
	if e == nil {
		e = l.add(string(id.Value))
	}
	e.mu.Lock()
	if e.lsid == nil {
		e.lsid = slices.Clone(lsid)
	}
	e.used = l.s.opt.Now()
	e.running++
	e.mu.Unlock()
	return e
}

// leave ends what get began.
func (e *session) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running--
	e.used = e.s.opt.Now()
}

func (e *session) acquire(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return storage.ContextError(ctx)
	}
}

func (e *session) release() { <-e.turn }

// checkNumber begins a retryable write: an older number is refused, a newer one
// ends the transaction that is open.
func (e *session) checkNumber(n int64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	last := e.number
	if r := e.s.store.Retry(e.key); r != nil {
		last = max(last, r.TxnNumber)
	}
	if n < last {
		return mongoerr.New(mongoerr.TransactionTooOld, "Retryable write with txnNumber %d is prohibited because a newer one with txnNumber %d has already started on this session.", n, last)
	}
	if n > e.number {
		e.abort()
	}
	e.number = n
	return nil
}

// abort ends the open transaction, if any. e.mu is held.
func (e *session) abort() {
	if e.txn != nil {
		e.txn.Abort()
		e.forget()
	}
}

// forget lets go of the transaction, which has ended or is about to, with its
// cursors. e.mu is held.
func (e *session) forget() {
	txn := e.txn
	e.txn = nil
	e.s.cursors.killIf(func(c *cursor) bool { return c.txn == txn })
}

// end aborts what the session has open.
func (e *session) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.abort()
}

// disconnected aborts the transaction that a connection which is gone served last:
// most likely its client is gone. Others it served may go on elsewhere, since
// drivers take any connection for any command; or they end with their time.
func (c *conn) disconnected() {
	if e := c.txn; e != nil {
		e.mu.Lock()
		if e.conn == c {
			e.abort()
		}
		e.mu.Unlock()
	}
}

func (l *sessions) all() []*session {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]*session, 0, len(l.m))
	for _, e := range l.m {
		list = append(list, e)
	}
	return list
}

func (l *sessions) abortAll() {
	for _, e := range l.all() {
		e.end()
	}
}

// take removes the session of that id from the list, if there is one and it is ripe. A command that got it
// before begins no transaction on it any more: nobody would end that.
func (l *sessions) take(key string, ripe func(*session) bool) *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.m[key]
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !ripe(e) {
		return nil
	}
	e.removed = true
	delete(l.m, key)
	return e
}

// remove ends sessions by id, with their cursors and what was remembered.
func (l *sessions) remove(keys []string) {
	for _, key := range keys {
		if e := l.take(key, func(*session) bool { return true }); e != nil {
			e.end()
		}
	}
	l.clear(keys)
}

// clear drops what sessions that were removed have left.
func (l *sessions) clear(keys []string) {
	l.s.cursors.killIf(func(c *cursor) bool { return c.session != "" && slices.Contains(keys, c.session) })
	l.s.store.Forget(keys)
}

// sweep aborts transactions that are open for too long and removes sessions
// that are unused for too long.
func (l *sessions) sweep() {
	now := l.s.opt.Now()
	expired := func(e *session) bool { return e.running == 0 && now.Sub(e.used) > l.s.opt.SessionTimeout }
	var old []string
	for _, e := range l.all() {
		e.mu.Lock()
		if e.txn != nil && now.Sub(e.started) > l.s.opt.TransactionLifetime {
			e.abort()
		}
		e.mu.Unlock()
		if e := l.take(e.key, expired); e != nil {
			e.end()
			old = append(old, e.key)
		}
	}
	l.clear(old)
}

// runInTxn runs a command inside the session's transaction, which it may begin.
// Any failure aborts it, as in MongoDB.
func runInTxn(r *request) (d *docBuilder, err error) {
	if r.of == "createIndexes" { // of a collection that the transaction made, MongoDB would
		return nil, mongoerr.NotImplemented("createIndexes in a transaction")
	}
	if !r.cmd.inTxn {
		return nil, mongoerr.New(mongoerr.OperationNotSupportedInTxn, "Cannot run '%s' in a multi-document transaction.", r.of)
	}
	if r.of == "commitTransaction" || r.of == "abortTransaction" {
		return r.cmd.run(r)
	}
	if err := r.enterTxn(); err != nil {
		return nil, err
	}
	failed := true // a panic, too
	defer func() {
		if failed {
			r.session.end()
		}
	}()
	d, err = r.cmd.run(r)
	failed = err != nil || r.failedWrite
	return d, err
}

func (r *request) enterTxn() error {
	if r.startsTxn {
		if err := r.session.checkNumber(r.txnNumber); err != nil {
			return err
		}
		if v := r.s.store.Retry(r.session.key); v != nil && v.TxnNumber == r.txnNumber {
			return mongoerr.New(mongoerr.TransactionCommitted, "Transaction %d has been committed.", r.txnNumber)
		}
	}
	e := r.session
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.removed {
		return storage.NoSuchTransaction(r.txnNumber)
	}
	if r.startsTxn {
		e.abort() // the same number again: the driver starts over
		e.txn = r.s.store.Begin(e.lsid, r.txnNumber)
		e.started = r.s.opt.Now()
	}
	if e.txn == nil || e.number != r.txnNumber {
		return storage.NoSuchTransaction(r.txnNumber)
	}
	e.conn, r.c.txn = r.c, e
	r.txn = e.txn
	return nil
}

func runCommitTransaction(r *request) (*docBuilder, error) {
	if !r.inTxn {
		return nil, mongoerr.New(mongoerr.InvalidOptions, "commitTransaction must be run within a transaction")
	}
	e := r.session
	if v := r.s.store.Retry(e.key); v != nil && v.Committed && v.TxnNumber == r.txnNumber {
		return newDoc(), nil // the client did not get the first answer
	}
	e.mu.Lock()
	txn := e.txn
	if txn == nil || e.number != r.txnNumber {
		e.mu.Unlock()
		return nil, storage.NoSuchTransaction(r.txnNumber)
	}
	e.forget()
	e.mu.Unlock()
	return newDoc(), r.s.store.Writer(r.ctx, nil).Commit(txn, e.key)
}

func runAbortTransaction(r *request) (*docBuilder, error) {
	if !r.inTxn {
		return nil, mongoerr.New(mongoerr.InvalidOptions, "abortTransaction must be run within a transaction")
	}
	e := r.session
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.txn == nil || e.number != r.txnNumber {
		return nil, storage.NoSuchTransaction(r.txnNumber)
	}
	e.abort()
	return newDoc(), nil
}

func runEndSessions(r *request) (*docBuilder, error) {
	var keys []string
	for _, lsid := range r.documents(r.of, true) {
		if id, ok := value.Lookup(lsid, "id"); ok {
			keys = append(keys, string(id.Value))
		}
	}
	if r.err == nil {
		r.s.sessions.remove(keys)
	}
	return newDoc(), r.err
}
