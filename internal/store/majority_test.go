package store_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// answered is a store behind a proxy that changes what the server answers to updates of
// tasks, and how many of those there were.
type answered struct {
	*store.Store
	direct  *mongo.Database // not through the proxy
	proxy   *proxy.Proxy
	updates atomic.Int64
	size    atomic.Int64 // statements of the last one
}

func newAnswered(t *testing.T) *answered {
	t.Helper()
	a := &answered{proxy: testdb.Behind(t)}
	a.Store, a.direct = openAs(t, options.Client().ApplyURI(a.proxy.URI()).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName != "update" {
				return
			}
			if list, err := e.Command.Lookup("updates").Array().Values(); err == nil {
				a.size.Store(int64(len(list)))
			}
		},
	}))
	return a
}

// rewrite changes the answers to updates; others sees the other commands, where it is not nil.
func (a *answered) rewrite(update, others func(command string, answer bson.D) bson.D) {
	a.proxy.Rewrite(func(command string, answer bson.Raw) bson.Raw {
		change := others
		if command == "update" {
			a.updates.Add(1)
			change = update
		}
		var doc bson.D
		if change == nil || bson.Unmarshal(answer, &doc) != nil {
			return answer
		}
		raw, err := bson.Marshal(change(command, doc))
		if err != nil {
			return answer
		}
		return raw
	})
}

// claims inserts that many tasks and returns the claims of them by the execution "e".
func (a *answered) claims(t *testing.T, n int) (claims []store.Write) {
	t.Helper()
	require.NoError(t, a.Ready(t.Context()))
	require.NoError(t, a.ReadClock(t.Context()))
	now := a.Clock.Now()
	tasks := make([]*model.Task, n)
	for i := range tasks {
		tasks[i] = lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: fmt.Sprint(i)}, now)
		after, no := lifecycle.Claim(tasks[i], lifecycle.Claimant{WorkerID: "w", ExecID: "e"}, lifecycle.ResolveOptions(), now)
		require.Empty(t, no)
		claims = append(claims, store.Write{Before: tasks[i], After: after})
	}
	st, err := store.Open(store.Config{Database: engine.Connect(t, testdb.BehindPatient(t).URI()).Database(a.direct.Name())})
	require.NoError(t, err)
	_, err = st.Tasks.Insert(t.Context(), tasks) // however long it takes
	require.NoError(t, err)
	return claims
}

func field(key string, value any) bson.E { return bson.E{Key: key, Value: value} }

func number(n int) int32 { return int32(n) } //nolint:gosec // small

// A primary that has done everything, and waited in vain for the majority until maxTimeMS
// was over, answers so (client-side-operations-timeout.md of the driver specifications,
// "Error Transformations").
func majorityLags(_ string, answer bson.D) bson.D {
	return append(answer, field("writeConcernError", bson.D{
		field("code", number(50)), field("codeName", "MaxTimeMSExpired"), field("errmsg", "operation exceeded time limit"),
	}))
}

func TestWhatTheMajorityHasNotIsNotTakenForDone(t *testing.T) {
	a := newAnswered(t)
	a.proxy.Patient() // only the answer says that the time is over
	claims := a.claims(t, 1000)
	a.rewrite(majorityLags, nil)
	_, err := a.Tasks.Writes(t.Context(), claims, time.Minute)
	require.Equal(t, store.Ambiguous, store.Classify(err), "%v", err)
	require.EqualValues(t, 2, a.updates.Load(), "nothing is held: there is nothing to look for")
}

// A record of a later decision is a duplicate beside those that are stored.
func TestADuplicateBesideAMajorityThatLagsIsNoOutage(t *testing.T) {
	a := newAnswered(t)
	runs := func(rev int64) (runs []*schedule.Run) {
		for i := range 5 {
			runs = append(runs, &schedule.Run{ID: fmt.Sprint("r@", i), RuleID: "r", Status: schedule.RunSuccess, Rev: rev, At: time.Now()})
		}
		return runs
	}
	requirePut(t, a.Runs.Put, runs(5)[:1])
	var lags atomic.Bool
	a.rewrite(func(command string, answer bson.D) bson.D {
		if lags.CompareAndSwap(false, true) {
			return majorityLags(command, answer)
		}
		return answer
	}, nil)
	requirePut(t, a.Runs.Put, runs(1))
	require.True(t, lags.Load())
	stored, err := a.direct.Collection("periodic_runs").CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.EqualValues(t, 5, stored)
}

func TestAMajorityThatOnlyLagsIsWaitedFor(t *testing.T) {
	a := newAnswered(t)
	a.proxy.Patient()
	claims := a.claims(t, 10)
	var first atomic.Bool
	a.rewrite(func(command string, answer bson.D) bson.D {
		if first.CompareAndSwap(false, true) {
			return majorityLags(command, answer)
		}
		return answer
	}, nil)
	written, err := a.Tasks.Writes(t.Context(), claims, time.Minute)
	require.NoError(t, err)
	require.EqualValues(t, 2, a.updates.Load())
	for _, w := range written {
		require.True(t, w.Applied)
	}
}

