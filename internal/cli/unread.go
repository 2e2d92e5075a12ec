package cli

import (
	"errors"
	"maps"

	"github.com/mscheduler/mscheduler/model"
)

// unread are why documents of a list cannot be read, by their ids.
type unread map[string]error

// add adds the documents that an error names, and returns any other error.
func (u unread) add(err error) error {
	var some *model.UnreadableError
	if !errors.As(err, &some) {
		return err
	}
	maps.Copy(u, some.Documents)
	return nil
}

// after is the end of a command that has printed the others: what it has listed is not all.
func (u unread) after(printed error) error {
	if printed != nil || len(u) == 0 {
		return printed
	}
	return &model.UnreadableError{Documents: u}
}
