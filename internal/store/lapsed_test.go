package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// More types than one query names, and tasks that lapsed at the same time.
func TestLooksAtLapsedLeasesThatGoOnFindEachOnce(t *testing.T) {
	s := newStepping(t)
	types := make([]string, store.MaxRanges+1)
	for i := range types {
		types[i] = fmt.Sprintf("t%03d", i)
	}
	var want []string
	for typ, ago := range map[string][]time.Duration{
		types[0]:            {5, 5, 5, 5, 5, 2, 1},
		types[1]:            {5, 4},
		types[len(types)-1]: {9, 8, 8, 8},
	} {
		for i, d := range ago {
			id := model.TaskID("", typ, fmt.Sprint(i))
			lapsed := s.now.Add(-d * time.Minute)
			_, err := s.db.Collection("tasks").InsertOne(t.Context(), map[string]any{"_id": id, "type": typ, "key": fmt.Sprint(i), "lapse_at": lapsed})
			require.NoError(t, err)
			want = append(want, id)
		}
	}
	var from store.LapsedFrom
	require.True(t, from.Begins())
	var got []string
	for {
		found, err := s.Tasks.Lapsed(t.Context(), types, &from, 2)
		require.NoError(t, err)
		if len(found) == 0 {
			break
		}
		for _, task := range found {
			got = append(got, task.ID)
			from.Leave(task)
		}
		require.LessOrEqual(t, len(got), len(want))
		require.False(t, from.Begins())
	}
	require.ElementsMatch(t, want, got)
}
