package decision

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// crew is some engines that share documents, each with its own view of the others. All look every
// 50 ms.
type crew struct {
	ranks []*rank
	dead  []bool
	last  bool // of those that decide at once, the last one is the quickest
	now   time.Time
	beats []time.Time
}

func newCrew(of int) *crew {
	c := &crew{dead: make([]bool, of), now: time.UnixMilli(1e12), beats: make([]time.Time, of)}
	for i := range of {
		c.ranks = append(c.ranks, new(rank))
		c.beats[i] = c.now
	}
	c.list()
	return c
}

// list has all that live read the list of engines.
func (c *crew) list() {
	for i, k := range c.ranks {
		peers := make([]peer, len(c.ranks))
		for n := range peers {
			peers[n] = peer{id: fmt.Sprint(n), beat: c.beats[n]}
		}
		if !c.dead[i] {
			k.become(fmt.Sprint(i), peers)
		}
	}
}

// decide has a document become due, and says after what time it was decided, and how many engines tried to.
func (c *crew) decide(id string) (late time.Duration, tried int) {
	const look = 50 * time.Millisecond
	due := c.now
	for decided := false; ; c.now = c.now.Add(look) {
		var takes []int
		for i, k := range c.ranks {
			if c.dead[i] {
				continue
			}
			k.begin()
			if !decided && k.found(id, due, c.now) {
				takes = append(takes, i)
			}
		}
		if c.last {
			slices.Reverse(takes)
		}
		for n, i := range takes {
			c.ranks[i].decided(id, n == 0)
		}
		for i, k := range c.ranks {
			if !c.dead[i] {
				k.end(true)
			}
		}
		if decided {
			return late, tried
		}
		decided, late, tried = len(takes) > 0, c.now.Sub(due), len(takes)
	}
}

func TestAnEngineThatLetsItsTurnsPassIsWaitedForThreeTimes(t *testing.T) {
	for of := 2; of <= 5; of++ {
		for gone := range of {
			c := newCrew(of)
			c.dead[gone] = true
			waited := map[string]int{}
			for n := range 400 {
				id := fmt.Sprint("document ", n%40)
				late, tried := c.decide(id)
				require.Equal(t, 1, tried)
				if late > 0 {
					require.Equal(t, gone, c.ranks[0].first(id), "only documents of the dead engine are late")
					require.LessOrEqual(t, late, yieldTime)
					waited["all"]++
				}
			}
			require.Equal(t, tooMany, waited["all"], "of %d engines, %d is dead", of, gone)
		}
	}
}

func TestAllThatAreGoneAreFoundOut(t *testing.T) {
	c := newCrew(5)
	c.dead[1], c.dead[2], c.dead[4] = true, true, true
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		for range tooMany {
			_, tried := c.decide(id)
			require.Equal(t, 1, tried)
		}
		late, tried := c.decide(id)
		require.Zero(t, late, "document %s", id)
		require.Equal(t, 1, tried)
	}
}

func TestARenewedHeartbeatGivesAnEngineItsTurnsBack(t *testing.T) {
	c := newCrew(3)
	c.dead[1] = true
	id := documentOf(c, 1)
	for range tooMany + 1 {
		c.decide(id)
	}
	c.list()
	late, _ := c.decide(id)
	require.Zero(t, late, "its heartbeat is the same")
	c.dead[1], c.beats[1] = false, c.now
	c.list()
	for range 10 {
		late, tried := c.decide(id)
		require.Zero(t, late)
		require.Equal(t, 1, tried, "it decides alone")
	}
}

// An engine stood still without anybody's noticing, and works again before its heartbeat is due.
// Whichever of two is the quicker one, they do not go on deciding about the same documents.
func TestAnEngineThatWorksAgainAndTheOneInItsPlaceDoNotMeetForLong(t *testing.T) {
	for _, last := range []bool{false, true} {
		c := newCrew(3)
		c.dead[2], c.last = true, last
		id := documentOf(c, 2)
		for range tooMany + 1 {
			c.decide(id)
		}
		c.dead[2] = false
		doubles, late := 0, 0
		for range 100 {
			waited, tried := c.decide(id)
			doubles += tried - 1
			if waited > 0 {
				late++
			}
		}
		require.LessOrEqual(t, doubles, tooMany)
		require.LessOrEqual(t, late, 1)
	}
}

// Others took the turns of an engine, and do not any more.
func TestAnEngineTakesTheTurnsThatOthersLeaveToIt(t *testing.T) {
	c := newCrew(2)
	id := documentOf(c, 0)
	for range tooMany {
		c.ranks[0].begin()
		require.True(t, c.ranks[0].found(id, c.now, c.now))
		c.ranks[0].decided(id, false)
		c.ranks[0].end(true)
	}
	require.True(t, c.ranks[0].away(0))
	late, tried := c.decide(id)
	require.Equal(t, yieldTime, late)
	require.Equal(t, 1, tried)
	for range 10 {
		late, tried := c.decide(id)
		require.Zero(t, late)
		require.Equal(t, 1, tried)
	}
	c.dead[1] = true
	c.ranks[0].peers[1].missed = tooMany
	for range 10 * tooMany {
		c.ranks[0].begin()
		require.True(t, c.ranks[0].found(id, c.now, c.now), "it is the only one")
		c.ranks[0].decided(id, false)
		c.ranks[0].end(true)
	}
}

func TestNobodySeemsToBeAwayWhenNobodyCouldDecide(t *testing.T) {
	c := newCrew(3)
	for n := range 100 {
		id := fmt.Sprint("document ", n)
		due := c.now
		c.now = c.now.Add(time.Duration(n) * 100 * time.Millisecond) // the server was away
		for _, k := range c.ranks {
			k.begin()
			if k.found(id, due, c.now) {
				k.decided(id, true)
			}
			k.end(true)
		}
	}
	for _, k := range c.ranks {
		require.Zero(t, k.absent)
	}
}

// What is found in an engine's turn and is gone at the next look was decided in it.
func TestAnEngineThatIsLateNowAndThenIsNotAway(t *testing.T) {
	k := ranked(0, 2)
	c := &crew{ranks: []*rank{k, nil}}
	id, now := documentOf(c, 1), time.UnixMilli(1e12)
	round := func(late time.Duration, found bool) {
		k.begin()
		if found && k.found(id, now.Add(-late), now) {
			k.decided(id, true)
		}
		k.end(true)
	}
	for range 10 * tooMany {
		round(0, true)
		now = now.Add(yieldTime)
		round(yieldTime, true) // it was late
		now = now.Add(time.Second)
		round(0, true)
		now = now.Add(yieldTime)
		round(0, false) // it was not
	}
	require.False(t, k.away(1))
}

// documentOf is a document about which that engine decides.
func documentOf(c *crew, place int) string {
	for n := 0; ; n++ {
		if id := fmt.Sprint("document ", n); c.ranks[0].first(id) == place {
			return id
		}
	}
}

func TestPlacesFollowTheIDsOfTheEngines(t *testing.T) {
	var k rank
	k.become("b", []peer{{id: "c"}, {id: "a"}, {id: "b"}})
	require.Equal(t, 1, k.place)
	require.True(t, slices.IsSortedFunc(k.peers, func(x, y peer) int { return len(x.id) - len(y.id) }))
}
