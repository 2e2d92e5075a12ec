//go:build unix

package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/engine"
)

// The environment variables that configure a run.
const (
	timeVariable    = "MSCHEDULER_CHAOS_TIME" // of troubles, on each engine
	seedVariable    = "MSCHEDULER_CHAOS_SEED"
	pidsVariable    = "MSCHEDULER_CHAOS_PIDS"    // of the servers at MSCHEDULER_MONGODB_URI
	restartVariable = "MSCHEDULER_CHAOS_RESTART" // the command that starts one of them again
	enginesVariable = "MSCHEDULER_TEST_ENGINES"
	longVariable    = "MSCHEDULER_TEST_LONG"
)

// briefly is how long the troubles of `make long` last.
const briefly = 20 * time.Second

// engines are those that are tried.
func engines() []engine.Engine {
	self := os.Args[0]
	return []engine.Engine{
		engine.Program("embedded", func(port, data string) []string { return []string{self, asServer, port, data} }),
		engine.URI(), engine.Mongod(), engine.Secantusd(),
	}
}

// Whatever goes wrong with processes, clocks, networks and servers: the effect of each task is applied once, late effects
// are refused, nobody holds a task together with another, nothing that was acknowledged is lost, each tick has one record,
// flows and plans keep their order, and everything comes to its end.
func TestChaosBreaksNoPromise(t *testing.T) {
	lasts := briefly
	if text := os.Getenv(timeVariable); text != "" {
		var err error
		lasts, err = time.ParseDuration(text)
		require.NoError(t, err, timeVariable)
	} else if testing.Short() || os.Getenv(longVariable) == "" {
		t.Skip("in make chaos and make long")
	}
	seed := rand.Uint64N(1_000_000)
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, seedVariable)
	}
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM) // the troubles end, and all is checked
	defer stop()
	context.AfterFunc(ctx, stop) // a second one ends everything
	only := os.Getenv(enginesVariable)
	for _, e := range engines() {
		t.Run(e.Name, func(t *testing.T) {
			if only != "" && only != "others" && !strings.Contains(","+only+",", ","+e.Name+",") {
				t.Skip("not among " + enginesVariable)
			}
			if ctx.Err() != nil {
				t.Skip("interrupted")
			}
			server, err := e.Start(t.Context())
			if missing := (*engine.MissingError)(nil); errors.As(err, &missing) {
				t.Skip(engine.Reason(e.Name, err))
			}
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, server.Close()) })
			t.Logf("%s: seed %d, %v of troubles", e.Name, seed, lasts)
			chaos(ctx, t, e.Name, server, seed, lasts)
		})
	}
}

// chaos has the troubles last so long, or until ctx ends.
func chaos(ctx context.Context, t *testing.T, name string, server *engine.Deployment, seed uint64, lasts time.Duration) {
	t.Helper()
	members, err := findMembers(t.Context(), server.URI)
	require.NoError(t, err)
	w := newWorld(server, name == "embedded", engine.Fresh(t, engine.Connect(t, server.URI)), members)
	if name == "uri" {
		for _, text := range strings.FieldsFunc(os.Getenv(pidsVariable), func(r rune) bool { return r == ',' }) {
			pid, err := strconv.Atoi(text)
			require.NoError(t, err, pidsVariable)
			w.pids = append(w.pids, pid)
		}
	}
	defer w.close()
	w.set(t, lasts)
	w.start(t)
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	began := time.Now()
	newNemesis(w, seed).rage(ctx)
	raged := time.Since(began)
	s := w.settle(t.Context())
	w.check(s)
	w.close()
	if raged >= briefly { // else somebody wanted less, or has interrupted it
		w.checkSubstance()
	}
	t.Log("\n" + w.table(s))
	if len(w.wrong) > 0 {
		t.Errorf("seed %d: %d promises were broken\n%s", seed, len(w.wrong), w.history())
	}
}
