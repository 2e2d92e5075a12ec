package lease

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/fakeworker"
	"github.com/mscheduler/mscheduler/internal/health"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

type holder struct{ hold *Hold }

func (h holder) Lease() *Hold   { return h.hold }
func (holder) Pingable() bool   { return true }
func (holder) Unreturned() bool { return true }

// claimed stores a task that a worker has claimed, and returns a connection to it with the clock of a machine.
func claimed(t *testing.T, db *mongo.Database, c clock.Clock) (*store.Store, *model.Task) {
	t.Helper()
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	sent, err := producer.Send(t.Context(), p, model.NewType[int, int]("held"), 1)
	require.NoError(t, err)
	fakeworker.New(t, db, "").Claim(sent.ID, "w")
	st, err := store.Open(store.Config{Database: db, Clock: c})
	require.NoError(t, err)
	require.NoError(t, st.ReadClock(t.Context()))
	task, err := st.Tasks.Get(t.Context(), sent.ID)
	require.NoError(t, err)
	return st, task
}

// keep makes what keeps the lease of the task.
func keep(st *store.Store, c clock.Clock, log zerolog.Logger, task *model.Task) (*Keeper[holder], holder) {
	w := task.WorkerStates[0]
	eff := &lifecycle.Effective{Lease: 2 * w.PingExpireTime.Sub(w.ClaimedAt), PingInterval: time.Second}
	k := NewKeeper(Config[holder]{Store: st, Clock: c, Log: log, Health: health.New(claim.NewTrust(st.Clock, c), func(error) {}, func() {})})
	return k, holder{New(task, w.ExecID, eff, st.Clock.Stamp())}
}

// The lease was proven after the sleep, so that it shows nothing of it. But the estimate is from before.
func TestAPingAfterASleepExtendsTheLeaseAlthoughItWasProvenSince(t *testing.T) {
	n := testdb.NewSleeper()
	st, task := claimed(t, testdb.New(t), n)
	n.Sleep(time.Hour)
	k, x := keep(st, n, zerolog.Nop(), task)
	require.True(t, k.Ping(t.Context(), x))
	after, err := st.Tasks.Get(t.Context(), task.ID)
	require.NoError(t, err)
	require.True(t, after.WorkerStates[0].PingExpireTime.After(task.WorkerStates[0].PingExpireTime))
}

// A password was changed, say. The worker tries several times a second.
func TestAPingThatTheDatabaseRefusesIsLoggedOnceAMinute(t *testing.T) {
	px := testdb.BehindPatient(t)
	c := testdb.NewClock()
	st, task := claimed(t, testdb.Through(t, px), c)
	var log bytes.Buffer
	k, x := keep(st, c, zerolog.New(&log), task)
	refused := px.Set(proxy.Rule{Command: "update", Collection: "tasks", Times: -1, Do: proxy.Refuse, Code: 13})
	defer px.Clear()
	for minute := range 2 {
		for range 5 {
			require.False(t, k.Ping(t.Context(), x))
		}
		require.Equal(t, minute+1, strings.Count(log.String(), "could not ping"))
		c.Move(time.Minute)
	}
	require.GreaterOrEqual(t, refused.Sprung(), 10)
}

// The connection of the first ping never answers, say. The leases of others do not wait for it, and neither does the
// next ping of the same lease, but only some wait at once.
func TestAPingWithoutAnAnswerHoldsUpNoOther(t *testing.T) {
	px := testdb.BehindPatient(t)
	db, c := testdb.Through(t, px), testdb.NewClock()
	st, long := claimed(t, db, c)
	_, short := claimed(t, db, c)
	k, x := keep(st, c, zerolog.Nop(), long)
	_, y := keep(st, c, zerolog.Nop(), short)
	x.hold.Adapt(20*time.Second, false)
	held := []holder{x}
	k.cfg.Held = func() []holder { return held }
	pings := px.Set(proxy.Rule{Command: "update", Collection: "tasks", Contains: "ping_expire_time", Times: -1, Do: proxy.HoldBefore})
	c.Move(16 * time.Second)
	k.PingDue(t.Context())
	require.Equal(t, 1, pings.Sprung())
	k.PingDue(t.Context())
	require.Equal(t, 1, pings.Sprung(), "its answer is awaited")
	held = append(held, y)
	k.PingDue(t.Context())
	require.Equal(t, 2, pings.Sprung(), "the other one is due")
	c.Move(20 * time.Second)
	k.PingDue(t.Context())
	require.Equal(t, mostWaiting, pings.Sprung(), "the next one of both")
	c.Move(20 * time.Second)
	k.PingDue(t.Context())
	require.Equal(t, mostWaiting, pings.Sprung())
	pings.Release()
	k.Wait()
	require.Positive(t, k.Batches())
	require.Positive(t, x.hold.Trusted(c))
}
