package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// hold touches documents in a transaction that stays open until release is called.
func (s *stepping) hold(collection string, ids ...string) (release func()) {
	s.Helper()
	session, err := s.db.Client().StartSession()
	require.NoError(s, err)
	require.NoError(s, session.StartTransaction())
	res, err := s.db.Collection(collection).UpdateMany(mongo.NewSessionContext(s.Context(), session),
		bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, bson.D{{Key: "$set", Value: bson.D{{Key: "remark", Value: "mine"}}}})
	require.NoError(s, err)
	require.EqualValues(s, len(ids), res.MatchedCount)
	release = func() {
		_ = session.AbortTransaction(context.Background())
		session.EndSession(context.Background())
	}
	s.Cleanup(release)
	return release
}

// While ten documents are held, a few calls tell which: what was answered counts at once,
// and no call is an error, which would cost all others their leases.
func TestPingsCountForAllButTheHeld(t *testing.T) {
	s := newStepping(t)
	const n = 400
	tasks := make([]*model.Task, n)
	for i := range tasks {
		tasks[i] = s.held(fmt.Sprint(i), "w")
	}
	var ids []string
	held := map[string]bool{}
	for i := 7; i < n; i += 40 {
		ids = append(ids, tasks[i].ID)
		held[tasks[i].ID] = true
	}
	release := s.hold("tasks", ids...)
	for round := 1; ; round++ {
		require.Less(t, round, 20, "it goes on being slow")
		pings := make([]store.Ping, n)
		for i, task := range tasks {
			pings[i] = store.Ping{ID: task.ID, ExecID: "w", Until: s.now.Add(time.Duration(round) * time.Minute)}
		}
		lost, err := s.Tasks.Pings(t.Context(), pings, 250*time.Millisecond)
		require.NoError(t, err)
		require.Empty(t, lost)
		missed := 0
		for _, p := range pings {
			require.True(t, p.Missed || !held[p.ID])
			if p.Missed {
				missed++
			}
		}
		if missed == len(held) {
			break
		}
	}
	for _, id := range ids {
		require.True(t, s.Suspected(id))
	}
	release()
	alone := []store.Ping{{ID: ids[0], ExecID: "w", Until: s.now.Add(time.Hour)}}
	_, err := s.Tasks.Pings(t.Context(), alone, time.Second)
	require.NoError(t, err)
	require.False(t, alone[0].Missed)
	require.False(t, s.Suspected(ids[0]), "it is free again")
}

// On a slow server the limits of commands are longer than the time of a short call. The call must find
// the held document all the same, or all leases in it are lost as long as the document is held.
func TestAPingOnASlowServerFindsTheHeldDocumentBeforeItsCallEnds(t *testing.T) {
	s := newStepping(t)
	pings := make([]store.Ping, 20)
	for i := range pings {
		pings[i] = store.Ping{ID: s.held(fmt.Sprint(i), "w").ID, ExecID: "w", Until: s.now.Add(time.Hour)}
	}
	defer s.hold("tasks", pings[7].ID)()
	for round := 1; ; round++ { // a slow machine may need more than one
		s.BelieveSlow()
		call, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := s.Tasks.Pings(call, pings, 500*time.Millisecond)
		cancel()
		missed := 0
		for _, p := range pings {
			if p.Missed {
				missed++
			}
		}
		if err == nil && missed == 1 {
			break
		}
		require.Less(t, round, 20, "%d missed: %v", missed, err)
	}
	require.True(t, pings[7].Missed)
}

func TestATakeoverOfAHeldTaskIsNoOutage(t *testing.T) {
	s := newStepping(t)
	task := s.held("k", "w")
	later := s.now.Add(time.Hour)
	eff := lifecycle.ResolveOptions(task.Options)
	expired := lifecycle.Expire(task, eff, later, 0)
	require.NotNil(t, expired)
	w := store.Write{Before: task, After: expired, Lapsed: "w", At: later}
	release := s.hold("tasks", task.ID)
	for range 3 { // the first finds out, the second is its probe, the third is not tried
		_, err := s.Tasks.TakeOver(t.Context(), w)
		require.ErrorIs(t, err, store.ErrHeld)
		require.False(t, store.Outage(err))
		require.Equal(t, store.Retry, store.Classify(err))
	}
	require.True(t, s.ProbeLater(task.ID))
	release()
	written, err := s.Tasks.Writes(t.Context(), []store.Write{w}, store.Patience)
	require.NoError(t, err)
	require.True(t, written[0].Applied, "alone it goes out at once")
}

