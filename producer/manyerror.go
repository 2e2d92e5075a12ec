package producer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ManyError lists the items of a SendMany that failed, and why; all others were stored. If an
// item's error comes from the database, the item may still be stored, see the package comment.
// If an item's error is model.ErrInvalid, nothing was written.
type ManyError struct {
	Failed map[int]error // by the item's index in the SendMany
	Total  int           // items of the SendMany
}

func (e *ManyError) add(i int, err error) {
	if e.Failed == nil {
		e.Failed = map[int]error{}
	}
	e.Failed[i] = err
}

// namedInText bounds how many items the text of a ManyError names.
const namedInText = 3

// Error names the first few items.
func (e *ManyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d tasks failed", len(e.Failed), e.Total)
	for n, i := range slices.Sorted(maps.Keys(e.Failed)) {
		if n == namedInText {
			fmt.Fprintf(&b, "; and %d more", len(e.Failed)-namedInText)
			break
		}
		sep := "; "
		if n == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%sitem %d: %v", sep, i, e.Failed[i])
	}
	return b.String()
}

// Unwrap gives access to the failures of all items, by rising index.
func (e *ManyError) Unwrap() []error {
	errs := make([]error, 0, len(e.Failed))
	for _, i := range slices.Sorted(maps.Keys(e.Failed)) {
		errs = append(errs, e.Failed[i])
	}
	return errs
}
