package demo

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watched is a clock that counts how often it is read.
type watched struct {
	*testdb.Clock
	reads atomic.Int64
}

func (w *watched) Monotonic() time.Duration {
	defer w.reads.Add(1)
	return w.Clock.Monotonic()
}

// A wait may take as long as it needs, so that the demo may have many tasks. It ends when nothing moves.
func TestAWaitEndsWhenNothingHasMovedForAWhile(t *testing.T) {
	for name, wait := range map[string]func(d *demo, met *bool) error{
		"until": func(d *demo, met *bool) error {
			return d.until(t.Context(), "the end", func() bool { return *met })
		},
		"poll": func(d *demo, met *bool) error {
			return d.poll(t.Context(), "the end", func() (ok bool, err error) {
				d.Look(func() { ok = *met })
				return ok, nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			moves := &watched{Clock: testdb.NewClock()}
			d := &demo{Config: Config{Clock: moves, Tasks: MaxTasks}}
			d.target = &target{Fleet: &d.Fleet}
			met, ended := false, make(chan error, 1)
			begin := func() { go func() { ended <- wait(d, &met) }() }
			begin()
			for range 4 {
				d.Set(func() { d.target.done++ })
				moves.Move(actTime - time.Second)
				before := moves.reads.Load()
				testdb.Eventually(t, "a look", func() bool { return moves.reads.Load() > before+2 })
			}
			d.Set(func() { met = true })
			require.NoError(t, testdb.Receive(t, ended))

			met = false
			begin()
			testdb.Eventually(t, "the wait ends", func() bool {
				moves.Move(actTime)
				return len(ended) > 0
			})
			require.ErrorContains(t, <-ended, "nothing has moved for 45s; waited for the end")
		})
	}
}
