package query

import (
	"bytes"
	"iter"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

// MaxMemory bounds what a sort or a group may hold, as in MongoDB, which would go
// on on disk.
const MaxMemory = 100 << 20

func checkMemory(what string, size int) {
	check(size <= MaxMemory, mongoerr.QueryExceededMemoryLimit,
		"%s exceeded its memory limit of %d bytes, and this server does not use the disk for it", what, MaxMemory)
}

// Top returns the first n (0: all) of items by the sort keys of their documents,
// keeping no more than n at a time. It is a heap whose root is the last of the n;
// documents with equal keys come out in the order MongoDB's heap (that of
// libstdc++) leaves them in, which nobody promises but the recorded answers show.
func Top[T any](s *Sort, items iter.Seq2[T, error], doc func(T) bson.Raw, n int) (top []T, err error) {
	defer catch(&err)
	var h heap[T]
	size := 0
	for item, err := range items {
		if err != nil {
			return nil, err
		}
		key, err := s.Key(doc(item))
		if err != nil {
			return nil, err
		}
		e := keyed[T]{key, len(key) + len(doc(item)), item}
		switch {
		case n == 0 || len(h) < n:
			h = append(h, e)
			if len(h) == n {
				for parent := n/2 - 1; parent >= 0; parent-- {
					h.down(parent, h[parent])
				}
			}
		case less(e, h[0]):
			size -= h[0].size
			h.pop()
			h.up(n-1, 0, e)
		default:
			continue
		}
		size += e.size
		checkMemory("Sort", size)
	}
	if n == 0 || len(h) < n {
		slices.SortStableFunc(h, func(a, b keyed[T]) int { return bytes.Compare(a.key, b.key) })
	} else {
		for end := len(h); end > 1; end-- {
			h[:end].pop()
		}
	}
	for _, e := range h {
		top = append(top, e.item)
	}
	return top, nil
}

// keyed is an item with its sort key.
type keyed[T any] struct {
	key  []byte
	size int
	item T
}

func less[T any](a, b keyed[T]) bool { return bytes.Compare(a.key, b.key) < 0 }

type heap[T any] []keyed[T]

// pop moves the root to the end and makes a heap of the others.
func (h heap[T]) pop() {
	if last := len(h) - 1; last > 0 {
		e := h[last]
		h[last] = h[0]
		h[:last].down(0, e)
	}
}

// down fills the hole from below, then lets e rise from where that ended.
func (h heap[T]) down(hole int, e keyed[T]) {
	top := hole
	for child := 2*hole + 1; child < len(h); child = 2*hole + 1 {
		if child+1 < len(h) && !less(h[child+1], h[child]) {
			child++
		}
		h[hole] = h[child]
		hole = child
	}
	h.up(hole, top, e)
}

func (h heap[T]) up(hole, top int, e keyed[T]) {
	for hole > top && less(h[(hole-1)/2], e) {
		h[hole] = h[(hole-1)/2]
		hole = (hole - 1) / 2
	}
	h[hole] = e
}