// A router has sent each statement to its shard, in one command, and says of each what the
// shard says of that: also of those that nothing holds.
func TestBehindARouterOneHeldDocumentDoesNotCostTheOthersTheirLeases(t *testing.T) {
	t.Parallel()                               // it mostly waits
	for _, code := range []int{50, 202, 262} { // the last two of routers of before MongoDB 5.0
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			a := newAnswered(t)
			a.rewrite(func(_ string, answer bson.D) bson.D {
				var doc struct{ Code int32 }
				if raw, err := bson.Marshal(answer); err != nil || bson.Unmarshal(raw, &doc) != nil || doc.Code != 50 {
					return answer
				}
				var each bson.A
				for i := range int(a.size.Load()) {
					each = append(each, bson.D{field("index", number(i)), field("code", number(code)), field("errmsg", "operation exceeded time limit")})
				}
				return bson.D{field("n", number(0)), field("nModified", number(0)), field("writeErrors", each), field("ok", 1.0)}
			}, func(command string, answer bson.D) bson.D {
				if command != "hello" {
					return answer
				}
				return asRouter(answer)
			})
			claims := a.claims(t, 10)
			topology, err := a.Topology(t.Context())
			require.NoError(t, err)
			require.True(t, topology.Sharded)
			_, err = a.Tasks.Writes(t.Context(), claims, time.Minute)
			require.NoError(t, err)

			session, err := a.direct.Client().StartSession()
			require.NoError(t, err)
			defer session.EndSession(context.Background())
			require.NoError(t, session.StartTransaction())
			_, err = a.direct.Collection("tasks").UpdateOne(mongo.NewSessionContext(t.Context(), session),
				bson.D{field("_id", claims[3].After.ID)}, bson.D{field("$set", bson.D{field("padding", 1)})})
			require.NoError(t, err)

			var pings []store.Ping
			for _, c := range claims {
				pings = append(pings, store.Ping{ID: c.After.ID, ExecID: "e", Until: a.Clock.Now().Add(time.Hour)})
			}
			require.Eventually(t, func() bool { // a short time limit may find the machine slow
				lost, err := a.Tasks.Pings(t.Context(), pings, 500*time.Millisecond)
				require.NoError(t, err)
				require.Empty(t, lost)
				missed := 0
				for _, p := range pings {
					if p.Missed {
						missed++
					}
				}
				return missed == 1 && pings[3].Missed
			}, testdb.Patience, time.Millisecond)
			require.NoError(t, session.AbortTransaction(t.Context()))
		})
	}
}

func TestTheTimeBehindARouterIsNotTheRouters(t *testing.T) {
	p := testdb.Behind(t)
	p.Rewrite(func(command string, answer bson.Raw) bson.Raw {
		return proxy.AsRouter(command, proxy.AtTime(time.Now().Add(-time.Hour), command, answer))
	})
	s, _ := openAs(t, options.Client().ApplyURI(p.URI()))
	require.NoError(t, s.Ready(t.Context()))
	now, err := s.ServerTime(t.Context())
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), now, 10*time.Minute)
}

func refuseEach(code int) func(string, bson.D) bson.D {
	return func(string, bson.D) bson.D {
		return bson.D{field("n", number(0)), field("nModified", number(0)), field("ok", 1.0), field("writeErrors", bson.A{
			bson.D{field("index", number(0)), field("code", number(code)), field("errmsg", "no")},
		})}
	}
}

func TestWhatAnyStatementWouldMeetIsNoFaultOfItsDocument(t *testing.T) {
	for name, code := range map[string]int{"NoProgressMade": 82, "UserWritesBlocked": 371, "KeyNotFound": 211, "MigrationConflict": 272} {
		t.Run(name, func(t *testing.T) {
			a := newAnswered(t)
			claims := a.claims(t, 1)
			a.rewrite(refuseEach(code), nil)
			_, err := a.Tasks.Writes(t.Context(), claims, time.Minute)
			require.Error(t, err)
			require.False(t, store.Final(err), "%v", err)
		})
	}
}

func TestAnInsertThatTheDeploymentRefusesMayBeRepeated(t *testing.T) {
	a := newAnswered(t)
	claims := a.claims(t, 1)
	a.rewrite(nil, func(command string, answer bson.D) bson.D {
		if command != "insert" {
			return answer
		}
		return refuseEach(371)(command, answer)
	})
	_, err := a.Tasks.Insert(t.Context(), []*model.Task{claims[0].Before})
	var refused *store.InsertError
	require.NotErrorAs(t, err, &refused)
	require.True(t, store.Outage(err), "%v", err)
}

// A server that is slow at everything holds nothing. To divide commands further and further
// would only slow it down more.
func TestASlowServerIsNotSearchedForHeldDocuments(t *testing.T) {
	a := newAnswered(t)
	claims := a.claims(t, 1000)
	a.rewrite(func(string, bson.D) bson.D {
		return bson.D{field("ok", 0.0), field("code", number(50)), field("codeName", "MaxTimeMSExpired"), field("errmsg", "operation exceeded time limit")}
	}, nil)
	_, err := a.Tasks.Writes(t.Context(), claims, time.Minute)
	require.NoError(t, err)
	require.LessOrEqual(t, a.updates.Load(), int64(1+16), "one command, and at most its parts")
}

