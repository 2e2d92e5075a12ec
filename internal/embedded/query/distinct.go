package query

import (
	"iter"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// Distinct returns the values that key (a dotted path) has in docs, each once,
// in their order. An array gives its elements, and arrays on the way those of
// each of their documents.
func Distinct(docs iter.Seq[bson.Raw], key string) []bson.RawValue {
	parts := cut(key)
	seen := map[string]bool{}
	var found []bson.RawValue
	var k []byte
	add := func(v bson.RawValue) {
		k = value.AppendKey(k[:0], v, false)
		if !seen[string(k)] {
			seen[string(k)] = true
			found = append(found, v)
		}
	}
	for doc := range docs {
		spread(value.Document(doc), parts, add)
	}
	slices.SortFunc(found, value.Compare)
	return found
}

// spread calls add for each value at parts below v.
func spread(v bson.RawValue, parts []part, add func(bson.RawValue)) {
	if len(parts) == 0 {
		if v.Type != bson.TypeArray {
			add(v)
			return
		}
		for it := value.NewIter(v.Value); it.Next(); {
			add(it.Value)
		}
		return
	}
	switch v.Type {
	case bson.TypeEmbeddedDocument:
		if next, ok := value.Lookup(v.Value, parts[0].name); ok {
			spread(next, parts[1:], add)
		}
	case bson.TypeArray:
		if parts[0].index {
			if next, ok := value.Lookup(v.Value, parts[0].name); ok {
				spread(next, parts[1:], add)
			}
			return
		}
		for it := value.NewIter(v.Value); it.Next(); {
			if it.Value.Type == bson.TypeEmbeddedDocument {
				spread(it.Value, parts, add)
			}
		}
	}
}
