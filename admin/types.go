package admin

import (
	"context"
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

// PutType stores a type and returns it with its new version. Version 0 creates a new type.
// Otherwise Version is the version that was read, and the stored type must still have it
// ([model.ErrChanged]). PutType sets the times. An error about fields matches model.ErrInvalid
// and names all of them. It encrypts the secrets of the callback with the Config's SecretKey. A
// secret "***" keeps its stored value, and so does an address with masked secrets.
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
		c = a.room.Secrets.Keep(c, stored.Options.Callback)
	}
	return a.room.Secrets.SealCallback("callback", c)
}

// Type reads a type. If it has no document, the error is [model.ErrNotFound].
func (a *Admin) Type(ctx context.Context, code string) (*model.TaskType, error) {
	if err := input.Name("type", code); err != nil {
		return nil, fmt.Errorf("reading a task type: %w", err)
	}
	return a.room.Store.Types.Get(ctx, code)
}

// Types reads all stored types, ordered by code. Tasks may have other types. If some documents
// cannot be read, because a later release or a person wrote them, Types returns the readable
// ones and a [*model.UnreadableError] with the codes of the others.
func (a *Admin) Types(ctx context.Context) ([]*model.TaskType, error) {
	types, unread, err := a.room.Store.Types.List(ctx)
	if err != nil {
		return nil, err
	}
	return types, store.UnreadError("stored task type", unread)
}

// DeleteType deletes the document of a type. version is the version that was read; 0 deletes
// any version. It does not delete tasks of the type. From their next claim on, the options of
// their handler and the defaults apply, and workers that handle the type only through its
// category no longer do. A paused type stays paused. A new type with this name starts at a
// greater version, so that an edit of the deleted type cannot apply to it.
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