// A command that ran out of time has stored some of its tasks. They are told from those
// that were there.
func TestAnInsertNamesTheKeyThatATransactionHolds(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newStepping(t)
	fresh := func(i int, at time.Time) *model.Task {
		return lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: fmt.Sprintf("k%03d", i)}, at)
	}
	_, err := s.Tasks.Insert(t.Context(), []*model.Task{fresh(5, s.now), fresh(55, s.now)})
	require.NoError(t, err)
	session, err := s.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, session.StartTransaction())
	_, err = s.Tasks.Insert(mongo.NewSessionContext(t.Context(), session), []*model.Task{fresh(30, s.now)})
	require.NoError(t, err)

	var tasks []*model.Task
	for i := range 60 {
		tasks = append(tasks, fresh(i, s.now.Add(time.Second)))
	}
	tasks = append(tasks, fresh(0, s.now.Add(time.Second))) // the same key again
	s.BelieveSlow()                                         // a short time limit may find the machine slow
	exists, err := s.Tasks.Insert(t.Context(), tasks)
	var some *store.InsertError
	require.ErrorAs(t, err, &some)
	require.Len(t, some.Refused, 1)
	require.ErrorIs(t, some.Refused[30], store.ErrHeld)
	for i := range tasks {
		require.Equal(t, i == 5 || i == 55 || i == 60, exists[i], "task %d", i)
	}
	require.NoError(t, session.AbortTransaction(t.Context()))
	exists, err = s.Tasks.Insert(t.Context(), tasks[30:31])
	require.NoError(t, err)
	require.False(t, exists[0])
}

// The answer of the first call was that the key is held, and the task was stored after it.
func TestAnInsertThatIsRepeatedKnowsItsOwnTask(t *testing.T) {
	s := newStepping(t)
	mine := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "k"}, s.now)
	_, err := s.Tasks.Insert(t.Context(), []*model.Task{mine})
	require.NoError(t, err)
	exists, err := s.Tasks.Insert(t.Context(), []*model.Task{mine})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, exists)
	exists, err = s.Tasks.InsertAgain(t.Context(), []*model.Task{mine})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, exists)
	theirs := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "k"}, s.now.Add(time.Millisecond))
	exists, err = s.Tasks.InsertAgain(t.Context(), []*model.Task{theirs})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, exists)
}

func TestOutcomesAreRemovedBesideAHeldLife(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newStepping(t)
	var carried []store.Carried
	var ids []string
	for i := range 20 {
		id := model.TaskID("", "t", fmt.Sprint(i))
		entries := []model.OutboxEntry{{Kind: "a", Rev: 2}, {Kind: "b", Rev: 2}}[:1+i%2]
		_, err := s.db.Collection("tasks").InsertOne(t.Context(), bson.D{
			{Key: "_id", Value: id}, {Key: "type", Value: "t"}, {Key: "key", Value: fmt.Sprint(i)}, {Key: "generation", Value: int64(1)}, {Key: "rev", Value: int64(2)},
			{Key: "status", Value: "Success"}, {Key: "outbox", Value: entries}, {Key: "outbox_at", Value: s.now},
		})
		require.NoError(t, err)
		ids = append(ids, id)
		for _, e := range entries {
			carried = append(carried, store.Carried{Life: store.OutboxLife{Task: &model.Task{ID: id, Generation: 1}}, Entry: e})
		}
	}
	marked := func() (left []string) {
		cur, err := s.db.Collection("tasks").Find(t.Context(), bson.D{{Key: "outbox_at", Value: bson.D{{Key: "$exists", Value: true}}}, {Key: "type", Value: "t"}})
		require.NoError(t, err)
		var docs []struct {
			ID string `bson:"_id"`
		}
		require.NoError(t, cur.All(t.Context(), &docs))
		for _, d := range docs {
			left = append(left, d.ID)
		}
		return left
	}
	release := s.hold("tasks", ids[3])
	s.BelieveSlow() // a short time limit may find the machine slow
	require.ErrorIs(t, s.Tasks.RemoveOutbox(t.Context(), carried), store.ErrHeld)
	require.Equal(t, []string{ids[3]}, marked())
	release()
	require.NoError(t, s.Tasks.RemoveOutbox(t.Context(), carried[4:6]), "both entries of the one that was held")
	require.Empty(t, marked())
}

