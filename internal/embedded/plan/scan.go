package plan

import (
	"container/heap"
	"sort"
	"strings"

	"github.com/tidwall/btree"

	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// Stats counts what reading cost.
type Stats struct {
	Keys int // index keys examined
	Docs int // documents examined
}

// fieldSpans is where the keys of one field may lie.
type fieldSpans struct {
	spans []span
	all   bool
	inv   byte // 0xff for a descending field
}

// scan walks the keys of an index that start with prefix and whose further
// fields lie in fields, in the index's order or backwards.
type scan struct {
	it      *btree.IterG[storage.Entry]
	prefix  string
	fields  []fieldSpans // after the prefix, up to the last that is restricted
	reverse bool
	stats   *Stats
	started bool
	done    bool
}

// next returns the next entry.
func (s *scan) next() (storage.Entry, bool) {
	if s.done {
		return storage.Entry{}, false
	}
	ok := false
	switch {
	case !s.started:
		s.started = true
		if s.reverse {
			ok = s.seekBefore(s.prefix + "\xff")
		} else {
			ok = s.seek(s.prefix + s.first())
		}
	case s.reverse:
		ok = s.it.Prev()
	default:
		ok = s.it.Next()
	}
	for ok {
		e := s.it.Item()
		if !strings.HasPrefix(e.Key, s.prefix) {
			break
		}
		s.stats.Keys++
		to, inside, more := s.check(e.Key)
		if inside {
			return e, true
		}
		if !more {
			break
		}
		if s.reverse {
			ok = s.seekBefore(to)
		} else {
			ok = s.seek(to)
		}
	}
	s.done = true
	return storage.Entry{}, false
}

// first is the lowest position of the first field.
func (s *scan) first() string {
	if len(s.fields) == 0 || s.fields[0].all || len(s.fields[0].spans) == 0 {
		return ""
	}
	return s.fields[0].spans[0].lo
}

func (s *scan) seek(key string) bool { return s.it.Seek(storage.Entry{Key: key}) }

func (s *scan) seekBefore(key string) bool {
	if s.it.Seek(storage.Entry{Key: key}) {
		return s.it.Prev()
	}
	return s.it.Last()
}

// check tells whether key lies inside; if not, where to go on, if anywhere.
func (s *scan) check(key string) (to string, inside, more bool) {
	at := len(s.prefix)
	for i := range s.fields {
		f := &s.fields[i]
		end := at + value.KeyLen(key[at:], f.inv != 0)
		if f.all {
			at = end
			continue
		}
		to, inside, more := f.locate(key[:at], key[at:end], s.reverse)
		if !inside {
			if !more && i > 0 {
				// Nothing more under this value of the field before.
				if s.reverse {
					return key[:at], false, true
				}
				return key[:at] + "\xff", false, true
			}
			return to, false, more
		}
		at = end
	}
	return "", true, true
}

// locate finds part, the field's key behind head, in the spans.
func (f *fieldSpans) locate(head, part string, reverse bool) (to string, inside, more bool) {
	if reverse {
		// The last span that begins at or below part.
		i := sort.Search(len(f.spans), func(i int) bool { return f.spans[i].lo > part }) - 1
		if i < 0 {
			return "", false, false
		}
		if part < f.spans[i].hi {
			return "", true, true
		}
		return head + f.spans[i].hi, false, true
	}
	// The first span that ends above part.
	i := sort.Search(len(f.spans), func(i int) bool { return f.spans[i].hi > part })
	if i == len(f.spans) {
		return "", false, false
	}
	if part >= f.spans[i].lo {
		return "", true, true
	}
	return head + f.spans[i].lo, false, true
}

// merge delivers the entries of several scans in the order of what follows
// their prefixes.
type merge struct {
	scans   []*scan // a heap by head
	heads   []storage.Entry
	reverse bool
	started bool
}

func (m *merge) Len() int { return len(m.scans) }
func (m *merge) Less(i, j int) bool {
	a, b := m.heads[i].Key[len(m.scans[i].prefix):], m.heads[j].Key[len(m.scans[j].prefix):]
	if a == b {
		return m.heads[i].RID < m.heads[j].RID
	}
	return a < b != m.reverse
}
func (m *merge) Swap(i, j int) {
	m.scans[i], m.scans[j] = m.scans[j], m.scans[i]
	m.heads[i], m.heads[j] = m.heads[j], m.heads[i]
}
func (m *merge) Push(any) {} // scans are only ever taken away
func (m *merge) Pop() any {
	n := len(m.scans) - 1
	m.scans, m.heads = m.scans[:n], m.heads[:n]
	return nil
}

func (m *merge) next() (storage.Entry, bool) {
	if !m.started {
		m.started = true
		scans := m.scans
		m.scans = nil
		for _, s := range scans {
			if e, ok := s.next(); ok {
				m.scans, m.heads = append(m.scans, s), append(m.heads, e)
			}
		}
		heap.Init(m)
	}
	if len(m.scans) == 0 {
		return storage.Entry{}, false
	}
	e := m.heads[0]
	if n, ok := m.scans[0].next(); ok {
		m.heads[0] = n
		heap.Fix(m, 0)
	} else {
		heap.Pop(m)
	}
	return e, true
}
