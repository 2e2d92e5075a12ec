package store

import (
	"slices"
	"unicode"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/input"
)

// beginsWith is the range of an index on tenant/name whose names begin so, behind one of them ("" = from the first).
func beginsWith(tenant, prefix, after string) bson.D {
	first := input.RuleName(tenant, prefix)
	within := bson.D{d("$gte", first), d("$lt", first+string(unicode.MaxRune))}
	if after != "" {
		within = append(within, d("$gt", after))
	}
	return within
}

// NamedPage reads a page of at most limit documents behind the given name ("" = from the first), sorted by name.
// Documents that cannot be read take places, too. next is the name that the next page is behind; "" = this page is the
// last one.
func NamedPage[T any](after string, limit int, read func(after string, limit int) ([]T, []Unreadable, error), name func(T) string) (page []T, unread []Unreadable, next string, err error) {
	if page, unread, err = read(after, limit+1); err != nil { // one more tells whether there is a next page
		return nil, nil, "", err
	}
	names := append(collect(page, name), collect(unread, Unreadable.Name)...)
	if len(names) > limit {
		slices.Sort(names)
		next = names[limit-1]
		page = slices.DeleteFunc(page, func(x T) bool { return name(x) > next })
		unread = slices.DeleteFunc(unread, func(u Unreadable) bool { return u.Name() > next })
	}
	return page, unread, next, nil
}