// A command that ran out of time has waited for no majority: a failover may undo what it did.
func TestAPingThatMayBeUndoneIsMissed(t *testing.T) {
	s := newStepping(t)
	pings := make([]store.Ping, 3)
	for i := range pings {
		pings[i] = store.Ping{ID: s.held(fmt.Sprint(i), "w").ID, ExecID: "w", Until: s.now.Add(time.Minute)}
	}
	s.hold("tasks", pings[1].ID)
	lost, err := s.Tasks.Pings(t.Context(), pings, 0)
	require.NoError(t, err)
	require.Empty(t, lost)
	for _, p := range pings {
		require.True(t, p.Missed, p.ID)
	}
}

// openHearing is a store that is ready. levels gets the read concern of each search for ids.
func openHearing(t *testing.T) (s *store.Store, direct *mongo.Database, levels *[]string) {
	t.Helper()
	levels = new([]string)
	s, direct = openAs(t, options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if _, ok := e.Command.Lookup("filter", "_id", "$in").ArrayOK(); ok && e.CommandName == "find" {
				level, _ := e.Command.Lookup("readConcern", "level").StringValueOK()
				*levels = append(*levels, level)
			}
		},
	}))
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	return s, direct, levels
}

func TestWhatIsThereOfAHeldWriteIsReadFromAMajority(t *testing.T) {
	s, direct, levels := openHearing(t)
	tasks, writes := make([]*model.Task, 3), make([]store.Write, 3)
	for i := range tasks {
		tasks[i] = lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: fmt.Sprint(i)}, s.Clock.Now())
		after, no := lifecycle.Claim(tasks[i], lifecycle.Claimant{WorkerID: "w", ExecID: "e"}, lifecycle.ResolveOptions(), s.Clock.Now())
		require.Empty(t, no)
		writes[i] = store.Write{Before: tasks[i], After: after}
	}
	_, err := s.Tasks.Insert(t.Context(), tasks)
	require.NoError(t, err)
	written, err := s.Tasks.Writes(t.Context(), writes, 0)
	require.NoError(t, err)
	for i, w := range written {
		require.True(t, w.Applied)
		later := *writes[i].After
		later.Rev++
		writes[i] = store.Write{Before: writes[i].After, After: &later}
	}
	require.Empty(t, *levels, "nothing is unsure")
	(&stepping{T: t, db: direct}).hold("tasks", tasks[1].ID)
	written, err = s.Tasks.Writes(t.Context(), writes, 0)
	require.NoError(t, err)
	require.True(t, written[1].Held)
	steps := make([]store.StepWrite, len(tasks))
	for i, task := range tasks {
		steps[i] = store.StepWrite{ID: task.ID, ExecID: "e", Step: model.Step{Name: "s"}}
	}
	saved, err := s.Tasks.SaveSteps(t.Context(), steps, 0)
	require.NoError(t, err)
	require.True(t, saved[1].Missed)
	require.Equal(t, []string{"majority", "majority"}, *levels)
}

func TestAnInsertThatMayBeUndoneIsNotTakenForDone(t *testing.T) {
	s, direct, levels := openHearing(t)
	session, err := direct.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, session.StartTransaction())
	task := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "k"}, s.Clock.Now())
	_, err = direct.Collection("tasks").InsertOne(mongo.NewSessionContext(t.Context(), session), bson.D{{Key: "_id", Value: task.ID}})
	require.NoError(t, err)
	_, err = s.Tasks.Insert(t.Context(), []*model.Task{task})
	var some *store.InsertError
	require.ErrorAs(t, err, &some)
	require.Equal(t, []string{"majority"}, *levels)
	require.NoError(t, session.AbortTransaction(t.Context()))
}

