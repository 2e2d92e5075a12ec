package store_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// ruleStore is one on which no command runs out of its time: what a slow machine does not write in time counts as held.
func ruleStore(t *testing.T) *store.Store {
	t.Helper()
	st, err := store.Open(store.Config{Database: testdb.Patient(t)})
	require.NoError(t, err)
	require.NoError(t, st.Ready(t.Context()))
	return st
}

func storedRule(t *testing.T, st *store.Store, id string) *schedule.Rule {
	t.Helper()
	r, err := st.Rules.Get(t.Context(), id)
	require.NoError(t, err)
	return r
}

// decision is what some engine decided about the rule as it read it: one plan more.
func decision(before *schedule.Rule, plan string) store.RuleWrite {
	after := *before
	after.Rev++
	after.Decision = plan
	after.Planned = append(before.Planned[:len(before.Planned):len(before.Planned)], schedule.Planned{ID: plan, Cancel: []string{plan}})
	if after.PlannedAt.IsZero() {
		after.PlannedAt = time.UnixMilli(1000)
	}
	return store.RuleWrite{Before: before, After: &after}
}

func planIDs(r *schedule.Rule) (ids []string) {
	for _, p := range r.Planned {
		ids = append(ids, p.ID)
	}
	return ids
}

func TestWhatWasCarriedOutNeverComesBack(t *testing.T) {
	st := ruleStore(t)
	require.NoError(t, st.Rules.Insert(t.Context(), &schedule.Rule{ID: "r", Name: "r", Living: "-/r", Rev: 1, Task: &schedule.TaskTemplate{Type: "t"}}))
	first := decision(storedRule(t, st, "r"), "first")
	applied, _, err := st.Rules.Write(t.Context(), []store.RuleWrite{first})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, applied)

	late := storedRule(t, st, "r") // somebody reads what is planned, and stands still
	_, err = st.Rules.CarriedOut(t.Context(), []*schedule.Rule{first.After})
	require.NoError(t, err)
	require.Empty(t, storedRule(t, st, "r").Planned)
	require.Zero(t, storedRule(t, st, "r").PlannedAt, "the mark goes with the last entry")

	second := decision(late, "second")
	applied, _, err = st.Rules.Write(t.Context(), []store.RuleWrite{second})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, applied)
	require.Equal(t, []string{"second"}, planIDs(storedRule(t, st, "r")))
	require.NotZero(t, storedRule(t, st, "r").PlannedAt, "somebody looks for it")

	// A decision between reading and removing: only what was carried out goes.
	third := decision(storedRule(t, st, "r"), "third")
	applied, _, err = st.Rules.Write(t.Context(), []store.RuleWrite{third})
	require.NoError(t, err)
	require.Equal(t, []bool{true}, applied)
	_, err = st.Rules.CarriedOut(t.Context(), []*schedule.Rule{second.After})
	require.NoError(t, err)
	require.Equal(t, []string{"third"}, planIDs(storedRule(t, st, "r")))
	require.NotZero(t, storedRule(t, st, "r").PlannedAt)
	applied, _, err = st.Rules.Write(t.Context(), []store.RuleWrite{decision(late, "crossed")})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, applied)
	_, err = st.Rules.CarriedOut(t.Context(), []*schedule.Rule{third.After})
	require.NoError(t, err)
	require.Zero(t, storedRule(t, st, "r").PlannedAt)
}

// It may have been written although it was reported as held.
func TestADecisionThatIsWrittenAgainKeepsItsMark(t *testing.T) {
	st := ruleStore(t)
	w := store.RuleWrite{Before: &schedule.Rule{Decision: "first"}, After: &schedule.Rule{Decision: "first"}}
	st.Rules.Mark(w, "second")
	require.Equal(t, "second", w.After.Decision)
	st.Rules.Mark(w, "third")
	require.Equal(t, "second", w.After.Decision)
}

func TestOfTwoRecordsStoredAtOnceTheLaterDecisionsStays(t *testing.T) {
	st := ruleStore(t)
	for round := range 20 {
		status := []schedule.RunStatus{schedule.RunScheduled, schedule.RunSuccess}[round%2] // new records are stored in another way
		var byRev [2][]*schedule.Run
		for n := range 50 {
			for i := range byRev {
				byRev[i] = append(byRev[i], &schedule.Run{ID: fmt.Sprintf("r@%d.%d", round, n), RuleID: "r", Status: status, Rev: int64(i + 1)})
			}
		}
		var wg sync.WaitGroup
		for _, runs := range byRev {
			wg.Go(func() { requirePut(t, st.Runs.Put, runs) })
		}
		wg.Wait()
		for _, r := range byRev[0] {
			got, err := st.Runs.Get(t.Context(), r.ID)
			require.NoError(t, err)
			require.EqualValues(t, 2, got.Rev, "record %s", r.ID)
		}
	}
}
