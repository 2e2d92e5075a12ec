package query

import (
	"iter"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// Distinct returns the values that key (a dotted path) has in docs, each once,
// in their order. An array gives its elements, and arrays on the way those of
// each of their documents. A document that has no value there adds missing,
// unless that is the zero value; lacking tells whether there was one.
func Distinct(docs iter.Seq[bson.Raw], key string, missing bson.RawValue) (values []bson.RawValue, lacking bool) {
	names := strings.Split(key, ".")
	found := valueSet{}
	for doc := range docs {
		none := true
		spread(value.Document(doc), names, func(v bson.RawValue) { none = false; found.add(v) })
		if lacking = lacking || none; none && missing.Type != 0 {
			found.add(missing)
		}
	}
	slices.SortFunc(found.list, value.Compare)
	return found.list, lacking
}

// valueSet is values of which no two are equal.
type valueSet struct {
	seen map[string]bool
	list []bson.RawValue
}

// setOf is the values of vs, each once.
func setOf(vs []bson.RawValue) *valueSet {
	s := &valueSet{}
	for _, v := range vs {
		s.add(v)
	}
	return s
}

// add reports whether v was not there yet.
func (s *valueSet) add(v bson.RawValue) bool {
	var buf [64]byte
	key := value.AppendKey(buf[:0], v, false)
	if s.seen[string(key)] {
		return false
	}
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	s.seen[string(key)] = true
	s.list = append(s.list, v)
	return true
}

// has reports whether v is there.
func (s *valueSet) has(v bson.RawValue) bool {
	var buf [64]byte
	return s.seen[string(value.AppendKey(buf[:0], v, false))]
}

// spread calls add for each value at the path of names below v.
func spread(v bson.RawValue, names []string, add func(bson.RawValue)) {
	array := v.Type == bson.TypeArray
	switch {
	case len(names) == 0 && !array:
		if v.Type != 0 {
			add(v)
		}
	case array && (len(names) == 0 || !isIndex(names[0])):
		for it := value.NewIter(v.Value); it.Next(); {
			if len(names) == 0 {
				add(it.Value)
			} else if it.Value.Type == bson.TypeEmbeddedDocument {
				spread(it.Value, names, add)
			}
		}
	case value.IsObject(v):
		next, _ := value.Lookup(v.Value, names[0])
		spread(next, names[1:], add)
	}
}
