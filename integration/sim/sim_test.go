package sim

import (
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
	seeds := uint64(300) // more in `make sim`
	if testing.Short() {
		seeds = 4
	}
	from := number(t, "MSCHEDULER_SIM_SEED", 1)
	if os.Getenv("MSCHEDULER_SIM_SEED") != "" {
		seeds = 1
	}
	n := number(t, "MSCHEDULER_SIM_SEEDS", seeds)
	times := number(t, "MSCHEDULER_SIM_TIMES", 1)
	var next atomic.Uint64
	for k := range runtime.GOMAXPROCS(0) {
		t.Run(strconv.Itoa(k), func(t *testing.T) {
			t.Parallel()
			for i := next.Add(1) - 1; i < n*times && !t.Failed(); i = next.Add(1) - 1 {
				play(t, from+i/times, nemesis, n == 1)
			}
		})
	}
}

// A server with w: 1 acknowledges writes that it forgets when it fails. This is why all writes wait for the majority,
// and it shows that the checks find what is lost.
func TestADatabaseThatForgetsIsFoundOut(t *testing.T) {
	t.Parallel()
	for forgets, name := range map[bool]string{false: "it restarts", true: "it restarts, and has forgotten the last seconds"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := simulate(t, 1, func(w *world) {
					copied := w.db.path + ".copy"
					time.Sleep(10 * time.Second)
					w.restarts(func() error { return copyFile(copied, w.db.path) })
					time.Sleep(15 * time.Second)
					w.restarts(func() error {
						if !forgets {
							return nil
						}
						return copyFile(w.db.path, copied)
					})
					time.Sleep(troubled - 25*time.Second)
				})
				lost := slices.ContainsFunc(w.violations(), func(s string) bool { return strings.HasSuffix(s, " is lost") })
				require.Equal(t, forgets, lost, w)
				require.Equal(t, forgets, len(w.violations()) > 0, w)
			})
		})
	}
}

// restarts has the server restart, and something done while it is down.
func (w *world) restarts(meanwhile func() error) {
	w.note("database", "restarts")
	for _, step := range []func() error{w.db.stop, meanwhile, w.db.start} {
		if err := step(); err != nil {
			w.violated("the database does not restart: %v", err)
		}
	}
}

func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o600)
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
