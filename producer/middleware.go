package producer

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Draft is one task on its way to the database, as middleware sees it. It may change
// every field; what it makes of it is checked again.
type Draft struct {
	Tenant   string // "" = none
	Type     string
	Key      string // "" = one is made up
	Category string
	Creator  string
	Args     bson.RawValue // zero = none
	Start    time.Time     // zero = now
	Priority *int          // nil = 5
	Held     bool          // Wait until it is released
	Options  model.Options
	// In, when not 0, is the start time from the moment of the write on, by the
	// database's clock; Start is then ignored.
	In time.Duration
	// ExpiresIn, when not 0, is the same for Options.ExpiresAt.
	ExpiresIn time.Duration
	// OnExisting says what happens to a key that exists; 0 leaves it alone.
	OnExisting model.Existing
}

// stored is what will be stored of the draft.
func (d *Draft) stored() lifecycle.Draft {
	return lifecycle.Draft{
		Tenant: d.Tenant, Type: d.Type, Key: d.Key, Category: d.Category, Creator: d.Creator,
		Args: d.Args, Start: d.Start, Priority: d.Priority, Held: d.Held, Options: d.Options,
	}
}

// SendFunc stores drafts and returns one Sent for each, in their order. Its error is
// that of the only draft, or a *[ManyError] when single ones of several failed, or
// another error when all did.
type SendFunc func(ctx context.Context, drafts []*Draft) ([]Sent, error)

// Middleware wraps every send: Send, SendJSON, SendMany, SendManyJSON. It calls next once, with the
// same number of drafts, and returns what next returned; or it refuses by an error.
// ctx is the caller's, with the session if it carries one.
//
//	func count(next producer.SendFunc) producer.SendFunc {
//		return func(ctx context.Context, drafts []*producer.Draft) ([]producer.Sent, error) {
//			sends.Add(len(drafts))
//			return next(ctx, drafts)
//		}
//	}
type Middleware func(next SendFunc) SendFunc