func TestADeliveryOfAHeldLifeDelaysNoOthers(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newStepping(t)
	var lives []store.LifeOf
	for i := range 20 {
		lives = append(lives, store.LifeOf{TaskID: fmt.Sprint("t/", i), Generation: 1})
		_, err := s.db.Collection("task_history").InsertOne(t.Context(), bson.D{{Key: "_id", Value: fmt.Sprintf("t/%d@1", i)}, {Key: "status", Value: "Completed"}})
		require.NoError(t, err)
	}
	waiting := func() int64 {
		n, err := s.db.Collection("task_history").CountDocuments(t.Context(), bson.D{{Key: "status", Value: "Completed"}})
		require.NoError(t, err)
		return n
	}
	release := s.hold("task_history", "t/3@1")
	s.BelieveSlow() // a short time limit may find the machine slow
	held, err := s.History.DeliveredLives(t.Context(), lives)
	require.NoError(t, err)
	require.Equal(t, []int{3}, held)
	require.EqualValues(t, 1, waiting())
	release()
	held, err = s.History.DeliveredLives(t.Context(), lives[3:4])
	require.NoError(t, err)
	require.Empty(t, held)
	require.Zero(t, waiting())
}

func TestWhatAHeldDocumentPlannedStaysAlone(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newStepping(t)
	var plans []*repeat.Plan
	for i := range 20 {
		plans = append(plans, &repeat.Plan{ID: fmt.Sprint(i), Status: repeat.StatusRunning, Rev: 1, PlannedAt: s.now, Planned: []repeat.Planned{{ID: fmt.Sprint("p", i)}}})
	}
	_, _, err := s.Plans.Insert(t.Context(), plans)
	require.NoError(t, err)
	plans[5].Rev = 0 // somebody has decided since: its plans leave one by one
	release := s.hold("plans", "3")
	writes := make([]store.Decision[*repeat.Plan], len(plans))
	for i, p := range plans {
		after := *p
		after.Rev, after.Decision = p.Rev+1, "d"
		writes[i] = store.Decision[*repeat.Plan]{Before: p, After: &after}
	}
	left := func() (ids []string) {
		docs, _, err := s.Plans.Planned(t.Context(), s.now.Add(time.Hour), 0, 100)
		require.NoError(t, err)
		for _, d := range docs {
			ids = append(ids, d.ID)
		}
		return ids
	}
	s.BelieveSlow() // a short time limit may find the machine slow
	n, err := s.Plans.CarriedOut(t.Context(), plans)
	require.ErrorIs(t, err, store.ErrHeld)
	require.Equal(t, 1, n)
	require.Equal(t, []string{"3"}, left())
	s.BelieveSlow()
	applied, refused, err := s.Plans.Write(t.Context(), writes)
	require.NoError(t, err)
	require.Len(t, refused, 1)
	require.ErrorIs(t, refused[3], store.ErrHeld)
	for i, is := range applied {
		require.Equal(t, i != 3 && i != 5, is, "decision %d", i)
	}
	release()
	_, err = s.Plans.CarriedOut(t.Context(), plans[3:4])
	require.NoError(t, err)
	require.Empty(t, left())
}

