package pull

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// The permit for which a held task would have been fetched is for the others of its type.
func TestAHeldTaskKeepsNoPermitFromOthers(t *testing.T) {
	b := setupOn(t, testdb.New(t))
	_, err := admin.New(b.sender).PutType(t.Context(), model.TaskType{Code: mailType.Name(), MaxRunning: 1})
	require.NoError(t, err)
	held := b.send(mail{}, producer.Priority(9)).ID
	next := b.send(mail{}).ID
	session, err := b.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, session.StartTransaction())
	_, err = b.sender.Update(mongo.NewSessionContext(t.Context(), session), held, producer.Priority(8))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		got, err := b.p.Fetch(t.Context(), FetchRequest{WorkerID: "w", Types: []string{mailType.Name()}})
		require.NoError(t, err)
		return len(got) == 1 && got[0].Task.ID == next
	}, testdb.Patience, 10*time.Millisecond) // it would stay until the transaction ends
}
