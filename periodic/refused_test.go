package periodic

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/outcome"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// Where the database refuses what is decided about a rule, there is nothing to go on with at
// once, however many ticks wait.
func TestARefusedDecisionIsNotTriedAgainBeforeTheNextLook(t *testing.T) {
	db := testdb.New(t)
	p, err := New(Config{Database: db})
	require.NoError(t, err)
	r, err := p.Create(t.Context(), Spec{
		Name: "bad", Cron: "* * * * * *", Type: "tick", Args: strings.Repeat("a", 2000), CatchUp: model.CatchUp{Mode: model.CatchUpFull, Cap: 1000},
	})
	require.NoError(t, err)
	_, err = p.Enable(t.Context(), r.ID, 0)
	require.NoError(t, err)
	at := time.Now().Add(-10 * time.Minute).Truncate(time.Second)
	_, err = db.Collection("periodic_rules").UpdateByID(t.Context(), r.ID, bson.D{{Key: "$set", Value: bson.D{
		{Key: "spoiled", Value: strings.Repeat("x", 16<<20-2500)}, {Key: "decided_to", Value: at}, {Key: "next_fire_at", Value: at.Add(time.Second)},
	}}})
	require.NoError(t, err)
	require.NoError(t, p.start(t.Context()))
	pause, err := p.decideDue(t.Context())
	require.NoError(t, err)
	require.Contains(t, p.complained, r.ID, "it was refused")
	require.Positive(t, pause)
}

// More lives of one instant than a sweep reads at a time, none of which can be read: there is
// no way past them, and no use in looking at them for ever.
func TestASweepOfEndsThatCannotBeReadComesToAnEnd(t *testing.T) {
	db := testdb.New(t)
	p, err := New(Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, p.start(t.Context()))
	at := time.Now().Add(-time.Minute)
	var docs []any
	for i := range 600 {
		docs = append(docs, bson.D{
			{Key: "_id", Value: fmt.Sprint(i)}, {Key: "outbox_at", Value: at}, {Key: "error_count", Value: "three"},
			{Key: "outbox", Value: bson.A{bson.D{{Key: "kind", Value: model.OutcomePeriodic}, {Key: "rev", Value: 1}}}},
		})
	}
	_, err = db.Collection("tasks").InsertMany(t.Context(), docs)
	require.NoError(t, err)
	runner := outcome.New(p.store, p.log, ends{p})
	defer runner.Close()
	found, err := runner.Sweep(t.Context(), 0)
	require.NoError(t, err)
	require.Zero(t, found)
}