// Parts of a batch that is divided keep their own guards.
func TestAHeldLifeTakesNoEntryFromTheOutboxOfAnother(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newStepping(t)
	var carried []store.Carried
	for i := range 40 {
		id := fmt.Sprint("t/", i)
		_, err := s.db.Collection("tasks").InsertOne(t.Context(), bson.D{
			{Key: "_id", Value: id}, {Key: "type", Value: "t"}, {Key: "generation", Value: int64(1)}, {Key: "rev", Value: int64(2)},
			{Key: "outbox", Value: []model.OutboxEntry{{Kind: "a", Rev: 2}}}, {Key: "outbox_at", Value: s.now},
		})
		require.NoError(t, err)
		e := model.OutboxEntry{Kind: "a", Rev: 2}
		if i%2 == 1 {
			e.Kind = "b" // it has left already
		}
		carried = append(carried, store.Carried{Life: store.OutboxLife{Task: &model.Task{ID: id, Generation: 1}}, Entry: e})
	}
	s.hold("tasks", "t/0")
	s.BelieveSlow() // a short time limit may find the machine slow
	require.ErrorIs(t, s.Tasks.RemoveOutbox(t.Context(), carried), store.ErrHeld)
	n, err := s.db.Collection("tasks").CountDocuments(t.Context(), bson.D{{Key: "outbox.kind", Value: "a"}})
	require.NoError(t, err)
	require.EqualValues(t, 21, n, "those of which only b was carried out, and the held one")
}

// Perhaps only the server is slow, so each try has more time than the one that failed.
func TestADecisionThatRanOutOfTimeHasTwiceTheTimeAtTheNextTry(t *testing.T) {
	var limits []int64
	s, direct := openAs(t, options.Client().ApplyURI(testdb.URI(t)).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "update" && e.Command.Lookup("update").StringValue() == "plans" {
				limits = append(limits, e.Command.Lookup("maxTimeMS").AsInt64())
			}
		},
	}))
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	plan := &repeat.Plan{ID: "p", Status: repeat.StatusRunning, Rev: 1}
	_, _, err := s.Plans.Insert(t.Context(), []*repeat.Plan{plan})
	require.NoError(t, err)
	after := *plan
	after.Rev, after.Decision = 2, "d"
	release := (&stepping{T: t, db: direct}).hold("plans", "p")
	limits = nil
	for range 3 {
		_, refused, err := s.Plans.Write(t.Context(), []store.Decision[*repeat.Plan]{{Before: plan, After: &after}})
		require.NoError(t, err)
		require.ErrorIs(t, refused[0], store.ErrHeld)
	}
	require.Len(t, limits, 3)
	require.GreaterOrEqual(t, limits[1], min(2*limits[0]-2, 5000))
	require.GreaterOrEqual(t, limits[2], min(2*limits[1]-2, 5000))
	release()
	limits = nil
	applied, _, err := s.Plans.Write(t.Context(), []store.Decision[*repeat.Plan]{{Before: plan, After: &after}})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, applied)

	// One that is large has time from the first try on.
	again := after
	again.Rev, again.Decision, again.Planned = 3, "e", []repeat.Planned{{ID: strings.Repeat("x", 500_000)}}
	limits = nil
	_, _, err = s.Plans.Write(t.Context(), []store.Decision[*repeat.Plan]{{Before: &after, After: &again}})
	require.NoError(t, err)
	require.GreaterOrEqual(t, limits[0], int64(390))
}

// A new life begins with a copy of the old one, which may be of the transaction that holds the task.
func TestANewLifeOfAHeldTaskDoesNotWaitForTheCopyOfTheOldOne(t *testing.T) {
	s := newStepping(t)
	task := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "k"}, s.now)
	_, err := s.Tasks.Insert(t.Context(), []*model.Task{task})
	require.NoError(t, err)
	again := func(task *model.Task) (*model.Task, error) {
		after := *task
		after.Generation, after.Rev = task.Generation+1, task.Rev+1
		return &after, nil
	}
	session, err := s.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, session.StartTransaction())
	_, _, err = s.Tasks.Change(mongo.NewSessionContext(t.Context(), session), task.ID, again)
	require.NoError(t, err)
	require.ErrorIs(t, s.Tasks.ChangeUnlessHeld(t.Context(), task.ID, again), store.ErrHeld)
	require.True(t, s.Suspected(task.ID))
	require.NoError(t, session.AbortTransaction(t.Context()))
	require.Eventually(t, func() bool { return s.Tasks.ChangeUnlessHeld(t.Context(), task.ID, again) == nil }, testdb.Patience, 10*time.Millisecond)
}
