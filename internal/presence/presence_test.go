package presence

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// hand is a clock that stands still until a test moves it.
type hand struct{ by time.Duration }

func (h *hand) Now() time.Time           { return time.Unix(1_700_000_000, 0).Add(h.by) }
func (h *hand) Monotonic() time.Duration { return 24*time.Hour + h.by }

// fleet is a database of live workers, and the presence of the one named b.
func fleet(t *testing.T, others ...string) (*Presence, *store.Store, *hand) {
	t.Helper()
	st, err := store.Open(store.Config{Database: testdb.New(t)})
	require.NoError(t, err)
	require.NoError(t, st.Ready(t.Context()))
	for _, id := range others {
		require.NoError(t, st.Workers.Heartbeat(t.Context(), store.Worker{ID: id, Types: []string{"t"}}))
	}
	later := &hand{}
	types := []string{"t"}
	return New(Config{
		Store: st, Clock: later, Log: zerolog.Nop(), Types: func() []string { return types },
		Worker:   func() store.Worker { return store.Worker{ID: "b", Types: types} },
		Watching: func() bool { return true }, Busy: func() bool { return false }, Asked: func(*store.Drain) {},
	}), st, later
}

func TestAWorkerKnowsItsRankAmongTheLive(t *testing.T) {
	p, st, later := fleet(t, "c", "a", "d")
	require.Zero(t, p.Fleet(), "not counted yet")
	require.NoError(t, p.Beat(t.Context()))
	require.Equal(t, 4, p.Fleet())
	require.Equal(t, 1, p.Rank())
	require.NoError(t, st.Workers.Remove(t.Context(), store.Worker{ID: "a"}))
	require.NoError(t, p.Beat(t.Context()))
	require.Equal(t, 1, p.Rank(), "one that has nothing to do counts rarely")
	later.by += CountWatching
	require.NoError(t, p.Beat(t.Context()))
	require.Equal(t, 3, p.Fleet())
	require.Zero(t, p.Rank())
}

// Otherwise it would be listed as one that polls, for the half minute that follows its start.
func TestAWorkerTellsAtOnceThatItWatchesButOnlyTheFirstTime(t *testing.T) {
	p, _, later := fleet(t)
	watching := false
	p.cfg.Watching = func() bool { return watching }
	require.NoError(t, p.Beat(t.Context()))
	require.False(t, p.Due(), "it polls, as it told")
	watching = true
	require.True(t, p.Due())
	require.NoError(t, p.Beat(t.Context()))
	for range 2 {
		require.False(t, p.Due(), "it has told")
		watching = !watching
	}
	later.by += store.HeartbeatInterval
	require.True(t, p.Due())
}

// Workers that start together count each other too early: the ones that start last are missing.
func TestAWorkerThatMeetsOthersCountsThemAgainSoon(t *testing.T) {
	p, st, later := fleet(t)
	require.NoError(t, p.Beat(t.Context()))
	require.Equal(t, 1, p.Fleet())
	require.NoError(t, st.Workers.Heartbeat(t.Context(), store.Worker{ID: "a", Types: []string{"t"}}))
	later.by += 10 * time.Second
	require.False(t, p.Due(), "it has met nobody")
	p.Met()
	require.True(t, p.Due())
	require.NoError(t, p.Beat(t.Context()))
	require.Equal(t, 2, p.Fleet())
	require.Equal(t, 1, p.Rank())
	require.False(t, p.Due())
	var waits []time.Duration
	for range 10 {
		p.Met()
		from := later.by
		for !p.Due() {
			later.by += firstEarly
		}
		waits = append(waits, later.by-from)
		require.NoError(t, p.Beat(t.Context()))
	}
	require.LessOrEqual(t, waits[0], 2*firstEarly)
	require.GreaterOrEqual(t, waits[9], store.HeartbeatInterval-time.Second, "ever more rarely, until each heartbeat is enough: %v", waits)
}

// Two processes with one worker id write one document, so each hides the other.
func TestAProcessWarnsOfAnotherThatUsesItsWorkerID(t *testing.T) {
	first, st, later := fleet(t)
	var lines bytes.Buffer
	process := func(pid int) *Presence {
		cfg := first.cfg
		cfg.Log = zerolog.New(&lines)
		cfg.Worker = func() store.Worker {
			return store.Worker{ID: "b", Host: "machine", PID: pid, Types: []string{"t"}}
		}
		return New(cfg)
	}
	warned := func() int {
		later.by += store.HeartbeatInterval
		n := strings.Count(lines.String(), "another live process uses the id of this worker")
		lines.Reset()
		return n
	}
	beat := func(p *Presence) {
		t.Helper()
		require.NoError(t, p.Beat(t.Context()))
	}
	shared := func() bool {
		w, err := st.Workers.Known(t.Context(), "b")
		require.NoError(t, err)
		return w.SharedBy() != nil
	}

	killed, a := process(7), process(8)
	beat(killed)
	beat(killed)
	beat(a)
	beat(a)
	require.Zero(t, warned(), "it has replaced the one that was killed")
	require.False(t, shared())

	b := process(9)
	beat(b)
	require.Zero(t, warned(), "the first heartbeat may be that of a restart")
	beat(a)
	require.Contains(t, lines.String(), `"other_host":"machine","other_pid":9`)
	require.Equal(t, 1, warned())
	require.True(t, shared())
	beat(a)
	require.Zero(t, warned())
	require.False(t, shared())
	beat(b)
	require.Equal(t, 1, warned(), "each of them warns")
	beat(a)
	require.Equal(t, 1, warned(), "again after a minute")
	beat(b)
	beat(a)
	require.Equal(t, 1, warned(), "once a minute")

	stopped, err := st.Workers.Known(t.Context(), "b")
	require.NoError(t, err)
	require.NoError(t, st.Workers.Remove(t.Context(), *stopped))
	beat(a)
	beat(a)
	require.Zero(t, warned(), "the other one has stopped")
	require.False(t, shared())
}
