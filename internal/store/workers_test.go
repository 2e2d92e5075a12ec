package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestAliveAreThoseHeardOfLatelyThatServeATypeInTheOrderOfTheirIDs(t *testing.T) {
	db := testdb.New(t)
	s, err := store.Open(store.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	none, err := s.Workers.Alive(t.Context(), []string{"a"})
	require.NoError(t, err)
	require.Empty(t, none)
	for id, types := range map[string][]string{"w3": {"a"}, "w1": {"a", "b"}, "w2": {"b"}, "w4": {"c"}, "w0": {"a"}} {
		require.NoError(t, s.Workers.Heartbeat(t.Context(), store.Worker{ID: id, Types: types}))
	}
	_, err = db.Collection("workers").UpdateByID(t.Context(), "w0",
		bson.D{{Key: "$set", Value: bson.D{{Key: "heartbeat_at", Value: time.Now().Add(-4 * store.HeartbeatInterval)}}}})
	require.NoError(t, err)
	for _, c := range []struct{ types, want []string }{
		{[]string{"a"}, []string{"w1", "w3"}},
		{[]string{"b", "a"}, []string{"w1", "w2", "w3"}},
		{[]string{"c"}, []string{"w4"}},
	} {
		ids, err := s.Workers.Alive(t.Context(), c.types)
		require.NoError(t, err)
		require.Equal(t, c.want, ids, fmt.Sprint(c.types))
	}
}

func TestOnlyALiveWorkerThatIsKnownIsAskedToDrain(t *testing.T) {
	db := testdb.New(t)
	s, err := store.Open(store.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	w := store.Worker{ID: "w", Types: []string{"a"}}
	heard, err := s.Workers.Beat(t.Context(), w, true)
	require.NoError(t, err)
	require.Nil(t, heard.Drain)
	now := s.Clock.Now()

	_, err = s.Workers.AskToDrain(t.Context(), "nobody", store.Drain{}, now)
	require.ErrorIs(t, err, store.ErrNoWorker)
	_, err = s.Workers.Undrain(t.Context(), "nobody", now)
	require.ErrorIs(t, err, store.ErrNoWorker)
	_, err = s.Workers.AskToDrain(t.Context(), "w", store.Drain{}, now.Add(time.Hour))
	var refused *store.WorkerRefusedError
	require.ErrorAs(t, err, &refused)
	require.Contains(t, err.Error(), "is dead: its last heartbeat was at ")

	doc, err := s.Workers.AskToDrain(t.Context(), "w", store.Drain{Stop: true, Note: "a", By: "ann"}, now)
	require.NoError(t, err)
	require.False(t, doc.Draining)
	doc, err = s.Workers.AskToDrain(t.Context(), "w", store.Drain{Note: "b", By: "bob"}, now)
	require.NoError(t, err)
	require.False(t, doc.Drain.Stop, "the later request counts")
	heard, err = s.Workers.Beat(t.Context(), w, false)
	require.NoError(t, err)
	require.Equal(t, &store.Drain{Note: "b", By: "bob", At: heard.Drain.At}, heard.Drain)
	require.WithinDuration(t, now, heard.Drain.At, time.Minute)
	w.Draining = true
	_, err = s.Workers.Beat(t.Context(), w, false)
	require.NoError(t, err)
	doc, err = s.Workers.Undrain(t.Context(), "w", now)
	require.NoError(t, err)
	require.True(t, doc.Draining, "it has not heard yet")
	w.Draining = false
	heard, err = s.Workers.Beat(t.Context(), w, false)
	require.NoError(t, err)
	require.Nil(t, heard.Drain)
	doc, err = s.Workers.Get(t.Context(), "w")
	require.NoError(t, err)
	require.False(t, doc.Draining)
}

// wrong is a machine's clock that is wrong.
type wrong struct {
	clock.Clock
	by time.Duration
}

func (w wrong) Now() time.Time { return w.Clock.Now().Add(w.by) }

func TestAWorkerSaysByHowMuchItsClockIsWrong(t *testing.T) {
	db := testdb.New(t)
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		s, err := store.Open(store.Config{Database: db, Clock: wrong{clock.System(), by}})
		require.NoError(t, err)
		require.NoError(t, s.Ready(t.Context()))
		id := by.String()
		for beat := range 2 {
			require.NoError(t, s.Workers.Heartbeat(t.Context(), store.Worker{ID: id, Types: []string{"a"}}))
			w, err := s.Workers.Get(t.Context(), id)
			require.NoError(t, err)
			if beat == 0 {
				require.Nil(t, w.ClockError, "not known yet")
				continue
			}
			require.InDelta(t, by.Milliseconds(), *w.ClockError, float64(testdb.Patience.Milliseconds()))
		}
	}
}

// A process that is replaced may stop after its successor of the same id has started.
func TestAProcessRemovesOnlyItsOwnDocument(t *testing.T) {
	s, err := store.Open(store.Config{Database: testdb.New(t)})
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	old, successor := store.Worker{ID: "w", Host: "h", PID: 7}, store.Worker{ID: "w", Host: "h", PID: 8}
	elsewhere := store.Worker{ID: "w", Host: "other", PID: 8}
	for _, w := range []store.Worker{old, successor} {
		_, err := s.Workers.Beat(t.Context(), w, true)
		require.NoError(t, err)
	}
	for _, other := range []store.Worker{old, elsewhere} {
		require.NoError(t, s.Workers.Remove(t.Context(), other))
		w, err := s.Workers.Get(t.Context(), "w")
		require.NoError(t, err)
		require.NotNil(t, w, "the successor lives")
	}
	require.NoError(t, s.Workers.Remove(t.Context(), successor))
	w, err := s.Workers.Get(t.Context(), "w")
	require.NoError(t, err)
	require.Nil(t, w)
}

// The document of a process that was killed is still there when its successor starts.
func TestAProcessThatStartsUnderAnOldIDSaysWhenItStarted(t *testing.T) {
	db := testdb.New(t)
	s, err := store.Open(store.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	_, err = s.Workers.Beat(t.Context(), store.Worker{ID: "w", PID: 7}, true)
	require.NoError(t, err)
	_, err = db.Collection("workers").UpdateByID(t.Context(), "w",
		bson.D{{Key: "$set", Value: bson.D{{Key: "started_at", Value: time.Unix(1, 0)}}}})
	require.NoError(t, err)
	for _, first := range []bool{true, false} {
		_, err = s.Workers.Beat(t.Context(), store.Worker{ID: "w", PID: 8}, first)
		require.NoError(t, err)
	}
	w, err := s.Workers.Get(t.Context(), "w")
	require.NoError(t, err)
	require.True(t, w.StartedAt.After(time.Unix(1, 0)), "the start of this process, not of its predecessor")
}

func TestAWorkerThatPullsIsListedUnlessAnotherOfItsIDLives(t *testing.T) {
	db := testdb.New(t)
	s, err := store.Open(store.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	silent := func(id string) {
		_, err := db.Collection("workers").UpdateByID(t.Context(), id, bson.D{{Key: "$set", Value: bson.D{{Key: "heartbeat_at", Value: time.Now().Add(-time.Hour)}}}})
		require.NoError(t, err)
	}
	get := func(id string) *store.Worker {
		w, err := s.Workers.Get(t.Context(), id)
		require.NoError(t, err)
		return w
	}
	serving := func(typ string) (ids []string) {
		all, err := s.Workers.Serving(t.Context(), typ, s.Clock.Now())
		require.NoError(t, err)
		for _, w := range all {
			ids = append(ids, w.ID)
		}
		return ids
	}
	pulls := func(id string, types []string, only *lifecycle.Conditions) {
		t.Helper()
		require.NoError(t, s.Workers.Pulls(t.Context(), id, types, only))
	}
	acme, mails := &lifecycle.Conditions{Tenants: []string{"acme"}}, &lifecycle.Conditions{Categories: []string{"mail"}}
	require.NoError(t, s.Workers.StillPulls(t.Context(), "a"))
	require.Nil(t, get("a"), "nobody knows what it fetches")
	pulls("a", []string{"t"}, acme)
	pulls("b", nil, mails)
	require.NoError(t, s.Workers.Heartbeat(t.Context(), store.Worker{ID: "c", Types: []string{"t"}, PID: 7, Stream: "watching"}))
	pulls("c", []string{"other"}, nil)
	require.Equal(t, []string{"t"}, get("c").Types, "a consumer lives")
	require.Equal(t, acme, get("a").Only)
	require.Equal(t, []string{"a", "b", "c"}, serving("t"))
	require.Equal(t, []string{"b"}, serving("u"), "all types of its categories")
	alive, err := s.Workers.Alive(t.Context(), []string{"t"})
	require.NoError(t, err)
	require.Equal(t, []string{"c"}, alive, "those that pull share no queue by rank")
	_, err = s.Workers.AskToDrain(t.Context(), "a", store.Drain{}, s.Clock.Now())
	var refused *store.WorkerRefusedError
	require.ErrorAs(t, err, &refused)

	silent("a")
	silent("c")
	require.Equal(t, []string{"b"}, serving("t"))
	require.NoError(t, s.Workers.StillPulls(t.Context(), "a"))
	require.NoError(t, s.Workers.StillPulls(t.Context(), "c"))
	require.Equal(t, []string{"a", "b"}, serving("t"), "the consumer is dead")
	pulls("c", []string{"u"}, nil)
	require.Equal(t, []string{"b", "c"}, serving("u"))
	require.Zero(t, get("c").PID)
	pulls("a", []string{"t"}, nil)
	require.Nil(t, get("a").Only)
	require.NoError(t, s.Workers.Heartbeat(t.Context(), store.Worker{ID: "c", Types: []string{"t"}, Stream: "polling"}))
	require.Equal(t, []string{"b"}, serving("u"), "a consumer has come")
}

func TestAWorkerTakesTasksOfItsTypesThatMeetItsConditionsUnlessItDrains(t *testing.T) {
	task := &model.Task{Type: "t", Tenant: "acme", Category: "mail"}
	for _, c := range []struct {
		worker store.Worker
		takes  bool
	}{
		{store.Worker{Types: []string{"t"}}, true},
		{store.Worker{Types: []string{"u"}}, false},
		{store.Worker{Types: []string{"t"}, Draining: true}, false},
		{store.Worker{Types: []string{"t"}, Only: &lifecycle.Conditions{Tenants: []string{"acme"}}}, true},
		{store.Worker{Types: []string{"t"}, Only: &lifecycle.Conditions{Tenants: []string{"beta"}}}, false},
		{store.Worker{}, false},
		{store.Worker{Stream: store.Pulling}, true},
		{store.Worker{Stream: store.Pulling, Only: &lifecycle.Conditions{Categories: []string{"sms"}}}, false},
	} {
		require.Equal(t, c.takes, c.worker.Takes(task), "%+v", c.worker)
	}
	require.False(t, (&store.Worker{Stream: store.Pulling}).Takes(&model.Task{Type: "mscheduler.http"}))
}

func TestAWorkerTakesNoTaskWhoseWorkerFilterExcludesIt(t *testing.T) {
	task := &model.Task{Type: "t", Options: model.Options{SpecificWorkerIDs: []string{"a", "b"}}}
	require.True(t, (&store.Worker{ID: "b", Types: []string{"t"}}).Takes(task))
	require.False(t, (&store.Worker{ID: "c", Types: []string{"t"}}).Takes(task))
}
