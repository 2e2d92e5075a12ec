package command

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/model"
)

type namedKey struct{}

// named is a life of a task as a list named it.
type named struct {
	generation int64
	statuses   []model.Status
}

// Named makes [Room.Change] and [AsNamed] refuse another life than the one of that generation, or one whose
// status is none of these by now; none = any. A list of tasks is old when the last of them is changed.
func Named(ctx context.Context, generation int64, statuses []model.Status) context.Context {
	return context.WithValue(ctx, namedKey{}, named{generation, statuses})
}

// AsNamed refuses a task that is not as ctx names it.
func AsNamed(ctx context.Context, t *model.Task) error {
	n, some := ctx.Value(namedKey{}).(named)
	switch {
	case !some:
		return nil
	case t.Generation != n.generation:
		return &model.RefusedError{ID: t.ID, Status: t.Status, Reason: "a new life of its key has begun"}
	case len(n.statuses) > 0 && !slices.Contains(n.statuses, t.Status):
		return &model.RefusedError{ID: t.ID, Status: t.Status, Reason: fmt.Sprintf("its status is %s by now", t.Status)}
	}
	return nil
}

// asNamed asks the rule only about the life that ctx names, at each try: the task may change between two.
func asNamed(ctx context.Context, rule rule) rule {
	return func(t *model.Task) (*model.Task, error) {
		if err := AsNamed(ctx, t); err != nil {
			return nil, err
		}
		return rule(t)
	}
}

type sinceKey struct{}

// Since makes a redelivery leave a delivery alone whose life began at that time or later: an earlier run of the
// same job began it. The zero time is none.
func Since(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, sinceKey{}, at)
}

// Repeated says whether the task's life began since the time that ctx names.
func Repeated(ctx context.Context, t *model.Task) bool {
	at, _ := ctx.Value(sinceKey{}).(time.Time)
	return !at.IsZero() && t.Generation >= at.UnixMilli()
}
