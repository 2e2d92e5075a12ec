package bulk

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

func TestOfManyReasonsToLeaveTasksAloneTheLastAreCountedTogether(t *testing.T) {
	var c Counts
	for i := range 9 {
		c.skip(&model.RefusedError{Reason: fmt.Sprint("reason ", i)})
	}
	c.skip(&model.RefusedError{Reason: "reason 3"})
	c.skip(model.ErrNotFound)
	require.EqualValues(t, 11, c.Skipped)
	require.Equal(t, map[string]int64{otherReasons: 5, "reason 3": 2, "reason 0": 1, "reason 1": 1, "reason 2": 1, "reason 4": 1}, c.Reasons)
}

// passing is an error of the database that concerns no single task.
var passing = mongo.CommandError{Code: 189, Message: "the primary steps down"}

func TestTasksBehindOneThatFailedAreCountedWhenTheyAreDoneAgain(t *testing.T) {
	w := newWorld(t)
	const n, failing = 2*atOnce + 8, 5
	w.send("mail", n)
	var others sync.WaitGroup
	others.Add(n - 1)
	walk := Walk{
		Store: w.Store, Filter: store.Filter{Type: "mail"},
		Do: func(_ context.Context, life store.Place) error {
			if life.ID == fmt.Sprintf("-/mail/%05d", failing) {
				others.Wait()
				return passing
			}
			others.Done()
			return nil
		},
		Settled: func(_ context.Context, last store.Place, ahead bool) error {
			require.Equal(t, fmt.Sprintf("-/mail/%05d", failing-1), last.ID)
			require.True(t, ahead)
			return nil
		},
	}
	var counts Counts
	require.ErrorContains(t, walk.All(t.Context(), &counts), passing.Message)
	require.EqualValues(t, failing, counts.Changed)

	walk.Filter.AfterID = fmt.Sprintf("-/mail/%05d", failing-1)
	walk.Do = func(context.Context, store.Place) error { return nil }
	walk.Settled = func(_ context.Context, _ store.Place, ahead bool) error {
		require.False(t, ahead)
		return nil
	}
	require.NoError(t, walk.All(t.Context(), &counts))
	require.EqualValues(t, n, counts.Changed)
}

// A command that fails is not continued by another.
func TestAWalkWithoutPlacesCountsAllThatItHasChanged(t *testing.T) {
	w := newWorld(t)
	w.send("mail", 3)
	var others sync.WaitGroup
	others.Add(2)
	walk := Walk{Store: w.Store, Filter: store.Filter{Type: "mail"}, Do: func(_ context.Context, life store.Place) error {
		if life.ID == "-/mail/00000" {
			others.Wait()
			return passing
		}
		others.Done()
		return nil
	}}
	var counts Counts
	require.ErrorContains(t, walk.All(t.Context(), &counts), passing.Message)
	require.EqualValues(t, 2, counts.Changed)
}
