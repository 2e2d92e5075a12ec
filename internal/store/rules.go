package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/codec"
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
var ErrNoRule = errors.New("no such periodic rule")

// ErrRuleExists is returned for a name that a living rule of the tenant has.
var ErrRuleExists = errors.New("a rule of that name exists")

// Insert stores a new rule. Index: living, which makes names unique.
func (s *Rules) Insert(ctx context.Context, r *schedule.Rule) error {
	_, err := s.rules.InsertOne(ctx, r)
	if IsDuplicate(err) {
		return fmt.Errorf("%w: %s", ErrRuleExists, r.Name)
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
	r, there, err := readOne[schedule.Rule](ctx, s.rules, "reading the rule "+name, filter)
	if !there && err == nil {
		return nil, fmt.Errorf("%w: %s", ErrNoRule, name)
	}
	return &r, err
}

// List reads the living rules of a tenant ("" = of all), ordered by tenant and name, after
// the given one. unread are documents that this release cannot read. Index: living.
func (s *Rules) List(ctx context.Context, tenant, after string, limit int) (rules []*schedule.Rule, unread []Unreadable, err error) {
	living := bson.D{d("$gt", after)}
	if tenant != "" {
		prefix := input.RuleName(tenant, "")
		living = bson.D{d("$gt", max(after, prefix)), d("$lt", prefix[:len(prefix)-1]+"0")} // '0' follows '/'
	}
	return s.readRules(ctx, "listing rules", bson.D{d("living", living)},
		options.Find().SetSort(bson.D{d("living", 1)}).SetHint(indexLiving).SetLimit(int64(limit)))
}

// Planned finds rules with something decided before the given time and not seen to be
// carried out: whoever decided it has died, or is slow. The first skip of them are left
// out. unread are documents that this release cannot read. Index: planned.
func (s *Rules) Planned(ctx context.Context, before time.Time, skip, limit int) (rules []*schedule.Rule, unread []Unreadable, err error) {
	return s.readRules(ctx, "finding planned runs", bson.D{d("planned_at", bson.D{d("$lte", before)})},
		options.Find().SetSort(bson.D{d("planned_at", 1)}).SetHint(indexPlanned).SetSkip(int64(skip)).SetLimit(int64(limit)))
}

// LongActive finds rules of which a run was started before the given time and is not known
// to have ended, by their ids, after the given one. It looks at every rule, so it is for
// now and then. unread are documents that this release cannot read. Index: _id.
func (s *Rules) LongActive(ctx context.Context, before time.Time, after string, limit int) (rules []*schedule.Rule, unread []Unreadable, err error) {
	return s.readRules(ctx, "finding runs that take long", bson.D{d("_id", bson.D{d("$gt", after)}), d("active.started", bson.D{d("$lte", before)})},
		options.Find().SetSort(bson.D{d("_id", 1)}).SetLimit(int64(limit)))
}

// LastLives reads the newest life of each task, from the history where it has moved there.
// Nothing is left of those that are missing; one that is there and cannot be read is nil.
// Indexes: _id; task of the history.
func (s *Rules) LastLives(ctx context.Context, ids []string) (map[string]*model.Task, error) {
	out, err := s.tasksRoom.ReadableByIDs(ctx, ids)
	if err != nil {
		return nil, err
	}
	var moved []string
	for _, id := range ids {
		if _, there := out[id]; !there {
			moved = append(moved, id)
		}
	}
	if len(moved) == 0 {
		return out, nil
	}
	// After the tasks: what moves in between is found here.
	return out, readEach(ctx, s.history, "reading the history of tasks", bson.D{d("task_id", in(moved))},
		options.Find().SetSort(fields("task_id", "generation")).SetHint(indexTask), func(doc bson.Raw) bool {
			life, err := decodeLife(doc, true)
			id, ok := doc.Lookup("task_id").StringValueOK()
			if err != nil {
				s.complain(s.history, doc, err)
				life = nil
			}
			if ok {
				out[id] = life
			}
			return true
		})
}

// readRules reads rules, one by one.
func (s *Rules) readRules(ctx context.Context, doing string, filter bson.D, o *options.FindOptionsBuilder) (rules []*schedule.Rule, unread []Unreadable, err error) {
	err = readEach(ctx, s.rules, doing, filter, o, func(doc bson.Raw) bool {
		r := new(schedule.Rule)
		if err := codec.Decode(doc, r); err != nil {
			unread = append(unread, unreadableRule(doc, err))
		} else {
			rules = append(rules, r)
		}
		return true
	})
	return rules, unread, err
}

func unreadableRule(raw bson.Raw, err error) Unreadable {
	id, _ := raw.Lookup("_id").StringValueOK()
	living, _ := raw.Lookup("living").StringValueOK()
	return Unreadable{ID: id, Living: living, Err: err}
}

// findRules reads rules all of which can be read.
func (s *Rules) findRules(ctx context.Context, doing string, filter bson.D, o *options.FindOptionsBuilder) ([]*schedule.Rule, error) {
	rules, unread, err := s.readRules(ctx, doing, filter, o)
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

// ByIDs reads rules by their ids. One that is there and cannot be read is nil.
// Index: _id.
func (s *Rules) ByIDs(ctx context.Context, ids []string) (map[string]*schedule.Rule, error) {
	found, unread, err := s.readRules(ctx, "reading rules", bson.D{d("_id", in(ids))}, options.Find())
	out := make(map[string]*schedule.Rule, len(found))
	for _, r := range found {
		out[r.ID] = r
	}
	for _, u := range unread {
		out[u.ID] = nil
	}
	return out, err
}

// Decision is one decision about a document: what it was when it was read, and what it is to
// be.
type Decision[D any] struct {
	Before, After D
	// Drop says that all that the stored document plans is carried out, and leaves with the
	// decision. Before then has no plans.
	Drop bool
}

// RuleWrite is one decision about a rule.
type RuleWrite = Decision[*schedule.Rule]

// Write carries decisions out, each if the rule still has the rev that was read:
// applied[i] says so. refused[i] is why the server refuses a decision, whoever asks: it
// concerns that one alone. An error means that nothing is known of any: some may be done.
// Index: _id.
func (s *Rules) Write(ctx context.Context, writes []RuleWrite) (applied []bool, refused map[int]error, err error) {
	applied = make([]bool, len(writes))
	if len(writes) == 0 {
		return applied, nil, nil
	}
	models := make([]mongo.WriteModel, len(writes))
	for i, w := range writes {
		update, err := ruleUpdate(w)
		if err != nil {
			return applied, nil, &FatalError{Reason: "encoding a decision about the rule " + w.After.Name, Err: err}
		}
		models[i] = mongo.NewUpdateOneModel().SetUpdate(update).
			SetFilter(bson.D{d("_id", w.Before.ID), d("rev", w.Before.Rev)})
	}
	res, err := s.rules.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	if refused = refusals(err); err != nil && refused == nil {
		return applied, nil, explain(err, "writing decisions about rules")
	}
	for i, why := range refused {
		if IsDuplicate(why) { // an edit of the name
			refused[i] = fmt.Errorf("%w: %s", ErrRuleExists, writes[i].After.Name)
		}
	}
	if refused == nil && int(res.MatchedCount) == len(writes) {
		for i := range applied {
			applied[i] = true
		}
		return applied, nil, nil
	}
	applied, err = s.Applied(ctx, writes) // some were crossed
	return applied, refused, err
}

// Applied looks which decisions were applied, and are the last ones about their rules:
// for a call of [Rules.Write] that crossed others, or whose answer was lost. Index: _id.
func (s *Rules) Applied(ctx context.Context, writes []RuleWrite) (applied []bool, err error) {
	current, err := s.ByIDs(ctx, collect(writes, func(w RuleWrite) string { return w.Before.ID }))
	applied = make([]bool, len(writes))
	for i, w := range writes {
		cur := current[w.After.ID]
		applied[i] = cur != nil && cur.Rev == w.After.Rev && cur.Decision == w.After.Decision
	}
	return applied, err
}

// refusals are the statements that the server refuses for what they are, by their index; nil
// where anything else went wrong.
func refusals(err error) map[int]error {
	var bulk mongo.BulkWriteException
	if !errors.As(err, &bulk) || bulk.WriteConcernError != nil {
		return nil
	}
	out := make(map[int]error, len(bulk.WriteErrors))
	for _, e := range bulk.WriteErrors {
		if ofDeployment(e.Code) {
			return nil
		}
		out[e.Index] = e
	}
	return out
}

// ruleUpdate is the update of a decision. What it plans is appended to what is planned, which
// others take out without a new rev: nothing that is carried out ever comes back.
func ruleUpdate(w RuleWrite) (bson.D, error) {
	before, after := *w.Before, *w.After
	known := map[string]bool{}
	for _, p := range before.Planned {
		known[p.ID] = true
	}
	var plans []schedule.Planned
	for _, p := range after.Planned {
		if !known[p.ID] {
			plans = append(plans, p)
		}
	}
	if before.Planned, after.Planned = nil, nil; len(plans) > 0 {
		before.PlannedAt = time.Time{} // the mark may have been taken away meanwhile
	} else {
		after.PlannedAt = before.PlannedAt
	}
	var old, now any = &before, &after
	if before.Version == after.Version { // no person's edit: what a tick changes is a small part
		old, now = stateOf(&before), stateOf(&after)
	}
	update, err := changed(old, now)
	if err == nil && len(plans) > 0 {
		push := bson.D{d("$each", planDocs(plans))}
		if w.Drop {
			push = append(push, d("$slice", -len(plans)))
		}
		update = append(update, d("$push", bson.D{d("planned", push)}))
	}
	return update, err
}

// ruleState is the part of a rule that decisions change, all but what they plan. The rest is
// a person's: an edit of it raises the version.
type ruleState struct {
	Status        schedule.Status    `bson:"status"`
	PauseNote     string             `bson:"pause_note,omitempty"`
	PausedAt      time.Time          `bson:"paused_at,omitempty"`
	UpdatedAt     time.Time          `bson:"updated_at"`
	Rev           int64              `bson:"rev"`
	Decision      string             `bson:"decision,omitempty"`
	NextFireAt    time.Time          `bson:"next_fire_at,omitempty"`
	DecidedTo     time.Time          `bson:"decided_to"`
	Runs          int64              `bson:"runs,omitempty"`
	Last          *schedule.LastRun  `bson:"last,omitempty"`
	LastEffective *schedule.LastRun  `bson:"last_effective,omitempty"`
	FailSkips     bool               `bson:"fail_skips,omitempty"`
	Active        []schedule.RunRef  `bson:"active,omitempty"`
	Queued        []schedule.RunRef  `bson:"queued,omitempty"`
	QueuedAt      time.Time          `bson:"queued_at,omitempty"`
	Range         *schedule.SkipSpan `bson:"range,omitempty"`
	PlannedAt     time.Time          `bson:"planned_at,omitempty"`
}

func stateOf(r *schedule.Rule) *ruleState {
	return &ruleState{
		Status: r.Status, PauseNote: r.PauseNote, PausedAt: r.PausedAt, UpdatedAt: r.UpdatedAt, Rev: r.Rev, Decision: r.Decision,
		NextFireAt: r.NextFireAt, DecidedTo: r.DecidedTo, Runs: r.Runs, Last: r.Last, LastEffective: r.LastEffective, FailSkips: r.FailSkips,
		Active: r.Active, Queued: r.Queued, QueuedAt: r.QueuedAt, Range: r.Range, PlannedAt: r.PlannedAt,
	}
}

// planDocs are the documents of plans. Their tasks are not left to the driver, which takes
// several times as long.
func planDocs(plans []schedule.Planned) bson.A {
	out := make(bson.A, len(plans))
	for i, p := range plans {
		fields := bson.D{d("id", p.ID)}
		if p.Record != nil {
			fields = append(fields, d("record", p.Record))
		}
		if p.Task != nil {
			fields = append(fields, d("task", bson.Raw(codec.AppendTask(make([]byte, 0, len(p.Task.Args.Value)+documentBytes), p.Task))))
		}
		if len(p.Cancel) > 0 {
			fields = append(fields, d("cancel", p.Cancel))
		}
		out[i] = fields
	}
	return out
}

// CarriedOut removes what was carried out, which is all that is planned in the rules as
// they are given, and the mark when nothing is left. It changes no rev. One write for each
// rule that nobody has decided since; of the others it takes out what was carried out,
// entry by entry. Index: _id.
func (s *Rules) CarriedOut(ctx context.Context, rules []*schedule.Rule) error {
	const doing = "removing what was carried out"
	gone := bson.D{d("$unset", bson.D{d("planned_at", ""), d("planned", "")})}
	matched, err := bulk(ctx, s.rules, doing, rules, func(r **schedule.Rule) mongo.WriteModel {
		return mongo.NewUpdateOneModel().SetFilter(bson.D{d("_id", (*r).ID), d("rev", (*r).Rev)}).SetUpdate(gone)
	})
	if err != nil || matched == len(rules) {
		return err
	}
	var pulls []mongo.WriteModel
	for _, r := range rules {
		ids := collect(r.Planned, func(p schedule.Planned) string { return p.ID })
		pulls = append(pulls,
			mongo.NewUpdateOneModel().SetFilter(bson.D{d("_id", r.ID)}).
				SetUpdate(bson.D{d("$pull", bson.D{d("planned", bson.D{d("id", in(ids))})})}),
			mongo.NewUpdateOneModel().SetFilter(bson.D{d("_id", r.ID), d("planned.0", absent)}).SetUpdate(gone))
	}
	_, err = s.rules.BulkWrite(ctx, pulls) // in order: the mark goes after the last entry
	return explain(err, doing)
}
