package producer

import (
	"fmt"
	"strings"
)

// ManyError says which items of a SendMany failed, and why; all others were stored.
// Where an item's error comes from the database, see the package comment for what is
// known of it. Where it is model.ErrInvalid, nothing at all was written.
type ManyError struct {
	Items []ItemError // by rising index
	Total int         // items of the SendMany
}

// ItemError is the failure of one item.
type ItemError struct {
	Index int // of the item in the SendMany
	Err   error
}

func (e ItemError) Error() string { return fmt.Sprintf("item %d: %v", e.Index, e.Err) }

// Unwrap gives access to the cause.
func (e ItemError) Unwrap() error { return e.Err }

func (e *ManyError) add(i int, err error) { e.Items = append(e.Items, ItemError{Index: i, Err: err}) }

// namedInText bounds how many items the text of a ManyError names.
const namedInText = 3

// Error names the first few items.
func (e *ManyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d tasks failed", len(e.Items), e.Total)
	for i, it := range e.Items {
		if i == namedInText {
			fmt.Fprintf(&b, "; and %d more", len(e.Items)-namedInText)
			break
		}
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		b.WriteString(sep + it.Error())
	}
	return b.String()
}

// Unwrap gives access to the failures of all items.
func (e *ManyError) Unwrap() []error {
	errs := make([]error, len(e.Items))
	for i, it := range e.Items {
		errs[i] = it
	}
	return errs
}

// Failed says whether the item with that index failed, and why; nil if it did not.
func (e *ManyError) Failed(index int) error {
	for _, it := range e.Items {
		if it.Index == index {
			return it.Err
		}
	}
	return nil
}
