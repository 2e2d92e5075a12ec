package limits

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// swept is a gate of which the test sees the commands.
type swept struct {
	*Gate
	t     *testing.T
	db    *mongo.Database
	clock clock.Clock // of the machine

	mu     sync.Mutex
	sent   []bson.Raw
	before func(command bson.Raw) // each command is sent; nil = nothing
}

func newSwept(t *testing.T) *swept {
	t.Helper()
	return newSweptBy(t, clock.System())
}

func newSweptBy(t *testing.T, c clock.Clock) *swept {
	t.Helper()
	s := &swept{t: t, clock: c}
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			s.mu.Lock()
			s.sent = append(s.sent, append(bson.Raw(nil), e.Command...))
			before := s.before
			s.mu.Unlock()
			if before != nil {
				before(e.Command)
			}
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	s.db = client.Database(testdb.New(t).Name())
	s.open()
	return s
}

// another is a gate of another process.
func (s *swept) another() *swept {
	s.t.Helper()
	o := &swept{t: s.t, db: s.db, clock: s.clock}
	o.open()
	return o
}

func (s *swept) open() {
	s.t.Helper()
	st, err := store.Open(store.Config{Database: s.db, Clock: s.clock})
	require.NoError(s.t, err)
	require.NoError(s.t, st.Ready(s.t.Context()))
	require.NoError(s.t, st.ReadClock(s.t.Context()))
	types := tasktypes.New(st)
	require.NoError(s.t, types.Fresh(s.t.Context(), 0))
	s.Gate = New(st, types, zerolog.Nop(), func() {})
	s.t.Cleanup(s.Close)
}

// limit says what holds for each key.
func (s *swept) limit(k model.KeyLimit) {
	s.t.Helper()
	require.NoError(s.t, s.store.Types.Put(s.t.Context(), &model.TaskType{Code: sweptType, KeyLimit: &k}))
	require.NoError(s.t, s.types.Fresh(s.t.Context(), 0))
}

const sweptType = "swept"

// take stores n tasks and takes a permit for each; open says whether they are claimed, too.
func (s *swept) take(n int, open bool) {
	s.t.Helper()
	now := s.store.Clock.Now()
	var tasks []*model.Task
	var want []lifecycle.Permit
	for i := range n {
		t := lifecycle.NewTask(lifecycle.Draft{Type: sweptType, Key: fmt.Sprint(i)}, now)
		exec := fmt.Sprint("e", i)
		want = append(want, lifecycle.Permit{Type: sweptType, PermitUse: lifecycle.UseOf(t, exec)})
		if open {
			claimed, no := lifecycle.Claim(t, lifecycle.Claimant{WorkerID: "w", ExecID: exec}, lifecycle.ResolveOptions(), now)
			require.Empty(s.t, no)
			t = claimed
		}
		tasks = append(tasks, t)
	}
	_, err := s.store.Tasks.Insert(s.t.Context(), tasks)
	require.NoError(s.t, err)
	got, err := s.store.Permits.Take(s.t.Context(), store.LimitOf{Type: sweptType}, store.Limit{Most: n}, want)
	require.NoError(s.t, err)
	require.Len(s.t, got, n)
}

