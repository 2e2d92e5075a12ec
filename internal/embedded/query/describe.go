package query

import (
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// Description is the updateDescription of a change event.
type Description struct {
	Updated   bson.Raw    // updatedFields: dotted path and new value
	Removed   []string    // removedFields: dotted paths
	Truncated []Truncated // truncatedArrays
}

// Truncated is an entry of truncatedArrays.
type Truncated struct {
	Field   string
	NewSize int32
}

// Describe says how old became new, in terms of the smallest changed fields:
// documents and arrays present in both are compared below.
func Describe(old, new bson.Raw) Description {
	at, dst := value.Begin(nil)
	d := Description{Updated: dst}
	d.document("", old, new)
	d.Updated = value.End(d.Updated, at)
	return d
}

func (d *Description) document(prefix string, old, new []byte) {
	for it := value.NewIter(old); it.Next(); {
		if _, ok := value.Lookup(new, string(it.Key)); !ok {
			d.Removed = append(d.Removed, prefix+string(it.Key))
		}
	}
	for it := value.NewIter(new); it.Next(); {
		key := string(it.Key)
		was, _ := value.Lookup(old, key)
		d.value(prefix+key, was, it.Value)
	}
}

func (d *Description) value(path string, old, new bson.RawValue) {
	switch {
	case value.Identical(old, new):
	case old.Type == bson.TypeEmbeddedDocument && new.Type == bson.TypeEmbeddedDocument:
		d.document(path+".", old.Value, new.Value)
	case old.Type == bson.TypeArray && new.Type == bson.TypeArray:
		was, is := values(old.Value), values(new.Value)
		for i, v := range is {
			if i < len(was) {
				d.value(path+"."+strconv.Itoa(i), was[i], v)
			} else {
				d.Updated = value.AppendElement(d.Updated, path+"."+strconv.Itoa(i), v)
			}
		}
		if len(is) < len(was) {
			d.Truncated = append(d.Truncated, Truncated{path, int32(len(is))})
		}
	default:
		d.Updated = value.AppendElement(d.Updated, path, new)
	}
}
