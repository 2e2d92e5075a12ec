package upkeep

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestMain(m *testing.M) { testdb.Main(m) }

func open(t *testing.T) *store.Store {
	t.Helper()
	st, _ := opened(t)
	return st
}

func opened(t *testing.T) (*store.Store, *mongo.Database) {
	t.Helper()
	db := testdb.New(t)
	st, err := store.Open(store.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, st.Ready(t.Context()))
	require.NoError(t, st.ReadClock(t.Context()))
	return st, db
}

// job returns what it is told and says when it ran.
type job struct {
	returns []error
	ran     chan int
	n       int
}

func (*job) Name() string             { return "job" }
func (*job) Wanted(store.Chores) bool { return true }
func (j *job) Run(context.Context) error {
	err := j.returns[min(j.n, len(j.returns)-1)]
	j.n++
	j.ran <- j.n
	return err
}

func TestARoundThatLeftMoreToDoIsFollowedAtOnceAndByTheOthersToo(t *testing.T) {
	much := &job{returns: []error{ErrMore, ErrMore, nil}, ran: make(chan int, 10)}
	other := &job{returns: []error{nil}, ran: make(chan int, 10)}
	k := New(open(t), "me", zerolog.Nop(), func() bool { return false }, much, other)
	k.pace = Pace{Busy: time.Millisecond, Idle: time.Hour, Grace: time.Second} // the first look is soon
	ctx, cancel := context.WithCancel(t.Context())
	var loop sync.WaitGroup
	loop.Go(func() { k.Loop(ctx) })
	for i := range 3 {
		for _, j := range []*job{much, other} {
			select {
			case n := <-j.ran:
				require.Equal(t, i+1, n)
			case <-time.After(testdb.Patience):
				require.Fail(t, "it waits for the next hour")
			}
		}
	}
	cancel()
	loop.Wait()
	require.Equal(t, 3, much.n)
}

func TestOneJobThatCannotDoesNotKeepTheOthersFromTheirs(t *testing.T) {
	broken := errors.New("broken")
	bad := &job{returns: []error{broken}, ran: make(chan int, 1)}
	good := &job{returns: []error{ErrMore}, ran: make(chan int, 1)}
	k := New(open(t), "me", zerolog.Nop(), func() bool { return false }, bad, good)
	require.ErrorIs(t, k.Round(t.Context()), broken)
	require.Equal(t, 1, good.n)
}

// ended stores n tasks that ended together, and are due to be archived.
func ended(t *testing.T, st *store.Store, prefix string, n int, at time.Time) {
	t.Helper()
	var tasks []*model.Task
	for i := range n {
		task := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: prefix + fmt.Sprint(i)}, at)
		eff := lifecycle.ResolveOptions(task.Options)
		claimed, no := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: "w", ExecID: "x"}, eff, at)
		require.Empty(t, no)
		done, err := lifecycle.Finish(claimed, "x", lifecycle.Success(bson.RawValue{}), eff, at, 0)
		require.NoError(t, err)
		tasks = append(tasks, done)
	}
	_, err := st.Tasks.Insert(t.Context(), tasks)
	require.NoError(t, err)
}

func TestAllThatIsDueIsArchivedInBatchesWithRests(t *testing.T) {
	st := open(t)
	ended(t, st, "", 1200, st.Clock.Now().Add(-8*24*time.Hour))
	c, err := st.Tasks.Chores(t.Context())
	require.NoError(t, err)
	require.True(t, Archive{}.Wanted(c))

	var batches []int
	j := Archive{Store: st, Moved: func(a store.Archived) { batches = append(batches, a.Moved) }}
	require.NoError(t, j.All(t.Context()))
	require.Equal(t, []int{500, 500, 200}, batches)
	c, err = st.Tasks.Chores(t.Context())
	require.NoError(t, err)
	require.False(t, Archive{}.Wanted(c))
}

// holding is a session whose transaction holds the tasks whose keys begin with "held", until the end of the test.
func holding(t *testing.T, db *mongo.Database) *mongo.Session {
	session, err := db.Client().StartSession()
	require.NoError(t, err)
	t.Cleanup(func() { session.EndSession(context.Background()) })
	require.NoError(t, session.StartTransaction())
	_, err = db.Collection("tasks").UpdateMany(mongo.NewSessionContext(t.Context(), session),
		bson.D{{Key: "key", Value: bson.D{{Key: "$regex", Value: "^held"}}}}, bson.D{{Key: "$set", Value: bson.D{{Key: "remark", Value: "mine"}}}})
	require.NoError(t, err)
	return session
}

// A page of tasks that one transaction holds, all due at the same moment, does not stand before
// the others.
func TestTheArchiverPassesAPageOfHeldTasks(t *testing.T) {
	st, db := opened(t)
	at := st.Clock.Now().Add(-8 * 24 * time.Hour)
	ended(t, st, "held", 500, at)
	ended(t, st, "free", 3, at.Add(time.Second))
	holding(t, db)
	moved := 0
	j := Archive{Store: st, Unpaced: true, Moved: func(a store.Archived) { moved += a.Moved }}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, j.All(ctx))
	require.Equal(t, 3, moved)
}

func TestTheArchiverRestsUnlessMoreEndsThanItMoves(t *testing.T) {
	const took = 100 * time.Millisecond
	for name, c := range map[string]struct{ late, advanced, passed, want time.Duration }{
		"nothing is late":                      {time.Minute, 0, 5 * time.Second, 8 * took},
		"a burst that is being worked off":     {24 * time.Hour, time.Minute, 5 * time.Second, 8 * took},
		"a burst of one moment, not late yet":  {50 * time.Minute, 0, 5 * time.Second, 8 * took},
		"falling behind for more than an hour": {2 * time.Hour, 4 * time.Second, 5 * time.Second, 0},
	} {
		require.Equal(t, c.want, restAfter(took, c.late, c.advanced, c.passed), name)
	}
}
