package sim

import (
	"os"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// number reads a variable.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, name)
	return n
}

// Whatever goes wrong, the promises are kept, and everything comes to its end.
func TestPromisesAreKeptWhateverGoesWrong(t *testing.T) {
	t.Parallel()
	from, n := uint64(1), number(t, "MSCHEDULER_SIM_SEEDS", 300)
	if seed := number(t, "MSCHEDULER_SIM_SEED", 0); seed > 0 {
		from, n = seed, 1
	}
	times := number(t, "MSCHEDULER_SIM_TIMES", 1)
	for seed := from; seed < from+n; seed++ {
		for range times {
			play(t, seed, nemesis, n == 1)
		}
		if t.Failed() {
			return
		}
	}
}

// play plays a seed in virtual time.
func play(t *testing.T, seed uint64, trouble func(*world), tell bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := simulate(t, seed, trouble)
		if wrong := w.violations(); len(wrong) > 0 {
			t.Errorf("seed %d: %d promises were broken, first: %s\n%s", seed, len(wrong), wrong[0], w)
		} else if tell {
			t.Log("\n" + w.String())
		}
	})
}
