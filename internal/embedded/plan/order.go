package plan

import (
	"slices"

	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// maxBranches is how many scans are merged for a sort order at most, as in
// MongoDB; beyond, the result is sorted.
const maxBranches = 200

// orderBy finds out whether scans of the index, one or merged, deliver the
// wanted order, and how.
func (a *access) orderBy(want []value.Field) bool {
	if !a.arraysAllow(want) {
		return false
	}
	prefixes := []string{""}
	for skip := 0; ; skip++ {
		if ok, reverse := a.delivers(skip, want); ok {
			a.reverse, a.skip, a.prefixes = reverse, skip, prefixes
			return true
		}
		if skip == len(a.bounds) || !isPoints(a.bounds[skip]) || len(prefixes)*len(a.bounds[skip]) > maxBranches {
			return false
		}
		var longer []string
		for _, prefix := range prefixes {
			for _, p := range a.bounds[skip] {
				longer = append(longer, prefix+p.lo)
			}
		}
		prefixes = longer
	}
}

// arraysAllow reports whether the first key of a document in the index's order
// is the one its sort key is made of: of a sort field with arrays, all elements
// must be seen.
func (a *access) arraysAllow(want []value.Field) bool {
	sorting, restricted := 0, false
	for i, f := range a.index.Spec.Fields {
		if !a.index.Multikey(i) {
			continue
		}
		if slices.ContainsFunc(want, func(w value.Field) bool { return w.Path == f.Path }) {
			sorting++
		}
		restricted = restricted || !isAll(a.bounds[i])
	}
	// A sparse index lacks the elements without the field, which count as null.
	return sorting == 0 || sorting == 1 && !restricted && !a.index.Spec.Sparse
}

// delivers reports whether the fields of the index from skip on give the wanted
// order, perhaps backwards. Fields with a single value do not count.
func (a *access) delivers(skip int, want []value.Field) (ok, reverse bool) {
	fields := a.index.Spec.Fields
	constant := func(path string) bool {
		i := slices.IndexFunc(fields, func(f value.Field) bool { return f.Path == path })
		return i >= 0 && !a.index.Multikey(i) && isPoint(a.bounds[i])
	}
	decided := false
	at := skip
	for _, w := range want {
		if constant(w.Path) {
			continue
		}
		for at < len(fields) && fields[at].Path != w.Path && constant(fields[at].Path) {
			at++
		}
		if at == len(fields) || fields[at].Path != w.Path {
			return false, false
		}
		backwards := fields[at].Descending != w.Descending
		if decided && backwards != reverse {
			return false, false
		}
		decided, reverse = true, backwards
		at++
	}
	return true, reverse
}
