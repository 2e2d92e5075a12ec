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

func TestATimeOrADurationThatCannotBeStoredIsRefusedByItsName(t *testing.T) {
	at := func(year int) time.Time { return time.Date(year, 12, 30, 0, 0, 0, 0, time.UTC) }
	for text, s := range map[string]Spec{
		"start_at is 12000-12-30 00:00:00 +0000 UTC; want a time between 1970 and 9999": {StartAt: at(12000)},
		"end_at is 12000-12-30 00:00:00 +0000 UTC; want a time between 1970 and 9999":   {EndAt: at(12000)},
		"run_retention is 1µs; the unit of the database is a millisecond":               {RunRetention: time.Microsecond},
		"jitter is 1ns; the unit of the database is a millisecond":                      {Jitter: 1},
		"catch_up.window is 999µs; the unit of the database is a millisecond":           {CatchUp: model.CatchUp{Window: 999 * time.Microsecond}},
		"cron never fires before the year 10000":                                        {StartAt: at(9999)},
		"cron never fires before end_at":                                                {StartAt: at(2025), EndAt: at(2025).Add(time.Hour)},
	} {
		s.Name, s.Cron, s.Type = "n", "0 0 1 1 *", "t"
		_, err := s.Checked(at(2024))
		require.ErrorIs(t, err, model.ErrInvalid)
		require.EqualError(t, err, text, "all of it, and nothing else")
	}
}
