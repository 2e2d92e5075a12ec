package consumer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/testdb"
)

// hasSuccessor reports whether each execution is prepared to be followed.
func (c *Consumer) hasSuccessor() bool {
	xs := c.held.each()
	c.passes.mu.Lock()
	defer c.passes.mu.Unlock()
	for _, x := range xs {
		if x.successor == nil || x.successor.state != ready {
			return false
		}
	}
	return len(xs) > 0
}

// What is to follow is read, and noted in the permit, while a handler runs. So one command lies
// between two starts: the end of the one and the claim of the other.
func TestOneCommandLiesBetweenTwoStartsOfALimitedType(t *testing.T) {
	db := testdb.New(t)
	setup, _ := prepared(t, db)
	const warm, rounds = 10, 50
	limitTo(t, setup, 1)
	putMany(t, setup, map[string]int{limitedType: warm + rounds + 20}, nil)
	began, end, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	g := newGauge(-1)
	crew, start := crewOf(t, db, 1, Config{Clock: testdb.NewClock()}, map[string]func(*Task[int]){
		limitedType: func(*Task[int]) {
			g.during(func() {
				select {
				case began <- struct{}{}:
					<-end
				case <-over:
				}
			})
		},
	})
	c, h := crew[0], crew[0].handlerOf(limitedType)
	start()
	defer close(end)
	defer close(over)
	var before map[string]int
	for i := range warm + rounds + 1 {
		h.ran.Store(int64(shortHandler)) // as of the executions before
		select {
		case <-began:
		case <-time.After(testdb.Patience):
			t.Fatalf("nothing begins after %d", i)
		}
		if i >= warm {
			require.Eventually(t, c.hasSuccessor, time.Minute, time.Millisecond, "round %d: %+v", i, c.Stats())
		}
		if i == warm {
			before = c.sent.count()
		}
		if i < warm+rounds {
			end <- struct{}{}
		}
	}
	after := c.sent.count()
	require.Equal(t, rounds, after["update tasks"]-before["update tasks"], "%v %v", before, after)
	require.Equal(t, rounds, after["update permits"]-before["update permits"], "%v %v", before, after)
	require.Equal(t, before["insert permits"], after["insert permits"])
	require.Equal(t, 1, g.most)
}
