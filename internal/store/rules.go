package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Index names of periodic_rules.
const (
	indexLiving  = "living"  // {living} unique, where it exists
	indexFire    = "fire"    // {next_fire_at} where it exists
	indexPlanned = "planned" // {planned_at} where it exists
	IndexQueue   = "queue"   // {queued_at} where it exists
)

// ErrNoRule is returned for a periodic rule that does not exist, or was deleted.
var ErrNoRule = missing("no such periodic rule")

// ErrNoRun is returned for a run of a rule that has neither a record nor a task.
var ErrNoRun = missing("no such run of a periodic rule")

// ErrRuleExists is returned for a name that a living rule of the tenant has.
var ErrRuleExists = errors.New("a rule with that name already exists")

// ruleExists is an [ErrRuleExists], and the refusal that users know.
func ruleExists(name string) error {
	return &refusal{ErrRuleExists, &model.RefusedError{ID: name, Reason: ErrRuleExists.Error()}}
}

// Insert stores a new rule. Index: living, which makes names unique.
func (s *Rules) Insert(ctx context.Context, r *schedule.Rule) error {
	_, err := s.rules.InsertOne(ctx, r)
	if IsDuplicate(err) {
		return ruleExists(r.Name)
	}
	return explain(err, "storing the rule "+r.Name)
}

// Get reads a rule by its id, deleted ones too. Index: _id.
func (s *Rules) Get(ctx context.Context, id string) (*schedule.Rule, error) {
	return s.rule(ctx, bson.D{d("_id", id)}, id)
}

// Living reads a rule by its tenant and name. Index: living.
func (s *Rules) Living(ctx context.Context, tenant, name string) (*schedule.Rule, error) {
	return s.rule(ctx, bson.D{d("living", input.RuleName(tenant, name))}, name)
}

func (s *Rules) rule(ctx context.Context, filter bson.D, name string) (*schedule.Rule, error) {
	return readKnown[schedule.Rule](ctx, s.rules, "reading the rule "+name, filter, ErrNoRule, name)
}

// List reads the living rules of a tenant ("" = of all), ordered by tenant and name, after
// the given one. unread are documents that this release cannot read. Index: living.
func (s *Rules) List(ctx context.Context, tenant, after string, limit int) (rules []*schedule.Rule, unread []Unreadable, err error) {
	living := bson.D{d("$gt", after)}
	if tenant != "" {
		prefix := input.RuleName(tenant, "")
		living = bson.D{d("$gt", max(after, prefix)), d("$lt", prefix[:len(prefix)-1]+"0")} // '0' follows '/'
	}
	return s.read(ctx, "listing rules", bson.D{d("living", living)},
		options.Find().SetSort(bson.D{d("living", 1)}).SetHint(indexLiving).SetLimit(int64(limit)))
}

// Named is List of the rules of a tenant whose names begin so. Index: living.
func (s *Rules) Named(ctx context.Context, tenant, prefix, after string, limit int) (rules []*schedule.Rule, unread []Unreadable, err error) {
	return s.read(ctx, "finding rules by name", bson.D{d("living", beginsWith(tenant, prefix, after))},
		options.Find().SetSort(bson.D{d("living", 1)}).SetHint(indexLiving).SetLimit(int64(limit)))
}

// ToSweep finds two kinds of rules. Those of the first have a run that started at or before started and is not known to
// have ended. Those of the second were deleted at or before deleted, and no run of them is active, queued or planned. It returns
// them in the order of their ids, from behind after. It looks at every rule, so call it rarely. unread are documents
// that this release cannot read. Index: _id.
func (s *Rules) ToSweep(ctx context.Context, started, deleted time.Time, after string, limit int) (rules []*schedule.Rule, unread []Unreadable, err error) {
	return s.read(ctx, "finding rules to sweep", bson.D{d("_id", bson.D{d("$gt", after)}), d("$or", bson.A{
		bson.D{d("active.started", bson.D{d("$lte", started)})},
		append(bson.D{d("deleted_at", bson.D{d("$lte", deleted)})}, idle...),
	})}, options.Find().SetSort(bson.D{d("_id", 1)}).SetLimit(int64(limit)))
}

// idle are rules of which nothing runs, waits or is planned.
var idle = bson.D{d("active.0", absent), d("queued.0", absent), d("planned.0", absent)}

// Remove removes deleted rules of which nothing runs, waits or is planned, unless somebody has decided about them since they
// were read. Index: _id.
func (s *Rules) Remove(ctx context.Context, rules []*schedule.Rule) error {
	_, err := bulk(ctx, s.core, s.rules, "removing rule", rules, func(r **schedule.Rule) change {
		return change{id: (*r).ID, guard: append(bson.D{d("rev", (*r).Rev), d("deleted_at", exists)}, idle...)}
	})
	return err
}

// findRules reads rules all of which can be read.
func (s *Rules) findRules(ctx context.Context, doing string, filter bson.D, o *options.FindOptionsBuilder) ([]*schedule.Rule, error) {
	rules, unread, err := s.read(ctx, doing, filter, o)
	if err == nil && len(unread) > 0 {
		err = fmt.Errorf("%s: the rule %s cannot be read: %w", doing, unread[0].ID, unread[0].Err)
	}
	return rules, err
}

// WithCallback are the names of some living rules whose tasks have a callback of their
// own. Index: living, of which it reads all.
func (s *Rules) WithCallback(ctx context.Context, limit int) (names []string, err error) {
	rules, err := s.findRules(ctx, "finding rules with callbacks", bson.D{
		d("living", exists),
		d("$or", bson.A{bson.D{d("task.options.callback.success", exists)}, bson.D{d("task.options.callback.error", exists)}}),
	}, options.Find().SetHint(indexLiving).SetLimit(int64(limit)).SetProjection(bson.D{d("living", 1)}))
	for _, r := range rules {
		names = append(names, r.Living)
	}
	return names, err
}

// RuleWrite is one decision about a rule.
type RuleWrite = Decision[*schedule.Rule]

// newRules is the collection periodic_rules.
func newRules(c *core) *Rules {
	return &Rules{decided[schedule.Rule, schedule.Planned]{
		core: c, coll: c.rules, kind: kind{"rule", "rules"},
		of: func(r *schedule.Rule) (string, plans[schedule.Planned]) {
			return r.ID, plans[schedule.Planned]{r.Rev, &r.Decision, &r.Planned, &r.PlannedAt}
		},
		planID: func(p schedule.Planned) string { return p.ID },
		refusal: func(w RuleWrite, why error) error {
			if IsDuplicate(why) { // an edit of the name
				return ruleExists(w.After.Name)
			}
			return why
		},
	}}
}
