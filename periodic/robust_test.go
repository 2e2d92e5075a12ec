package periodic_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// What is wrong with one rule is no other rule's concern: each of these stays due for ever,
// and a healthy rule beside it fires all the same.
func TestARuleThatCannotBeHandledDoesNotStopTheOthers(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, spoil := range map[string]func(t *testing.T, db *mongo.Database, id string){
		"its document cannot be read": func(t *testing.T, db *mongo.Database, id string) {
			set(t, db, id, bson.D{{Key: "max_concurrency", Value: "3"}})
		},
		"its zone is not known": func(t *testing.T, db *mongo.Database, id string) {
			set(t, db, id, bson.D{{Key: "timezone", Value: "Mars/New"}})
		},
		"its document takes no more": func(t *testing.T, db *mongo.Database, id string) {
			set(t, db, id, bson.D{{Key: "spoiled", Value: strings.Repeat("x", 16<<20-2500)}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := testdb.New(t)
			p, err := periodic.New(periodic.Config{Database: db})
			require.NoError(t, err)
			var ids []string
			for _, name := range []string{"bad", "good"} {
				r, err := p.Create(t.Context(), schedule.Spec{
					Name: name, Cron: "* * * * * *", Type: "tick", Args: strings.Repeat("a", 2000),
					CatchUp: schedule.CatchUp{Mode: schedule.CatchUpFull},
				})
				require.NoError(t, err)
				_, err = p.Enable(t.Context(), r.ID, 0)
				require.NoError(t, err)
				ids = append(ids, r.ID)
			}
			spoil(t, db, ids[0])
			engine(t, p.Run)
			require.Eventually(t, func() bool {
				n, err := db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "origin.id", Value: ids[1]}})
				return err == nil && n >= 3
			}, testdb.Patience, 100*time.Millisecond, "the good rule does not fire")
			n, err := db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "origin.id", Value: ids[0]}})
			require.NoError(t, err)
			require.Zero(t, n, "the bad rule is bad")
		})
	}
}

func set(t *testing.T, db *mongo.Database, id string, fields bson.D) {
	_, err := db.Collection("periodic_rules").UpdateByID(t.Context(), id, bson.D{{Key: "$set", Value: fields}})
	require.NoError(t, err)
}

// An end of a rule that cannot be read waits until it can; the others' are told meanwhile.
func TestTheEndOfARunWaitsForARuleThatCannotBeRead(t *testing.T) {
	t.Parallel() // it mostly waits
	db, p := worked(t, func() error { return nil })
	var ids []string
	for _, name := range []string{"bad", "good"} {
		r, err := p.Create(t.Context(), schedule.Spec{Name: name, Cron: "@yearly", Type: "tick"})
		require.NoError(t, err)
		_, err = p.Trigger(t.Context(), r.ID, periodic.TriggerOptions{})
		require.NoError(t, err)
		idle(t, p, r.ID)
		ids = append(ids, r.ID)
	}
	for _, id := range ids {
		_, err := p.Trigger(t.Context(), id, periodic.TriggerOptions{})
		require.NoError(t, err)
		if id == ids[0] {
			set(t, db, id, bson.D{{Key: "max_concurrency", Value: "3"}})
		}
	}
	idle(t, p, ids[1])
	set(t, db, ids[0], bson.D{{Key: "max_concurrency", Value: 0}})
	idle(t, p, ids[0])
}
