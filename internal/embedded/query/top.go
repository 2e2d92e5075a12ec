package query

import (
	"bytes"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Top returns the first n of docs in the order of s, keeping no more than n at
// a time. It is a heap whose root is the last of the n; documents with equal
// keys come out in the order MongoDB's heap (that of libstdc++) leaves them
// in, which nobody promises but the recorded answers show.
func (s *Sort) Top(docs Docs, n int) ([]bson.Raw, error) {
	var h heap
	for doc, err := range docs {
		if err != nil {
			return nil, err
		}
		key, err := s.Key(doc)
		if err != nil {
			return nil, err
		}
		e := keyed{key, doc}
		switch {
		case len(h) < n:
			h = append(h, e)
			if len(h) == n {
				h.init()
			}
		case n > 0 && less(e, h[0]):
			h.pop()
			h.up(n-1, 0, e)
		}
	}
	if len(h) < n {
		slices.SortStableFunc(h, func(a, b keyed) int { return bytes.Compare(a.key, b.key) })
	} else {
		for end := len(h); end > 1; end-- {
			h[:end].pop()
		}
	}
	out := make([]bson.Raw, len(h))
	for i, e := range h {
		out[i] = e.doc
	}
	return out, nil
}

// keyed is a document with its sort key.
type keyed struct {
	key []byte
	doc bson.Raw
}

func less(a, b keyed) bool { return bytes.Compare(a.key, b.key) < 0 }

type heap []keyed

func (h heap) init() {
	for parent := (len(h) - 2) / 2; parent >= 0 && len(h) > 1; parent-- {
		h.down(parent, h[parent])
	}
}

// pop moves the root to the end and makes a heap of the others.
func (h heap) pop() {
	last := len(h) - 1
	if last < 1 {
		return
	}
	e := h[last]
	h[last] = h[0]
	h[:last].down(0, e)
}

// down fills the hole from below, then lets e rise from where that ended.
func (h heap) down(hole int, e keyed) {
	top, child := hole, hole
	for child < (len(h)-1)/2 {
		child = 2 * (child + 1)
		if less(h[child], h[child-1]) {
			child--
		}
		h[hole] = h[child]
		hole = child
	}
	if len(h)%2 == 0 && child == (len(h)-2)/2 {
		child = 2*child + 1
		h[hole] = h[child]
		hole = child
	}
	h.up(hole, top, e)
}

func (h heap) up(hole, top int, e keyed) {
	for hole > top && less(h[(hole-1)/2], e) {
		h[hole] = h[(hole-1)/2]
		hole = (hole - 1) / 2
	}
	h[hole] = e
}
