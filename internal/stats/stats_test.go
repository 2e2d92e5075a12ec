package stats

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/census"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// A type may be named other, too.
func TestTheRowOfOtherTypesIsNoType(t *testing.T) {
	c := &store.Census{}
	for i := range measure.Most {
		c.Types = append(c.Types, store.TypeCensus{Type: fmt.Sprint("t", i)})
	}
	c.Types[7].Type = measure.Other
	c.Types = append(c.Types, store.TypeCensus{Type: measure.Other})
	for i, q := range queueOf(c, "").Types {
		require.Equal(t, i == measure.Most, q.Others, i)
	}
	c.Types = c.Types[:measure.Most]
	for _, q := range queueOf(c, measure.Other).Types {
		require.False(t, q.Others)
	}
}

// An index finds what ended by what is archived at the same time: tasks of another retention lie among them.
func TestAWindowThatWasNotReadToItsEndIsNotComplete(t *testing.T) {
	s, err := store.Open(store.Config{Database: testdb.New(t)})
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	now := s.Clock.Now()
	keep := lifecycle.DefaultRetention
	ended := func(id string, finished time.Duration, archive time.Duration) *model.Task {
		return &model.Task{ID: "-/mail/" + id, Type: "mail", Key: id, Status: model.StatusSuccess, FinishedAt: now.Add(-finished), ArchiveAt: now.Add(archive)}
	}
	tasks := []*model.Task{ended("behind", 30*time.Minute, keep-30*time.Minute)}
	for i := range mostEnded {
		tasks = append(tasks, ended(fmt.Sprint(i), 2*time.Hour, keep-10*time.Minute))
	}
	for part := range slices.Chunk(tasks, 1000) {
		_, err = s.Tasks.Insert(t.Context(), part)
		require.NoError(t, err)
	}
	got, err := Of(t.Context(), s, census.New(s), Query{Window: time.Hour})
	require.NoError(t, err)
	require.Zero(t, got.Ended.Count)
	require.False(t, got.Ended.Complete)
	require.Equal(t, stamp(now.Add(-10*time.Minute)), got.Ended.From)
}

func TestQuantilesAndRatesOfWhatHasEnded(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	tasks := map[string]*model.Task{}
	for i := range 100 {
		claimed := now.Add(-time.Minute)
		tasks[string(rune('a'+i))] = &model.Task{
			Type: "mail", Tenant: "acme", Status: model.StatusSuccess, StartTime: claimed.Add(-time.Second), FinishedAt: now.Add(-time.Second),
			WorkerStates: []model.WorkerState{{ClaimedAt: claimed, SuccessTime: claimed.Add(time.Duration(i) * time.Millisecond)}},
		}
	}
	tasks["old"] = &model.Task{Type: "mail", Tenant: "acme", Status: model.StatusFailure, FinishedAt: now.Add(-time.Hour)}
	tasks["other"] = &model.Task{Type: "mail", Status: model.StatusFailure, FinishedAt: now.Add(-time.Second)}
	got := summary(tasks, Query{Tenant: "acme"}, now.Add(-50*time.Second), now, true)
	require.EqualValues(t, 100, got.Count)
	require.InDelta(t, 2, got.PerSecond, 0.001)
	require.Equal(t, TypeEnded{Count: 100, Statuses: map[model.Status]int64{model.StatusSuccess: 100}, Late: Spread{1000, 1000, 1000}, Took: Spread{49, 94, 99}}, got.Types["mail"])
	require.EqualValues(t, 1, summary(tasks, Query{Tenant: model.NoTenant}, now.Add(-time.Minute), now, true).Count)
	require.Equal(t, []time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour}, retentions([]*model.TaskType{{}, {Options: model.Options{Retention: time.Hour}}, {Options: model.Options{Retention: time.Hour}}}))
}

// A type beyond the first hundred has no number of its own: nobody may take that for none.
func TestATypeThatIsNotCountedByNameIsUncounted(t *testing.T) {
	c := &store.Census{Types: []store.TypeCensus{{Type: "mail", Running: 2}}}
	require.Empty(t, queueOf(c, "rare").Types, "all types are counted")
	for i := range measure.Most {
		c.Types = append(c.Types, store.TypeCensus{Type: fmt.Sprint("t", i)})
	}
	c.Types[measure.Most].Type = measure.Other
	for _, typ := range []string{"rare", measure.Other} {
		require.Equal(t, []TypeQueue{{Type: typ, Uncounted: []string{store.CountDue, store.CountDelayed, store.CountRunning}}}, queueOf(c, typ).Types)
	}
	require.Equal(t, []TypeQueue{{Type: "mail", Running: 2}}, queueOf(c, "mail").Types)
}
