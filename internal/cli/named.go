package cli

import (
	"fmt"
	"slices"

	"github.com/mscheduler/mscheduler/internal/store"
)

// namedPage reads a page of the things of a tenant whose names begin so, behind the given id, sorted by id. Some cannot be
// read. next is the id that the next page is behind; "" = it is the last one.
func namedPage[T any](kind string, limit int, after string, read func(after string, limit int) ([]T, []store.Unreadable, error), id func(T) string) (page []T, broken unread, next string, err error) {
	page, some, err := read(after, limit+1) // one more tells whether there is a next page
	if err != nil {
		return nil, nil, "", err
	}
	ids := make([]string, 0, len(page)+len(some))
	for _, x := range page {
		ids = append(ids, id(x))
	}
	broken = unread{}
	for _, u := range some {
		ids = append(ids, u.ID)
		broken[u.ID] = fmt.Errorf("the %s %s cannot be read: %w", kind, u.ID, u.Err)
	}
	if len(ids) > limit {
		slices.Sort(ids)
		next = ids[limit-1]
		page = slices.DeleteFunc(page, func(x T) bool { return id(x) > next })
		delete(broken, ids[limit])
	}
	return page, broken, next, nil
}
