package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
)

// A transaction holds 300 of 320 executions, so no part of the first batch is answered. A few calls find the other 20
// all the same: the batch is divided further, and what nobody has tried alone goes first. A slow machine may need more
// than one try.
func TestAFewCallsFindTheFewThatNobodyHolds(t *testing.T) {
	for try := 1; callsUntilTheFreeOnesCount(newStepping(t)) > 8; try++ {
		require.Less(t, try, 20, "the free ones wait for the others")
	}
}

// callsUntilTheFreeOnesCount pings until the 20 executions that nobody holds have their leases extended. It returns
// the number of calls; nine are too many.
func callsUntilTheFreeOnesCount(s *stepping) (calls int) {
	s.Helper()
	pings, free := make([]store.Ping, 320), map[string]bool{}
	var held []string
	for i := range pings {
		task := s.held(fmt.Sprint(i), "w")
		pings[i] = store.Ping{ID: task.ID, ExecID: "w", Until: s.now.Add(time.Hour)}
		if i%16 == 0 {
			free[task.ID] = true
		} else {
			held = append(held, task.ID)
		}
	}
	defer s.hold("tasks", held...)()
	for calls < 9 {
		calls++
		_, err := s.Tasks.Pings(s.Context(), pings, time.Second)
		require.NoError(s, err)
		counted := 0
		for _, p := range pings {
			require.True(s, p.Missed || free[p.ID])
			if !p.Missed {
				counted++
			}
		}
		if counted == len(free) {
			break
		}
	}
	return calls
}