// sweep is one round, and the commands that it sent.
func (s *swept) sweep() (more bool, sent []bson.Raw) {
	s.t.Helper()
	s.mu.Lock()
	s.sent = nil
	s.mu.Unlock()
	more, err := s.Sweep(s.t.Context())
	require.NoError(s.t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	return more, s.sent
}

func (s *swept) taken() int {
	s.t.Helper()
	taken, err := s.store.Permits.Taken(s.t.Context(), store.LimitOf{Type: sweptType})
	require.NoError(s.t, err)
	return len(taken)
}

// of are the commands of a name on a collection, with that field in the filter if one is given.
func of(sent []bson.Raw, command, collection, field string) (found []bson.Raw) {
	for _, c := range sent {
		name, _ := c.Lookup(command).StringValueOK()
		if name == collection && (field == "" || c.Lookup("filter", field).Type != 0) {
			found = append(found, c)
		}
	}
	return found
}

// What decides that a permit is free must not be undone by a failover: it is read of a
// majority, the task no earlier than what the permit depended on.
func TestASweepBelievesOnlyWhatAFailoverCannotUndo(t *testing.T) {
	s := newSwept(t)
	s.take(2, false)
	s.store.Clock.Skip(6 * time.Second)
	_, sent := s.sweep()
	require.Zero(t, s.taken(), "the claims never came")
	reads := append(of(sent, "find", "permits", "look_at"), of(sent, "find", "tasks", "")...)
	topology, err := s.store.Topology(t.Context())
	require.NoError(t, err)
	majority, local := 0, 1 // what the fence is guarded by may be read as it is
	if topology.Sharded {
		local++ // a router's counts tell nothing: the fence's write is followed by a look
	}
	var session bson.RawValue
	for _, c := range reads {
		if c.Lookup("readConcern", "level").StringValue() != "majority" {
			local--
			continue
		}
		majority++
		if majority == 1 {
			session = c.Lookup("lsid")
			continue
		}
		require.Equal(t, session, c.Lookup("lsid"))
		require.NotZero(t, c.Lookup("readConcern", "afterClusterTime").Type, "it may see an earlier state than the one before: %s", c)
	}
	require.Equal(t, 3, majority, "the permits; their tasks, before and after the fence")
	require.Zero(t, local, "every other read must be one that a failover cannot undo")
}

func TestAPermitThatIsUsedIsLookedAtEverMoreRarely(t *testing.T) {
	s := newSwept(t)
	s.take(3, true)
	looks := 0
	for range 600 { // ten minutes
		s.store.Clock.Skip(time.Second)
		_, sent := s.sweep()
		if len(of(sent, "find", "tasks", "")) > 0 {
			looks++
			continue
		}
		sent = slices.DeleteFunc(sent, func(c bson.Raw) bool { return c.Lookup("find").StringValue() == "control" }) // now and then
		require.Len(t, sent, 2, "with nothing to look at a round costs a query for the permits and one for the keys")
	}
	require.Equal(t, 3, s.taken())
	// After 5, 10, 20, 40 and 80 s, then each minute.
	require.InDelta(t, 13, looks, 2)
}

func TestWhatIsLeftOverOfMoreThanOneRoundIsFreedInSeveral(t *testing.T) {
	s := newSwept(t)
	const n = permitsPerRound + permitsPerRound/2
	s.take(n, false)
	more, _ := s.sweep()
	require.False(t, more)
	require.Equal(t, n, s.taken(), "their claims may be on the way")
	s.store.Clock.Skip(6 * time.Second)
	more, _ = s.sweep()
	require.True(t, more)
	require.Equal(t, n-permitsPerRound, s.taken())
	more, _ = s.sweep()
	require.False(t, more)
	require.Zero(t, s.taken())
}

// Somebody has changed permits by hand. The others are freed nevertheless, a full round of them each time.
func TestPermitsThatCannotBeReadHoldUpNoOther(t *testing.T) {
	s := newSwept(t)
	const more = 3
	s.take(permitsPerRound+1+more, false)
	s.store.Clock.Skip(6 * time.Second)
	for _, exec := range []string{"e1", "e2"} {
		_, err := s.db.Collection("permits").UpdateOne(t.Context(), bson.D{{Key: "exec_id", Value: exec}}, bson.D{{Key: "$set", Value: bson.D{{Key: "rev", Value: "one"}, {Key: "look_at", Value: time.Unix(0, 0)}}}})
		require.NoError(t, err)
	}
	again, _ := s.sweep()
	require.True(t, again)
	require.Equal(t, 1+more, s.taken())
	again, _ = s.sweep()
	require.False(t, again)
	require.Equal(t, 2, s.taken())
}

// One round looks at so many of the keys for which tasks wait, and the next at the others.
func TestEachKeyForWhichTasksWaitHasItsTurn(t *testing.T) {
	s := newSwept(t)
	const n = 2*keysPerRound + perLook/2
	var keys []store.LimitOf
	var tasks []*model.Task
	now := s.store.Clock.Now()
	for i := range n {
		k := fmt.Sprint("k", i)
		keys = append(keys, store.LimitOf{Type: sweptType, Key: k})
		held := lifecycle.HoldBack(lifecycle.NewTask(lifecycle.Draft{Type: sweptType, Key: k, Options: model.Options{LimitKey: k}}, now), now)
		require.NotNil(t, held)
		tasks = append(tasks, held)
	}
	_, err := s.store.Tasks.Insert(t.Context(), tasks)
	require.NoError(t, err)
	require.NoError(t, s.store.Permits.NoteWaits(t.Context(), keys))
	for _, want := range []int{keysPerRound, 2 * keysPerRound, n} {
		more, _ := s.sweep()
		require.Equal(t, want < n, more, "the next round comes at once while there are keys left")
		require.Equal(t, want, s.back(tasks))
	}
}

// back is how many of the tasks are not held back any more.
func (s *swept) back(tasks []*model.Task) (n int) {
	s.t.Helper()
	for _, task := range tasks {
		got, err := s.store.Tasks.Get(s.t.Context(), task.ID)
		require.NoError(s.t, err)
		if !lifecycle.HeldBack(got) {
			n++
		}
	}
	return n
}

// Timers live in one process: after its end the next one that sweeps has to know of each key.
func TestAfterARestartTheFirstSweepKnowsWhenEachKeyHasItsNextStart(t *testing.T) {
	s := newSwept(t)
	rate := model.RateLimit{Count: 1, Per: 10 * time.Minute}
	s.limit(model.KeyLimit{RateLimit: &rate})
	const n = keysPerRound + perLook/2
	var keys []store.LimitOf
	var tasks []*model.Task
	now := s.store.Clock.Now()
	for i := range n {
		of := store.LimitOf{Type: sweptType, Key: fmt.Sprint("k", i)}
		keys = append(keys, of)
		tasks = append(tasks, lifecycle.HoldBack(lifecycle.NewTask(lifecycle.Draft{Type: sweptType, Key: of.Key, Options: model.Options{LimitKey: of.Key}}, now), now))
		_, err := s.store.Rates.Reserve(t.Context(), of, rate, s.pace(), time.Time{}, 1)
		require.NoError(t, err)
	}
	_, err := s.store.Tasks.Insert(t.Context(), tasks)
	require.NoError(t, err)
	require.NoError(t, s.store.Permits.NoteWaits(t.Context(), keys))
	more, _ := s.sweep()
	require.True(t, more)
	more, _ = s.sweep()
	require.False(t, more)
	require.Len(t, s.due, n, "so many looks are planned")
	more, sent := s.sweep()
	require.False(t, more, "all are known")
	require.Empty(t, of(sent, "find", "tasks", ""), "what is planned is not looked at again")
	// A change of the rate makes each be looked at again.
	typ, err := s.store.Types.Get(t.Context(), sweptType)
	require.NoError(t, err)
	typ.KeyLimit.RateLimit = &model.RateLimit{Count: 100, Per: time.Second}
	require.NoError(t, s.store.Types.Put(t.Context(), typ))
	require.NoError(t, s.types.Fresh(t.Context(), 0))
	s.store.Clock.Skip(time.Minute)
	for range 3 {
		s.sweep()
	}
	require.Equal(t, n, s.back(tasks))
}
