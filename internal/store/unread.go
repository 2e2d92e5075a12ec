package store

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/mscheduler/mscheduler/model"
)

// Unread are documents of a list that this release cannot read, with the reasons: a later release, or a person, has
// written them. The keys are the ids, of rules the names; see [Unreadable.Name].
type Unread map[string]error

// Note adds documents of a kind, such as plan.
func (u Unread) Note(kind string, some []Unreadable) {
	for _, x := range some {
		id := x.ID
		if x.Living != "" {
			id = fmt.Sprintf("%s (%q)", x.ID, strings.TrimPrefix(x.Living, model.NoTenant+"/"))
		}
		u[x.Name()] = fmt.Errorf("the %s %s cannot be read: %w", kind, id, x.Err)
	}
}

// Add adds the documents that an error names, and returns any other error.
func (u Unread) Add(err error) error {
	var some *model.UnreadableError
	if !errors.As(err, &some) {
		return err
	}
	maps.Copy(u, some.Documents)
	return nil
}

// UnreadError is a [*model.UnreadableError] that names documents of a kind, such as plan; nil = there are none.
func UnreadError(kind string, some []Unreadable) error {
	u := Unread{}
	u.Note(kind, some)
	return u.Err()
}

// Err is a [*model.UnreadableError]; nil = all documents can be read.
func (u Unread) Err() error {
	if len(u) == 0 {
		return nil
	}
	return &model.UnreadableError{Documents: u}
}

// Name is that of a rule, or the id of another document.
func (u Unreadable) Name() string { return cmp.Or(u.Living, u.ID) }
