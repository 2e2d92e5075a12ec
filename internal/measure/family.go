package measure

import (
	"iter"
	"maps"
	"slices"
	"sync"
)

const (
	// Most is how many labels a family has. Whoever stores time series pays for each, so the number of
	// types that people make up does not count.
	Most = 100
	// Other is the label of all that came after them.
	Other = "other"
)

// Family has a value for each label. The zero value is ready.
type Family[T any] struct {
	mu sync.RWMutex
	of map[string]*T
}

// Of returns the value of a label, or that of [Other].
func (f *Family[T]) Of(label string) *T {
	f.mu.RLock()
	v := f.of[label]
	f.mu.RUnlock()
	if v != nil {
		return v
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = map[string]*T{}
	}
	if f.of[label] == nil && len(f.of) >= Most {
		label = Other
	}
	if f.of[label] == nil {
		f.of[label] = new(T)
	}
	return f.of[label]
}

// All are the labels and their values, in the order of the labels.
func (f *Family[T]) All() iter.Seq2[string, *T] {
	f.mu.RLock()
	of := maps.Clone(f.of)
	f.mu.RUnlock()
	return func(yield func(string, *T) bool) {
		for _, label := range slices.Sorted(maps.Keys(of)) {
			if !yield(label, of[label]) {
				return
			}
		}
	}
}
