package promises

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// Asked is what processes asked for, and were told that it is stored: ids.
type Asked struct {
	Tasks, Flows, Plans map[string]bool
	NoRule              bool // nobody asked for one
}

// NewAsked is nothing yet.
func NewAsked() Asked {
	return Asked{Tasks: map[string]bool{}, Flows: map[string]bool{}, Plans: map[string]bool{}}
}

// Stored is what the database holds.
type Stored struct {
	Tasks map[string]*model.Task
	Flows map[string]*graph.Flow  // those that were asked for; nil = it is lost
	Plans map[string]*repeat.Plan // the same
	Runs  []schedule.Run
	Rule  schedule.Rule
}

// Read reads the tasks, the rule and its runs, and the flows and plans that were asked for.
func Read(ctx context.Context, db *mongo.Database, asked Asked) (*Stored, error) {
	s := &Stored{Tasks: map[string]*model.Task{}, Flows: map[string]*graph.Flow{}, Plans: map[string]*repeat.Plan{}}
	raws, err := all[bson.Raw](ctx, db.Collection("tasks"))
	if err != nil {
		return nil, err
	}
	for _, raw := range raws {
		if strings.HasPrefix(raw.Lookup("_id").StringValue(), "~") {
			continue // the sentinel of the schema
		}
		t, err := store.Decode(raw)
		if err != nil {
			return nil, err
		}
		s.Tasks[t.ID] = t
	}
	st, err := store.Open(store.Config{Database: db})
	if err != nil {
		return nil, err
	}
	for id := range asked.Flows {
		if s.Flows[id], err = st.Flows.Get(ctx, id); err != nil && !errors.Is(err, store.ErrNoFlow) {
			return nil, err
		}
	}
	for id := range asked.Plans {
		if s.Plans[id], err = st.Plans.Get(ctx, id); err != nil && !errors.Is(err, store.ErrNoPlan) {
			return nil, err
		}
	}
	if asked.NoRule {
		return s, nil
	}
	rule, err := st.Rules.Living(ctx, "", RuleName)
	if err != nil {
		return nil, err
	}
	s.Rule = *rule
	s.Runs, err = all[schedule.Run](ctx, db.Collection("periodic_runs"))
	return s, err
}

func all[T any](ctx context.Context, coll *mongo.Collection) (out []T, err error) {
	cur, err := coll.Find(ctx, bson.D{})
	if err == nil {
		err = cur.All(ctx, &out)
	}
	return out, err
}

// Open says what has not ended, or is lost; "" = all has ended. The database's clock says now.
func (s *Stored) Open(asked Asked, now time.Time) string {
	for id := range asked.Tasks {
		if s.Tasks[id] == nil {
			return "the task " + id + " is lost"
		}
	}
	for id, t := range s.Tasks {
		if !t.Status.Ended() {
			return "the task " + id + " is " + string(t.Status)
		}
	}
	for id, doc := range s.Flows {
		if doc == nil {
			return "the flow " + id + " is lost"
		}
		if doc.Status != graph.StatusFinish {
			return "the flow " + id + " is " + string(doc.Status)
		}
	}
	for id, doc := range s.Plans {
		if doc == nil {
			return "the plan " + id + " is lost"
		}
		if doc.Status != repeat.StatusFinish {
			return "the plan " + id + " is " + string(doc.Status)
		}
	}
	if now.Before(s.Rule.EndAt.Add(2 * every)) {
		return "the rule may tick"
	}
	for i := range s.Runs {
		if r := &s.Runs[i]; r.Status == schedule.RunScheduled || r.Status == schedule.RunRunning {
			return "the run " + r.ID + " is " + string(r.Status)
		}
	}
	return ""
}
