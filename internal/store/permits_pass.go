package store

import (
	"context"
	"errors"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
)

// Pass is a permit and what it becomes: after the end of its execution the permit of the next one,
// see [lifecycle.Permit.PassTo], and before that the permit of both, see [lifecycle.Permit.Prepare].
type Pass struct{ From, To lifecycle.Permit }

// Pass renames permits of a type, each guarded by its execution, and returns those that
// were. The caller makes sure that the end of an execution that is named no longer was
// acknowledged. A permit that the limit no longer covers stays as it
// was, and so does one that somebody has freed. After an error some may be renamed: the
// sweeper frees them. Indexes: permits.of, _id.
func (s *Permits) Pass(ctx context.Context, typ string, limit Limit, passes []Pass) (passed []lifecycle.Permit, err error) {
	if passes, err = s.covered(ctx, typ, limit, passes); err != nil || len(passes) == 0 {
		return nil, err
	}
	matched, err := bulk(ctx, s.core, s.permits, "passing on permit", passes, func(p *Pass) change {
		to := &p.To
		set := bson.D{
			d("task", to.TaskID), d("generation", to.Generation), d("rev", to.Rev), d("exec_id", to.ExecID),
			d("at", to.At), d("look_at", to.LookAt),
		}
		update := bson.D{d("$set", set), d("$unset", bson.D{d("next", "")})}
		if to.Next != nil {
			update = bson.D{d("$set", append(set, d("next", to.Next)))}
		}
		return change{id: p.From.Name, guard: ownPermit(&p.From), update: update}
	})
	if err != nil && !errors.Is(err, ErrHeld) { // a held one stays as it is
		return nil, err
	}
	passed = collect(passes, func(p Pass) lifecycle.Permit { return p.To })
	if matched == len(passes) {
		return passed, nil
	}
	of := s.permits
	if err != nil { // no command has waited until a majority has what is there of the held ones
		of = s.durable(of)
	}
	return stillOwn(ctx, of, passed)
}

// covered are the passes that the limit allows: as if the permits had just been freed, and
// were taken like any other, see [SlotLimit.free].
func (s *Permits) covered(ctx context.Context, typ string, limit Limit, passes []Pass) ([]Pass, error) {
	if limit.Settled {
		return limit.covers(nil, passes), nil
	}
	taken, err := s.Taken(ctx, LimitOf{Type: typ})
	if err != nil {
		return nil, err
	}
	return limit.covers(taken, passes), nil
}

// covers leaves out passes of permits that must not be taken by this look at those that are.
func (l Limit) covers(taken map[int]bool, passes []Pass) []Pass {
	free := func(n int) bool { return n >= 0 && n < l.Most }
	if !l.Settled {
		taken = maps.Clone(taken)
		for _, p := range passes {
			delete(taken, permitNumber(p.From))
		}
		left := map[int]bool{}
		for _, n := range l.free(taken, l.Most) {
			left[n] = true
		}
		free = func(n int) bool { return left[n] }
	}
	return slices.DeleteFunc(slices.Clone(passes), func(p Pass) bool { return !free(permitNumber(p.From)) })
}

// stillOwn are those of the permits that the executions named by them have. Index: _id.
func stillOwn(ctx context.Context, of *mongo.Collection, permits []lifecycle.Permit) ([]lifecycle.Permit, error) {
	names := collect(permits, func(p lifecycle.Permit) string { return p.Name })
	found, err := readAll[lifecycle.Permit](ctx, of, "reading permits", bson.D{d("_id", in(names))}, options.Find().SetProjection(bson.D{d("exec_id", 1), d("next.exec_id", 1)}))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(permits, func(p lifecycle.Permit) bool {
		return !slices.ContainsFunc(found, func(f lifecycle.Permit) bool {
			return f.Name == p.Name && f.ExecID == p.ExecID && (p.Next == nil || f.Next != nil && f.Next.ExecID == p.Next.ExecID)
		})
	}), nil
}
