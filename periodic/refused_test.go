package periodic

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

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
