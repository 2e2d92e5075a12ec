package producer

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Draft is one task before it is stored, as middleware sees it. Middleware may change every
// field; the producer validates the draft again.
type Draft struct {
	Tenant   string // "" = none
	Type     string
	Key      string // "" = generated
	Category string
	Creator  string
	Args     bson.RawValue // zero = none
	Start    time.Time     // zero = now
	Priority *int          // nil = 5
	Held     bool          // stays in Wait until it is released
	Options  model.Options
	// In, if not 0, is the delay from the write to the start time, by the database's clock.
	// Start is then ignored.
	In time.Duration
	// ExpiresIn, if not 0, replaces Options.ExpiresAt in the same way.
	ExpiresIn time.Duration
	// OnExisting selects what happens if the key exists; 0 changes nothing.
	OnExisting model.Existing
}

// stored is what will be stored of the draft.
func (d *Draft) stored() lifecycle.Draft {
	return lifecycle.Draft{
		Tenant: d.Tenant, Type: d.Type, Key: d.Key, Category: d.Category, Creator: d.Creator,
		Args: d.Args, Start: d.Start, Priority: d.Priority, Held: d.Held, Options: d.Options,
	}
}

// SendFunc stores drafts and returns one Sent for each, in the same order. The error of a
// single draft is returned as it is. With several drafts, a *[ManyError] lists those that
// failed, perhaps all. Any other error comes from before the drafts: none was written.
type SendFunc func(ctx context.Context, drafts []*Draft) ([]Sent, error)

// Middleware wraps every send: Send, SendJSON, SendMany, SendManyJSON. It calls next once, with
// the same number of drafts, and returns the result of next. To refuse the send, it returns an
// error instead. ctx is the caller's context, with its session if it has one.
//
//	func count(next producer.SendFunc) producer.SendFunc {
//		return func(ctx context.Context, drafts []*producer.Draft) ([]producer.Sent, error) {
//			sends.Add(len(drafts))
//			return next(ctx, drafts)
//		}
//	}
type Middleware func(next SendFunc) SendFunc