// What is not known to be stored is not said to be, whatever the server says of it.
func TestAnInsertThatConflictsIsNotTakenForDone(t *testing.T) {
	a := newAnswered(t)
	require.NoError(t, a.Ready(t.Context()))
	require.NoError(t, a.ReadClock(t.Context()))
	tasks := make([]*model.Task, 3)
	for i := range tasks {
		tasks[i] = lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: fmt.Sprint(i)}, a.Clock.Now())
	}
	a.rewrite(nil, func(command string, answer bson.D) bson.D {
		if command != "insert" {
			return answer
		}
		return bson.D{field("n", number(2)), field("ok", 1.0), field("writeErrors", bson.A{
			bson.D{field("index", number(1)), field("code", number(112)), field("errmsg", "WriteConflict")},
		})}
	})
	_, err := a.Tasks.Insert(t.Context(), tasks)
	var some *store.InsertError
	require.ErrorAs(t, err, &some)
	require.Len(t, some.Refused, 1)
	require.ErrorIs(t, some.Refused[1], store.ErrHeld)
}

func TestAPlanWhoseInsertMetAConflictIsNotStored(t *testing.T) {
	a := newAnswered(t)
	require.NoError(t, a.Ready(t.Context()))
	require.NoError(t, a.ReadClock(t.Context()))
	a.rewrite(nil, func(command string, answer bson.D) bson.D {
		if command == "insert" {
			return refuseEach(112)(command, answer)
		}
		return answer
	})
	existed, held, err := a.Plans.Insert(t.Context(), []*repeat.Plan{{ID: "-/a"}, {ID: "-/b"}})
	require.NoError(t, err)
	require.Empty(t, existed)
	require.Equal(t, []int{0}, held)
}

// What is decided about an end, and what is kept of it, stays. So must the end.
func TestWhatIsFinalIsReadWhereAFailoverCannotUndoIt(t *testing.T) {
	var local, majority atomic.Int64
	s, _ := openAs(t, options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName != "find" && e.CommandName != "aggregate" {
				return
			}
			if level, _ := e.Command.Lookup("readConcern", "level").StringValueOK(); level == "majority" {
				majority.Add(1)
			} else {
				local.Add(1)
			}
		},
	}))
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	now := s.Clock.Now()
	task := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "k"}, now)
	task, no := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: "w", ExecID: "e"}, lifecycle.ResolveOptions(), now)
	require.Empty(t, no)
	task, err := lifecycle.Finish(task, "e", lifecycle.Success(bson.RawValue{}), lifecycle.ResolveOptions(), now, 0)
	require.NoError(t, err)
	_, err = s.Tasks.Insert(t.Context(), []*model.Task{task})
	require.NoError(t, err)
	kind := lifecycle.OutcomePlan
	for _, c := range []struct {
		name  string
		local int64 // reads that are looked at again, or only begin something
		read  func() error
	}{
		{"a decision without an answer", 0, func() error {
			applied, err := s.Plans.Applied(t.Context(), []store.Decision[*repeat.Plan]{{Before: &repeat.Plan{ID: "p", Rev: 1}, After: &repeat.Plan{ID: "p", Rev: 2}}})
			require.Equal(t, []bool{false}, applied)
			return err
		}},
		{"documents that know of an end", 0, func() error {
			_, err := s.Flows.ByIDs(t.Context(), []string{"f"})
			return err
		}},
		{"the ends that a look finds", 0, func() error {
			return s.Ask(t.Context(), "looking", s.Tasks.OutboxQuestions(kind, now, now, 10, func(*store.OutboxLife, bool) {})...)
		}},
		{"the ends that a sweep finds", 0, func() error {
			_, _, err := s.Tasks.Outboxes(t.Context(), []string{kind}, now, now, 10)
			return err
		}},
		{"the ends of some tasks", 0, func() error {
			_, err := s.Tasks.OutboxesOf(t.Context(), []string{task.ID}, kind)
			return err
		}},
		{"the result that somebody awaits", 0, func() error {
			_, err := s.Tasks.Durable(t.Context(), []string{task.ID})
			return err
		}},
		{"a life of the history", 1, func() error {
			_, err := s.History.Life(t.Context(), task.ID, 1)
			require.ErrorIs(t, err, store.ErrNotFound)
			return nil
		}},
		{"a life before the next one begins", 2, func() error {
			_, _, err := s.Tasks.Change(t.Context(), task.ID, func(task *model.Task) (*model.Task, error) {
				return lifecycle.SendAgain(task, lifecycle.Draft{Type: "t", Key: "k"}, model.RestartSucceeded, s.Clock.Now())
			})
			return err
		}},
	} {
		local.Store(0)
		majority.Store(0)
		require.NoError(t, c.read(), c.name)
		require.Equal(t, c.local, local.Load(), c.name)
		require.Positive(t, majority.Load(), c.name)
	}
}
