package limits

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// heldBack are new tasks with those keys that wait for their limit_key k, the first one before the others.
func (s *swept) heldBack(keys ...string) (tasks []*model.Task) {
	s.t.Helper()
	for i, key := range keys {
		task := lifecycle.NewTask(lifecycle.Draft{Type: sweptType, Key: key, Options: model.Options{LimitKey: "k"}}, s.store.Clock.Now().Add(time.Duration(i-10)*time.Second))
		tasks = append(tasks, lifecycle.HoldBack(task, s.store.Clock.Now()))
	}
	_, err := s.store.Tasks.Insert(s.t.Context(), tasks)
	require.NoError(s.t, err)
	return tasks
}

// A person changes the best task of a key, or cancels it, while it is given its turn: the key's free place goes to
// the next look, not to the next sweep.
func TestATaskThatIsChangedDuringItsTurnLeavesTheKeyNoFreePlace(t *testing.T) {
	for name, change := range map[string]bson.D{
		"changed":   {{Key: "$inc", Value: bson.D{{Key: "rev", Value: 1}}}},
		"postponed": {{Key: "$inc", Value: bson.D{{Key: "rev", Value: 1}}}, {Key: "$set", Value: bson.D{{Key: "updated_at", Value: time.Now().Add(time.Minute)}, {Key: "due_at", Value: time.Now().Add(time.Hour)}, {Key: "audience", Value: bson.A{lifecycle.AudienceAll}}}}},
		"cancelled": {{Key: "$inc", Value: bson.D{{Key: "rev", Value: 1}}}, {Key: "$set", Value: bson.D{{Key: "status", Value: model.StatusCancelled}}}, {Key: "$unset", Value: bson.D{{Key: "due_at", Value: ""}}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSwept(t)
			s.limit(model.KeyLimit{MaxRunning: 1})
			tasks := s.heldBack("first", "next")
			of := []store.LimitOf{{Type: sweptType, Key: "k"}}
			person := testdb.New(t).Client().Database(s.db.Name())
			var once sync.Once
			s.mu.Lock()
			s.before = func(command bson.Raw) {
				if _, writes := command.Lookup("updates").ArrayOK(); !writes {
					return
				}
				once.Do(func() {
					_, err := person.Collection("tasks").UpdateByID(t.Context(), tasks[0].ID, change)
					require.NoError(t, err)
				})
			}
			s.mu.Unlock()
			require.NoError(t, s.Look(t.Context(), sweptType, of))
			require.Eventually(t, func() bool { return s.back(tasks[1:]) > 0 || name == "changed" && s.back(tasks) > 0 }, testdb.Patience, 5*time.Millisecond)
		})
	}
}

// The best task of a key is held by somebody's open transaction: the key's free place goes
// to the next one.
func TestAHeldTaskDoesNotStandBeforeTheOthersOfItsKey(t *testing.T) {
	s := newSwept(t)
	s.limit(model.KeyLimit{MaxRunning: 1})
	tasks := s.heldBack("held", "next")
	session, err := s.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, session.StartTransaction())
	_, err = s.db.Collection("tasks").UpdateOne(mongo.NewSessionContext(t.Context(), session),
		bson.D{{Key: "_id", Value: tasks[0].ID}}, bson.D{{Key: "$set", Value: bson.D{{Key: "remark", Value: "mine"}}}})
	require.NoError(t, err)

	of := []store.LimitOf{{Type: sweptType, Key: "k"}}
	// The first look finds out, the second is the probe of the held one, then the next has
	// its turn; looks of the gate's own may come in between.
	patience := time.After(30 * time.Second)
	for s.back(tasks[1:]) == 0 {
		require.NoError(t, s.Look(t.Context(), sweptType, of))
		select {
		case <-patience:
			require.Fail(t, "the next task waits for the held one")
		default:
		}
	}
	require.Zero(t, s.back(tasks[:1]))
}
