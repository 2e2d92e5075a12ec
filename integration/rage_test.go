package integration

import (
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/fleet"
)

// rager is what happens to the processes of a scenario.
type rager struct {
	*arena
	rand      *rand.Rand
	processes []*fleet.Process
	begin     func(n int) *fleet.Process // starts process number n
	freezes   func(n int) bool           // says whether that one is frozen, if none is; otherwise it is killed
	ends      bool                       // some processes end by themselves
}

// start starts n processes.
func (c *rager) start(n int) {
	for i := range n {
		c.processes = append(c.processes, c.begin(i))
	}
}

// rage kills and freezes. One process stands still for half of the time, which is longer than its
// leases.
func (c *rager) rage(lasts time.Duration) {
	end := time.Now().Add(lasts)
	frozen, thaw := -1, time.Time{}
	for time.Now().Before(end) {
		time.Sleep(50*time.Millisecond + time.Duration(c.rand.Int64N(int64(lasts/10)))) // a moment that nobody chose
		n := c.rand.IntN(len(c.processes))
		switch {
		case frozen >= 0 && time.Now().After(thaw):
			require.NoError(c.t, c.processes[frozen].Thaw())
			frozen = -1
		case frozen < 0 && c.freezes(n):
			err := c.processes[n].Freeze()
			if err == nil {
				frozen, thaw = n, time.Now().Add(lasts/2)
			}
			require.True(c.t, err == nil || c.ends, "%v", err)
		case n != frozen:
			c.processes[n].Kill()
			c.processes[n] = c.begin(n)
		}
	}
	if frozen >= 0 {
		require.NoError(c.t, c.processes[frozen].Thaw())
	}
}
