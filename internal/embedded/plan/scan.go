package plan

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"github.com/tidwall/btree"

	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// Stats counts what reading cost.
type Stats struct {
	Keys int // index keys examined
	Docs int // documents examined
}

// scan walks the keys of an index that start with prefix and whose further
// fields lie in bounds, in the index's order or backwards.
type scan struct {
	it      *btree.IterG[storage.Entry]
	prefix  string
	fields  []value.Field // after the prefix, up to the last that is restricted
	bounds  [][]span      // of fields
	reverse bool
	stats   *Stats
	started bool
	head    storage.Entry // the entry advance came to
}

func (s *scan) next() (storage.Entry, bool) {
	ok := s.advance()
	return s.head, ok
}

// advance moves to the next entry. It is not to be called again when there is none.
func (s *scan) advance() (ok bool) {
	switch {
	case !s.started:
		s.started = true
		first := everything
		if len(s.bounds) > 0 {
			first = s.bounds[0]
		}
		if s.reverse {
			ok = s.seek(s.prefix + first[len(first)-1].hi)
		} else {
			ok = s.seek(s.prefix + first[0].lo)
		}
	case s.reverse:
		ok = s.it.Prev()
	default:
		ok = s.it.Next()
	}
	for ok {
		s.head = s.it.Item()
		if !strings.HasPrefix(s.head.Key, s.prefix) {
			return false
		}
		s.stats.Keys++
		to, inside := s.check(s.head.Key)
		if inside {
			return true
		}
		ok = s.seek(to)
	}
	return false
}

// seek goes to the first key at or behind a place, or to the last before it.
func (s *scan) seek(place string) bool {
	found := s.it.Seek(storage.Entry{Key: place})
	switch {
	case !s.reverse:
		return found
	case found:
		return s.it.Prev()
	}
	return s.it.Last()
}

// check tells whether key lies inside; if not, where to go on.
func (s *scan) check(key string) (to string, inside bool) {
	at := len(s.prefix)
	for i, list := range s.bounds {
		end := at + value.KeyLen(key[at:], s.fields[i].Descending)
		head, part := key[:at], key[at:end]
		if s.reverse {
			// The last span that begins at or below part, or all that is before head.
			j := sort.Search(len(list), func(j int) bool { return list[j].lo > part }) - 1
			if j < 0 {
				return head, false
			}
			if part >= list[j].hi {
				return head + list[j].hi, false
			}
		} else {
			// The first span that ends above part, or all that is behind head.
			j := sort.Search(len(list), func(j int) bool { return list[j].hi > part })
			if j == len(list) {
				return head + last, false
			}
			if part < list[j].lo {
				return head + list[j].lo, false
			}
		}
		at = end
	}
	return "", true
}

// merge delivers the entries of several scans in the order of what follows
// their prefixes.
type merge struct {
	scans   []*scan // by their heads
	reverse bool
}

func newMerge(scans []*scan, reverse bool) *merge {
	m := &merge{reverse: reverse}
	m.scans = slices.DeleteFunc(scans, func(s *scan) bool { return !s.advance() })
	slices.SortFunc(m.scans, m.compare)
	return m
}

func (m *merge) compare(a, b *scan) int {
	c := strings.Compare(a.head.Key[len(a.prefix):], b.head.Key[len(b.prefix):])
	if m.reverse {
		c = -c
	}
	return cmp.Or(c, cmp.Compare(a.head.RID, b.head.RID))
}

func (m *merge) next() (storage.Entry, bool) {
	if len(m.scans) == 0 {
		return storage.Entry{}, false
	}
	s := m.scans[0]
	e := s.head
	others := m.scans[1:]
	if s.advance() { // back into the line
		i, _ := slices.BinarySearchFunc(others, s, m.compare)
		copy(m.scans, others[:i])
		m.scans[i] = s
	} else {
		m.scans = others
	}
	return e, true
}
