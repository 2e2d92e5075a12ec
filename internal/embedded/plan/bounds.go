package plan

import (
	"slices"
	"strings"

	"github.com/mscheduler/mscheduler/internal/embedded/query"
	"github.com/mscheduler/mscheduler/internal/embedded/storage"
)

// boundsOf returns the intervals of each field of x. Conditions on a field that
// may hold an array are not combined, since each may be met by another element;
// nor are those on two fields within the same array.
func boundsOf(x *storage.Index, conditions []*query.Node) (bounds [][]interval, present bool) {
	restricted := false // a field with arrays is
	for i, f := range x.Spec.Fields {
		list := all
		multikey := x.Multikey(i)
		if multikey && (restricted || hasNumber(f.Path)) {
			for _, n := range conditions {
				if n.Path == f.Path {
					_, here := intervalsOf(n)
					present = present || here
				}
			}
			bounds = append(bounds, all)
			continue
		}
		for _, n := range conditions {
			if n.Path != f.Path {
				continue
			}
			sub, here := intervalsOf(n)
			present = present || here
			switch {
			case isAll(sub):
			case x.Spec.Sparse && !here:
				// A sparse index has no key for an element without the field, though
				// the document is in it for another element's sake.
			case !multikey:
				list = intersect(list, sub)
			case isAll(list) || isPoints(sub) && (!isPoints(list) || len(sub) < len(list)):
				list = sub
			}
		}
		if multikey && !isAll(list) {
			restricted = true
		}
		bounds = append(bounds, list)
	}
	return bounds, present
}

// hasNumber reports whether a component of path may be an array's index.
func hasNumber(path string) bool {
	for part := range strings.SplitSeq(path, ".") {
		if part != "" && part[0] >= '0' && part[0] <= '9' {
			return true
		}
	}
	return false
}

// singles reports whether every field has exactly one value.
func singles(bounds [][]interval) bool {
	return !slices.ContainsFunc(bounds, func(b []interval) bool { return len(b) != 1 || !b[0].point })
}

// restrict prepares the scans' fields: those behind the prefix, up to the last
// that has bounds.
func (k *candidate) restrict(x *storage.Index) {
	last := k.skip
	for i := k.skip; i < len(k.bounds); i++ {
		f := fieldSpans{all: isAll(k.bounds[i])}
		if x.Spec.Fields[i].Descending {
			f.inv = 0xff
		}
		if !f.all {
			f.spans = spansOf(k.bounds[i], x.Spec.Fields[i].Descending)
			last = i + 1
		}
		k.fields = append(k.fields, f)
	}
	k.fields = k.fields[:last-k.skip]
}
