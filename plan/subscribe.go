package plan

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/follow"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// errLeft ends a subscription whose caller has left the loop.
var errLeft = errors.New("nobody listens any more")

// Topic selects results (seed 001, 3.5). A zero field selects all.
type Topic struct {
	Tenant   string // model.NoTenant for plans without one
	Title    string // the topic: the description of the plan
	Subtitle string // the plan_id
	// After resumes after the event with this token. "" starts now.
	After string
}

// Event is a result that was published.
type Event struct {
	Title, Subtitle string // the description of the plan, and its plan_id
	Result          repeat.Result
	Token           string // for [Topic.After]
}

// Subscribe returns the results of plans, as engines store them, until ctx ends: what each worker that took part in
// a step did, and steps whose tasks no live worker takes (NO_WORKER). It returns each result that is
// stored after the loop has begun, or after Topic.After, at least once. Results that this release cannot
// read are left out. After a broken connection it resumes where it stopped.
//
// The loop ends after the first error: the cause of ctx, a *[model.NoStreamError] if there
// are no change streams or other subscriptions hold both seats, [model.ErrMissed] if results may be missing
// ([Plans.Results] has them), or a refusal by the database. Once the loop has begun, Subscribe waits while
// the database is unavailable.
func (p *Plans) Subscribe(ctx context.Context, topic Topic) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		left := false // the caller has left the loop
		err := p.subscribe(ctx, topic, func(e Event) bool {
			left = left || !yield(e, nil)
			return !left
		})
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil && !left {
			yield(Event{}, fmt.Errorf("subscribing to results of plans: %w", err))
		}
	}
}

func (p *Plans) subscribe(ctx context.Context, topic Topic, yield func(Event) bool) error {
	token, err := store.ParseToken(topic.After)
	if err != nil {
		return err
	}
	if err := p.store.Prepare(ctx); err != nil {
		return err
	}
	filter := store.ResultFilter{Tenant: topic.Tenant, Description: topic.Title, PlanID: topic.Subtitle}
	f := follow.Follower[*store.ResultStream]{
		Store: p.store, Of: []string{"/plans"},
		Open: func(ctx context.Context, token bson.Raw) (*store.ResultStream, error) {
			return p.store.Results.Watch(ctx, filter, token)
		},
		Take: func(ctx context.Context, stream *store.ResultStream) error {
			r, err := stream.Next(ctx)
			if err != nil || r == nil {
				return err
			}
			if !yield(Event{Title: r.Description, Subtitle: r.PlanID, Result: *r, Token: store.TokenText(stream.Token())}) {
				return errLeft
			}
			return nil
		},
		Ends: func(err error) bool { return errors.Is(err, errLeft) },
	}
	if err := f.Run(ctx, token); !errors.Is(err, errLeft) {
		return err
	}
	return nil
}
