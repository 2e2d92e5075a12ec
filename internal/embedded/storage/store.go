package storage

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/tidwall/btree"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

// Options configure a store.
type Options struct {
	Path     string           // the file; "" keeps everything in memory
	Now      func() time.Time // required
	LogBytes int              // bound of the change log. Defaults to 64 MB.
	Logger   zerolog.Logger
}

// Store holds all collections. Its methods may be called concurrently.
type Store struct {
	now func() time.Time
	log *Log
	zl  zerolog.Logger

	published atomic.Pointer[Snapshot] // what readers see

	short atomic.Int32 // commands of few writes that wait for the lock

	mu       sync.Mutex // the writer's lock, for all below
	live     map[string]*Collection
	changed  map[string]struct{} // namespaces whose live collection is ahead of root
	root     *btree.Map[string, *Collection]
	intents  map[intent]*Txn
	retries  map[string]*Retry // by session
	pending  *batch
	flushing *batch // on its way to the file, or the last that was
	nextRID  uint64
	nextColl uint64
	closed   bool
	times    clusterTimes

	file    *file // nil in memory
	kick    chan struct{}
	flusher sync.WaitGroup
}

// Snapshot is all collections at one moment.
type Snapshot struct {
	root *btree.Map[string, *Collection]
}

// Collection returns a collection, nil when it does not exist.
func (s *Snapshot) Collection(ns string) *Collection {
	c, _ := s.root.Get(ns)
	return c
}

// Each calls fn for every collection by name, until it returns false.
func (s *Snapshot) Each(fn func(*Collection) bool) {
	s.root.Scan(func(_ string, c *Collection) bool { return fn(c) })
}

// batch is writes that become visible together; on file, by one fsync.
type batch struct {
	writers int // commands
	ops     []fileOp
	events  []*Event
	retries map[string]*Retry // by session; their commands may be adding to them
	undo    []func()          // what a failed fsync takes back beside the collections
	done    chan struct{}
	err     error // set before done is closed
}

// Open opens the file, or a new store in memory.
func Open(opt Options) (*Store, error) {
	if opt.LogBytes <= 0 {
		opt.LogBytes = 64 << 20
	}
	s := &Store{
		now: opt.Now, zl: opt.Logger,
		log:     &Log{limit: opt.LogBytes, waiters: map[*Waiter]struct{}{}},
		live:    map[string]*Collection{},
		changed: map[string]struct{}{},
		root:    new(btree.Map[string, *Collection]),
		intents: map[intent]*Txn{},
		retries: map[string]*Retry{},
		kick:    make(chan struct{}, 1),
	}
	if opt.Path != "" {
		if err := s.openFile(opt.Path); err != nil {
			return nil, err
		}
	}
	// Tokens of an earlier life in memory, or in another file, must not look as if
	// they were followed, also if it ended in this second.
	if s.log.last == 0 {
		s.times.last = s.fineTime()
		s.log.last = s.times.next(s.now)
		s.times.shown(nil) // no event has it
		s.log.floor, s.log.whole = s.log.last-1, true
		if s.file != nil {
			if err := s.file.begin(s.log.floor, s.log.last); err != nil {
				return nil, errors.Join(err, s.file.close())
			}
		}
	}
	s.mu.Lock()
	s.publish(s.freezeAll())
	s.mu.Unlock()
	if s.file != nil {
		s.flusher.Add(1)
		go s.flushLoop()
	}
	return s, nil
}

// Close makes what was accepted durable and closes the file. Later writes fail.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	close(s.kick)
	s.flusher.Wait()
	return s.file.close()
}

// Snapshot returns what is committed and durable now.
func (s *Store) Snapshot() *Snapshot { return s.published.Load() }

// Log returns the change log.
func (s *Store) Log() *Log { return s.log }

// ClusterTime is the time to report to clients: not before any visible event
// and before any later one, also if the clock is set back.
func (s *Store) ClusterTime() bson.Timestamp { return Timestamp(s.times.tell(s.now, s.log.Last)) }

// Tick returns a time to be stored: it is later than all before it, and before any later event.
func (s *Store) Tick() bson.Timestamp { return Timestamp(s.times.tick(s.now)) }

// Timestamp converts a cluster time to its BSON form.
func Timestamp(ts uint64) bson.Timestamp { return bson.Timestamp{T: uint32(ts >> 32), I: uint32(ts)} }

// clusterTimes gives events their times.
type clusterTimes struct {
	mu     sync.Mutex
	last   uint64
	told   uint64 // the latest that clients know: what happens from now on is later
	oldest uint64 // of the events that are not visible yet; 0: all are
}

// next returns the time of the next event, which is not visible yet.
func (c *clusterTimes) next(now func() time.Time) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rise(now)
	if c.oldest == 0 {
		c.oldest = c.last
	}
	return c.last
}

// tick returns a time that no event has, nor anything else.
func (c *clusterTimes) tick(now func() time.Time) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rise(now)
	return c.last
}

