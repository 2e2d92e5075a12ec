package cli

import (
	"cmp"

	"github.com/mscheduler/mscheduler/internal/store"
)

// allBut is the end of a command that has printed a list without the documents that cannot be read.
func allBut(unread store.Unread, printed error) error { return cmp.Or(printed, unread.Err()) }
