package storage

import (
	"bytes"
	"slices"

	"github.com/tidwall/btree"
)

// Entry is one key of an index: the encoded values of its fields and the
// record that has them.
type Entry struct {
	Key string
	RID uint64
}

func entryLess(a, b Entry) bool {
	if a.Key != b.Key {
		return a.Key < b.Key
	}
	return a.RID < b.RID
}

// Index is one index of a collection, frozen or live as the collection is.
type Index struct {
	Spec *IndexSpec

	tree     *btree.BTreeG[Entry]
	multikey uint64 // bit i: field i met an array, once
	dirty    bool
	frozen   *Index
}

func newIndex(spec *IndexSpec) *Index {
	return &Index{Spec: spec, dirty: true,
		tree: btree.NewBTreeGOptions(entryLess, btree.Options{Degree: treeDegree, NoLocks: true})}
}

// Multikey reports whether field i of the index ever met an array.
func (x *Index) Multikey(i int) bool { return x.multikey&(1<<i) != 0 }

// AnyMultikey reports whether a document may have several keys.
func (x *Index) AnyMultikey() bool { return x.multikey != 0 }

// Scan returns an iterator over the keys. The index must be frozen.
func (x *Index) Scan() *btree.IterG[Entry] {
	it := x.tree.Iter()
	return &it
}

// first returns the first entry of that key.
func (x *Index) first(key string) (found Entry, ok bool) {
	x.tree.Ascend(Entry{Key: key}, func(e Entry) bool {
		found, ok = e, e.Key == key
		return false
	})
	return found, ok
}

func (x *Index) freeze() *Index {
	if x.dirty {
		x.frozen = &Index{Spec: x.Spec, tree: x.tree.Copy(), multikey: x.multikey}
		x.dirty = false
	}
	return x.frozen
}

func (x *Index) thaw() *Index {
	return &Index{Spec: x.Spec, tree: x.tree.Copy(), multikey: x.multikey, frozen: x}
}

func (x *Index) apply(id uint64, e indexEdit) {
	x.dirty = true
	x.multikey |= e.multikey
	for _, key := range e.drop {
		x.tree.Delete(Entry{Key: string(key), RID: id})
	}
	for _, key := range e.add {
		x.tree.Set(Entry{Key: string(key), RID: id})
	}
}

// load fills an empty index with entries in any order, and returns the first
// two records that share a key when the index is unique.
func (x *Index) load(entries []Entry) (a, b Entry, duplicate bool) {
	slices.SortFunc(entries, func(a, b Entry) int {
		if entryLess(a, b) {
			return -1
		}
		return 1
	})
	for i, e := range entries {
		if x.Spec.Unique && i > 0 && entries[i-1].Key == e.Key {
			return entries[i-1], e, true
		}
		x.tree.Load(e)
	}
	x.dirty = true
	return Entry{}, Entry{}, false
}

// difference removes from two sorted lists what they share.
func difference(drop, add [][]byte) (d, a [][]byte) {
	for len(drop) > 0 && len(add) > 0 {
		switch c := bytes.Compare(drop[0], add[0]); {
		case c == 0:
			drop, add = drop[1:], add[1:]
		case c < 0:
			d, drop = append(d, drop[0]), drop[1:]
		default:
			a, add = append(a, add[0]), add[1:]
		}
	}
	return append(d, drop...), append(a, add...)
}
