package plan

import (
	"slices"

	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// orderBy finds out whether scans of the index, one or merged, deliver the
// wanted order, and how.
func (k *candidate) orderBy(x *storage.Index, want []value.Field) bool {
	if !arraysAllow(x, k.bounds, want) {
		return false
	}
	branches := 1
	for skip := 0; ; skip++ {
		if ok, reverse := delivers(x, k.bounds, skip, want); ok {
			k.reverse, k.skip = reverse, skip
			k.prefixes = prefixesOf(x, k.bounds[:skip])
			return true
		}
		if skip == len(k.bounds) || !isPoints(k.bounds[skip]) {
			return false
		}
		if branches *= len(k.bounds[skip]); branches > maxBranches {
			return false
		}
	}
}

// arraysAllow reports whether the first key of a document in the index's order
// is the one its sort key is made of: of a sort field with arrays, all elements
// must be seen.
func arraysAllow(x *storage.Index, bounds [][]interval, want []value.Field) bool {
	sorting, restricted := 0, false
	for i, f := range x.Spec.Fields {
		if !x.Multikey(i) {
			continue
		}
		if slices.ContainsFunc(want, func(w value.Field) bool { return w.Path == f.Path }) {
			sorting++
		}
		restricted = restricted || !isAll(bounds[i])
	}
	// A sparse index lacks the elements without the field, which count as null.
	return sorting == 0 || sorting == 1 && !restricted && !x.Spec.Sparse
}

// delivers reports whether the fields of x from skip on give the wanted order,
// perhaps backwards. Fields with a single value do not count.
func delivers(x *storage.Index, bounds [][]interval, skip int, want []value.Field) (ok, reverse bool) {
	constant := func(path string) bool {
		i := slices.IndexFunc(x.Spec.Fields, func(f value.Field) bool { return f.Path == path })
		return i >= 0 && !x.Multikey(i) && len(bounds[i]) == 1 && bounds[i][0].point
	}
	decided := false
	at := skip
	for _, w := range want {
		if constant(w.Path) {
			continue
		}
		for at < len(bounds) && x.Spec.Fields[at].Path != w.Path && constant(x.Spec.Fields[at].Path) {
			at++
		}
		if at == len(bounds) || x.Spec.Fields[at].Path != w.Path {
			return false, false
		}
		backwards := x.Spec.Fields[at].Descending != w.Descending
		if decided && backwards != reverse {
			return false, false
		}
		decided, reverse = true, backwards
		at++
	}
	return true, reverse
}

// prefixesOf returns the keys of all combinations of points.
func prefixesOf(x *storage.Index, points [][]interval) []string {
	if len(points) == 0 {
		return nil
	}
	out := []string{""}
	for i, list := range points {
		var next []string
		for _, prefix := range out {
			for _, p := range list {
				if x.Spec.Fields[i].Descending {
					next = append(next, prefix+p.hi.bytes(true))
				} else {
					next = append(next, prefix+p.lo.bytes(false))
				}
			}
		}
		out = next
	}
	return out
}
