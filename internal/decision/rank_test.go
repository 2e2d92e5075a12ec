package decision

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/tickplan"
)

// ranked is the rank of an engine among some that all seem to be there.
func ranked(place, of int) *rank {
	peers := make([]peer, of)
	for i := range peers {
		peers[i].id = fmt.Sprint(i)
	}
	k := new(rank)
	k.become(fmt.Sprint(place), peers)
	return k
}

func TestEngineTurnsGoRoundAndNeverMeet(t *testing.T) {
	for of := 1; of <= 5; of++ {
		for late := time.Duration(0); late < 20*time.Second; late += 50 * time.Millisecond {
			mine := 0
			for place := range of {
				if ranked(place, of).turn("rule", late) {
					mine++
				}
			}
			require.Equal(t, 1, mine, "of %d engines, %v late", of, late)
		}
		for place := range of {
			reached := false
			for late := time.Duration(0); late < tickplan.MissedAfter; late += 50 * time.Millisecond {
				reached = reached || ranked(place, of).turn("rule", late)
			}
			require.True(t, reached, "engine %d of %d takes over before the tick counts as missed", place, of)
		}
	}
}

// An engine that waits for another's turn to end looks when it does, and not before.
func TestATurnEndsWhenTheNextOneBegins(t *testing.T) {
	holder := func(of int, late time.Duration) int {
		for place := range of {
			if ranked(place, of).turn("rule", late) {
				return place
			}
		}
		return -1
	}
	for late := time.Duration(0); late < 20*time.Second; late += 7 * time.Millisecond {
		if late < backlog && late+turnEnds(late) > backlog {
			continue // turns become longer in between
		}
		now := holder(3, late)
		require.Equal(t, now, holder(3, late+turnEnds(late)-1), late)
		require.NotEqual(t, now, holder(3, late+turnEnds(late)), late)
	}
}
