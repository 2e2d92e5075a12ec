package access

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
)

// maxTenants is how many tenants a token may name.
const maxTenants = 200

// Wanted is a token that somebody wants to create.
type Wanted struct {
	Name      string    // for people: 1 to 100 of a-z A-Z 0-9 . _ -; several tokens may have the same
	Role      string    // one of [Roles]
	Tenants   []string  // whose things it may see and change; empty = all tenants
	ExpiresAt time.Time // by the database's clock; zero = never
	CreatedBy string    // who creates it; at most 200 bytes
}

// Check finds everything that is wrong with what is wanted, apart from the expiry. Each error names the
// field and is model.ErrInvalid.
func (w Wanted) Check() error {
	errs := []error{input.Name("name", w.Name)}
	_, err := ParseRole("role", w.Role)
	errs = append(errs, err, input.Label("created_by", w.CreatedBy), input.Line("created_by", w.CreatedBy))
	if len(w.Tenants) > maxTenants {
		errs = append(errs, input.Invalid("tenants", "are %d; at most %d are allowed", len(w.Tenants), maxTenants))
	}
	for _, t := range w.Tenants {
		errs = append(errs, input.Name("tenants", t))
	}
	return errors.Join(errs...)
}

// Create stores a new token and returns its text, which nobody can read again. The errors of bad input
// name the field and are model.ErrInvalid; nothing is stored then.
func Create(ctx context.Context, st *store.Store, w Wanted) (text string, t *store.Token, err error) {
	if err := w.Check(); err != nil {
		return "", nil, err
	}
	if err := st.FreshClock(ctx); err != nil {
		return "", nil, err
	}
	now := st.Clock.Now()
	switch at := w.ExpiresAt; {
	case at.IsZero():
	case !at.After(now):
		return "", nil, input.Invalid("expires_at", "is %s, which has passed", at.UTC().Format(time.RFC3339))
	case at.After(now.AddDate(100, 0, 0)):
		return "", nil, input.Invalid("expires_at", "is %s; want a time within 100 years", at.UTC().Format(time.RFC3339))
	}
	var tenants []string // nil if none is named: an empty list would see nothing
	tenants = append(tenants, w.Tenants...)
	slices.Sort(tenants)
	secret := random(secretBytes)
	t = &store.Token{
		ID: random(idBytes), Name: w.Name, Hash: hash(secret), Role: w.Role, Tenants: slices.Compact(tenants),
		ExpiresAt: w.ExpiresAt, CreatedBy: w.CreatedBy,
	}
	if err := st.Tokens.Insert(ctx, t); err != nil {
		return "", nil, err
	}
	return prefix + t.ID + "_" + secret, t, nil
}

// Revoke revokes the token of that id, for good, and returns its document, or [store.ErrUnknownToken].
// One that is revoked already stays as it is. Every process refuses it within [Window].
func Revoke(ctx context.Context, st *store.Store, id string) (*store.Token, error) {
	if err := st.FreshClock(ctx); err != nil {
		return nil, err
	}
	return st.Tokens.Revoke(ctx, id)
}