func (c *clusterTimes) rise(now func() time.Time) {
	c.last = max(c.last+1, c.told+1, uint64(now().Unix())<<32|1)
}

// tell returns a time for clients: before all events that are not visible yet, and not before the
// last that is.
func (c *clusterTimes) tell(now func() time.Time, visible func() uint64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	ts := max(uint64(now().Unix())<<32, c.told)
	if c.oldest != 0 {
		ts = min(ts, c.oldest-1) // not before what was told: the oldest is later
	}
	c.told = max(ts, visible()) // if shown was not called yet, the oldest may be visible
	return c.told
}

// shown notes that all events are visible, or taken back, but those of the batch b, which
// may be nil.
func (c *clusterTimes) shown(b *batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.oldest = 0
	if b != nil && len(b.events) > 0 {
		c.oldest = b.events[0].TS
	}
}

// fineTime is a cluster time that no other life of a store reaches: none has an event each nanosecond.
func (s *Store) fineTime() uint64 {
	now := s.now()
	return uint64(now.Unix())<<32 | uint64(now.Nanosecond())
}

// errClosed answers who comes too late.
func errClosed() error {
	return mongoerr.New(mongoerr.InterruptedAtShutdown, "the server is shutting down")
}

// freezeAll brings root up to date and returns it for publishing.
func (s *Store) freezeAll() *Snapshot {
	for ns := range s.changed {
		if c := s.live[ns]; c != nil {
			s.root.Set(ns, c.freeze())
		} else {
			s.root.Delete(ns)
		}
	}
	clear(s.changed)
	return &Snapshot{root: s.root.Copy()}
}

func (s *Store) publish(snap *Snapshot) { s.published.Store(snap) }

// flushLoop writes batch after batch: while one is being synced, the next
// gathers whatever writers bring. Those who were answered together come back
// together, a little later than the first of them, so it waits for as many, but
// not for long.
func (s *Store) flushLoop() {
	defer s.flusher.Done()
	clk := clock.System()
	writers, took := 0, time.Duration(0)
	for range s.kick {
		s.gather(writers, took/8)
		at := clk.Monotonic()
		writers = s.flush()
		took = clk.Monotonic() - at
	}
	s.flush()
}

// gather waits until the pending batch has that many writers, or the patience ends.
func (s *Store) gather(writers int, patience time.Duration) {
	if writers < 2 {
		return
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		enough := s.pending == nil || s.pending.writers >= writers
		s.mu.Unlock()
		if enough {
			return
		}
		select {
		case _, more := <-s.kick:
			if !more {
				return
			}
		case <-timeout.C:
			return
		}
	}
}

// flush writes the pending batch and returns how many writers it answered, with
// those that came meanwhile.
func (s *Store) flush() (writers int) {
	s.mu.Lock()
	b := s.pending
	if b == nil {
		s.mu.Unlock()
		return 0
	}
	s.pending, s.flushing = nil, b
	s.keepRetries(b)
	snap := s.freezeAll()
	s.mu.Unlock()

	if err := s.file.write(b); err != nil {
		s.fail(b, err)
		return b.writers
	}
	s.publish(snap)
	s.file.trim(s.log.append(b.events))
	close(b.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times.shown(s.pending)
	if s.pending != nil {
		return b.writers + s.pending.writers
	}
	return b.writers
}

// fail takes back everything that is not durable: the batch and what was built
// upon it since.
func (s *Store) fail(b *batch, err error) {
	s.zl.Error().Err(err).Msg("embedded server: could not write to the file")
	code := mongoerr.InternalError
	if isDiskFull(err) {
		code = mongoerr.OutOfDiskSpace
	}
	answer := mongoerr.New(code, "not written: %v", err)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushing = nil
	failed := []*batch{b}
	if s.pending != nil {
		failed = append(failed, s.pending)
		s.pending = nil
	}
	for i := len(failed) - 1; i >= 0; i-- {
		for j := len(failed[i].undo) - 1; j >= 0; j-- {
			failed[i].undo[j]()
		}
	}
	s.times.shown(nil)
	snap := s.published.Load()
	s.root = snap.root.Copy()
	clear(s.changed)
	old := s.live
	s.live = make(map[string]*Collection, len(old))
	snap.Each(func(c *Collection) bool {
		if l := old[c.Namespace]; l != nil && !l.dirty && l.frozen == c {
			s.live[c.Namespace] = l
		} else {
			s.live[c.Namespace] = c.thaw()
		}
		return true
	})
	for _, b := range failed {
		b.err = answer
		close(b.done)
	}
}

// ContextError turns the end of a command's context into MongoDB's answer.
func ContextError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return mongoerr.New(mongoerr.MaxTimeMSExpired, "operation exceeded time limit")
	}
	return mongoerr.New(mongoerr.Interrupted, "operation was interrupted")
}
