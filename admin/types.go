package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// What holds for all tasks of a type is kept in the database, for every process that sends
// or runs them: its options, its category, its limits. It acts everywhere within two
// seconds: on sends, and on executions from their claim on. A task's own options win over
// its type's, those over what a handler says, and that over the defaults.

// ErrNoType is what the error for a type without a document is.
var ErrNoType = store.ErrNoType

// ErrTypeChanged is what the error of a change is that names another version of the type
// than the stored one: somebody else changed it since it was read.
var ErrTypeChanged = store.ErrTypeChanged

// PutType stores a type and returns it with its new version. Version 0 makes a new one;
// any other is that of the type as it was read, and the stored one must still have it
// ([ErrTypeChanged]). The times are set here. Errors about its fields are model.ErrInvalid
// and name them all. Secrets of its callback are sealed with the Config's SecretKey; one
// that is "***" stays what it is, and so does an address with its secrets masked. It is never part of a transaction.
func (a *Admin) PutType(ctx context.Context, t model.TaskType) (*model.TaskType, error) {
	if err := validType(&t); err != nil {
		return nil, fmt.Errorf("storing task type %s: %w", t.Code, err)
	}
	ctx = store.Outside(ctx)
	err := a.room.Prepare(ctx)
	if err == nil {
		t.Options.Callback, err = a.sealType(ctx, &t)
	}
	if err != nil {
		return nil, fmt.Errorf("storing task type %s: %w", t.Code, err)
	}
	if err := a.room.Store.Types.Put(ctx, &t); err != nil {
		return nil, err
	}
	a.room.Types.Expire()
	return &t, nil
}

// validType checks a type as far as this release can serve it.
func validType(t *model.TaskType) error {
	if err := input.TaskType(t); err != nil {
		return err
	}
	if t.Version < 0 {
		return input.Invalid("version", "is %d; want 0 for a new type, or the version that was read", t.Version)
	}
	return nil
}

// sealType seals the secrets of a type's callback. A secret that is not shown
// ("***"), also one in an address, stays what it is: whoever changes a type
// need not know it.
func (a *Admin) sealType(ctx context.Context, t *model.TaskType) (*model.Callback, error) {
	c := t.Options.Callback
	if t.Version > 0 && secret.Hidden(c) {
		stored, err := a.room.Store.Types.Get(ctx, t.Code)
		if err != nil {
			return nil, err
		}
		c = secret.Keep(c, stored.Options.Callback)
	}
	return a.room.Secrets.SealCallback("callback", c)
}

// Type reads a type, or returns [ErrNoType].
func (a *Admin) Type(ctx context.Context, code string) (*model.TaskType, error) {
	if err := input.Name("type", code); err != nil {
		return nil, fmt.Errorf("reading a task type: %w", err)
	}
	return a.room.Store.Types.Get(ctx, code)
}

// Types reads all types that were stored, by code. Tasks may be of others. Beside those that
// can be read it returns an error that names those that cannot: a later release stored
// them, or a person by hand.
func (a *Admin) Types(ctx context.Context) ([]*model.TaskType, error) {
	types, unread, err := a.room.Store.Types.List(ctx)
	for _, u := range unread {
		err = errors.Join(err, fmt.Errorf("the stored task type %s cannot be read: %w", u.ID, u.Err))
	}
	return types, err
}

// DeleteType deletes what was stored for a type. version is that of the type as it was
// read; 0 deletes any. Tasks of the type stay as they are: from their next claim on they
// have the options of their handler and the defaults, and a worker that serves the type by
// its category alone does so no longer. A paused type stays paused. A new type of that name
// begins at a greater version, so no edit of the deleted one passes on it.
func (a *Admin) DeleteType(ctx context.Context, code string, version int64) error {
	err := input.Name("type", code)
	if err == nil && version < 0 {
		err = input.Invalid("version", "is %d; want 0 for any, or the version that was read", version)
	}
	if err != nil {
		return fmt.Errorf("deleting a task type: %w", err)
	}
	ctx = store.Outside(ctx)
	if err := a.room.Prepare(ctx); err != nil {
		return fmt.Errorf("deleting task type %s: %w", code, err)
	}
	if err := a.room.Store.Types.Delete(ctx, code, version); err != nil {
		return err
	}
	a.room.Types.Expire()
	return nil
}
