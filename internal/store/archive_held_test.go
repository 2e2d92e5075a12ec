package store

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// Somebody's open transaction holds one of the tasks that are due to move: the others move,
// and it does later.
func TestAHeldTaskIsArchivedLater(t *testing.T) {
	t.Parallel() // it mostly waits
	p := pastIn(t, testdb.New(t))
	var tasks []*model.Task
	for i := range 10 {
		tasks = append(tasks, p.ended(key(i), 8*24*time.Hour, model.Options{}, lifecycle.Success(bson.RawValue{})))
	}
	session, err := p.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, session.StartTransaction())
	_, err = p.tasks.UpdateOne(mongo.NewSessionContext(t.Context(), session),
		bson.D{{Key: "_id", Value: tasks[4].ID}}, bson.D{{Key: "$set", Value: bson.D{{Key: "remark", Value: "mine"}}}})
	require.NoError(t, err)
	left := func() int64 {
		_, err := p.History.Archive(t.Context(), time.Time{})
		require.NoError(t, err)
		n, err := p.tasks.CountDocuments(t.Context(), bson.D{{Key: "type", Value: "t"}})
		require.NoError(t, err)
		return n
	}
	p.BelieveSlow() // a short time limit may find the machine slow
	require.EqualValues(t, 1, left())
	require.NoError(t, session.AbortTransaction(t.Context()))
	require.Zero(t, left())
}
