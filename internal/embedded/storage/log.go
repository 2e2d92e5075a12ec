package storage

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/query"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// Kind is what an event says happened.
type Kind string

// The kinds of events, named as in change streams.
const (
	Inserted        Kind = "insert"
	Updated         Kind = "update"
	Replaced        Kind = "replace"
	Deleted         Kind = "delete"
	Dropped         Kind = "drop"
	DatabaseDropped Kind = "dropDatabase"
)

// Event is one entry of the change log. It does not change once it is visible.
type Event struct {
	TS        uint64 // cluster time: seconds above, below a counter that begins at the nanosecond the store was made; rises with every event
	Kind      Kind
	Namespace string   // database.collection; only the database for DatabaseDropped
	Key       bson.Raw // {_id: …}; nil for drops
	Doc       bson.Raw // the new document: of inserts and replacements
	Session   bson.Raw // lsid, when it was part of a transaction
	TxnNumber int64

	before, after bson.Raw // of an update, until it is in the file
	paths         []query.Path
	once          sync.Once
	description   bson.Raw
	charged       int // of the log's bound
}

// Description is the updateDescription of an update. It is worked out when it is
// first asked for: most updates nobody watches.
func (e *Event) Description() bson.Raw {
	e.once.Do(func() {
		if e.description == nil && e.before != nil {
			e.description = query.Describe(e.before, e.after, e.paths)
		}
	})
	return e.description
}

// Updates reports whether the update description has the top-level field among
// its updatedFields, or fields below it, without working it out.
func (e *Event) Updates(field string) bool {
	if e.before == nil {
		fields, _ := value.Lookup(e.description, "updatedFields")
		for it := value.NewIter(fields.Value); it.Next(); {
			if rest, ok := strings.CutPrefix(string(it.Key), field); ok && (rest == "" || rest[0] == '.') {
				return true
			}
		}
		return false
	}
	was, _ := value.Lookup(e.before, field)
	is, ok := value.Lookup(e.after, field)
	return ok && !value.Identical(was, is)
}

// size is the memory an event takes. Documents it shares with the collection are
// counted all the same: they may be gone from there.
func (e *Event) size() int {
	n := 256 + len(e.Key) + len(e.Doc) + len(e.before) + len(e.after) + len(e.description)
	for _, p := range e.paths {
		n += len(p.Dotted)
	}
	return n
}

// charge adds an event to what the log holds, before anybody else sees it.
func (l *Log) charge(e *Event) {
	e.charged = e.size()
	l.bytes += e.charged
}

func documentKey(doc bson.Raw) bson.Raw {
	id, _ := value.Lookup(doc, "_id")
	at, key := value.Begin(make([]byte, 0, len(id.Value)+10))
	return value.End(value.AppendElement(key, "_id", id), at)
}

// Log is the change log: what has happened, visible to change streams, as far
// back as its size allows.
type Log struct {
	mu      sync.Mutex
	events  []*Event // by TS
	bytes   int
	limit   int
	floor   uint64 // events up to here are gone
	whole   bool   // nothing has happened before the floor
	last    uint64 // TS of the newest visible event
	waiters map[*Waiter]struct{}
}

// Waiter is told when an event of its namespace appears. C has room for one
// signal; more are merged.
type Waiter struct {
	C      chan struct{}
	prefix string // what the namespace must start with
	exact  bool

	// No event that it watches is in (from, clear]; while it waits, clear rises with
	// what others write, so that these cannot push it off the log.
	from, clear uint64
	waits       bool
}

// matches reports whether an event concerns the watched namespace. A dropped
// database concerns its collections.
func (w *Waiter) matches(ns string) bool {
	if w.exact {
		return ns == w.prefix || !strings.Contains(ns, ".") && strings.HasPrefix(w.prefix, ns+".")
	}
	return strings.HasPrefix(ns, w.prefix) || ns+"." == w.prefix
}

// Watch registers interest in a collection ("db.c") or a database ("db."). Call Unwatch when done.
func (l *Log) Watch(namespace string) *Waiter {
	exact := namespace != "" && !strings.HasSuffix(namespace, ".")
	w := &Waiter{C: make(chan struct{}, 1), prefix: namespace, exact: exact}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters[w] = struct{}{}
	return w
}

// Unwatch ends what Watch began.
func (l *Log) Unwatch(w *Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiters, w)
}

// Last returns the time of the newest event.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Since is where to begin for events later than ts, which may be before the log began.
func (l *Log) Since(ts uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.whole {
		return max(ts, l.floor)
	}
	return ts
}

// After returns up to limit events later than ts that w watches, and the time up
// to which the log was searched. When events later than ts are already gone, it
// fails with ChangeStreamHistoryLost.
func (l *Log) After(ts uint64, w *Waiter, limit int) (events []*Event, upTo uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := ts
	if w.from <= ts && ts < w.clear {
		ts = w.clear
	}
	if ts < l.floor {
		return nil, 0, mongoerr.New(mongoerr.ChangeStreamHistoryLost,
			"Resume of change stream was not possible, as the resume point may no longer be in the oplog.")
	}
	i := sort.Search(len(l.events), func(i int) bool { return l.events[i].TS > ts })
	for ; i < len(l.events); i++ {
		e := l.events[i]
		if !w.matches(e.Namespace) {
			continue
		}
		if len(events) == limit {
			return events, events[limit-1].TS, nil
		}
		events = append(events, e)
	}
	upTo = max(l.last, ts)
	if w.waits = len(events) == 0; w.waits {
		w.from, w.clear = from, upTo
	}
	return events, upTo, nil
}

// HasEvent reports whether the log has an event of exactly that time. Of what is before
// its floor it cannot say.
func (l *Log) HasEvent(ts uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hasEvent(ts)
}

func (l *Log) hasEvent(ts uint64) bool {
	_, found := slices.BinarySearchFunc(l.events, ts, func(e *Event, ts uint64) int { return cmp.Compare(e.TS, ts) })
	return found || ts <= l.floor
}

// HasEnded reports whether the log ended at that time once: with an event, or as a new log.
func (l *Log) HasEnded(ts uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hasEvent(ts) || ts == l.last || ts == l.floor+1 // a new log's last time is above its floor
}

// append makes events visible and returns how far it cut the log off.
func (l *Log) append(events []*Event) (floor uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(events) == 0 {
		return l.floor
	}
	l.events = append(l.events, events...)
	for _, e := range events {
		l.charge(e)
	}
	l.last = events[len(events)-1].TS
	cut := 0
	old := len(l.events) - len(events) // who waits must see what comes, however much that is
	for l.bytes > l.limit && cut < old {
		l.bytes -= l.events[cut].charged
		l.floor, l.whole = l.events[cut].TS, false
		l.events[cut] = nil
		cut++
	}
	l.events = l.events[cut:]
	for w := range l.waiters {
		if i := slices.IndexFunc(events, func(e *Event) bool { return w.matches(e.Namespace) }); i >= 0 {
			if w.waits {
				w.waits, w.clear = false, max(w.clear, events[i].TS-1)
			}
			select {
			case w.C <- struct{}{}:
			default:
			}
		} else if w.waits {
			w.clear = max(w.clear, l.last)
		}
	}
	return l.floor
}
