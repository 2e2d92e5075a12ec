package lease

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/fakeworker"
	"github.com/mscheduler/mscheduler/internal/health"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// napping is the clock of a machine whose monotonic clock stood still while it slept.
type napping struct{ slept time.Duration }

func (*napping) Now() time.Time             { return time.Now() }
func (n *napping) Monotonic() time.Duration { return clock.System().Monotonic() - n.slept }

type holder struct{ hold *Hold }

func (h holder) Lease() *Hold   { return h.hold }
func (holder) Pingable() bool   { return true }
func (holder) Unreturned() bool { return true }

// The lease was proven after the sleep, so that it shows nothing of it. But the estimate is from before.
func TestAPingAfterASleepExtendsTheLeaseAlthoughItWasProvenSince(t *testing.T) {
	db := testdb.New(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	sent, err := producer.Send(t.Context(), p, model.NewType[int, int]("held"), 1)
	require.NoError(t, err)
	fakeworker.New(t, db, "").Claim(sent.ID, "w")
	task, err := p.Get(t.Context(), sent.ID)
	require.NoError(t, err)
	claimed := task.WorkerStates[0]

	n := &napping{}
	st, err := store.Open(store.Config{Database: db, Clock: n})
	require.NoError(t, err)
	require.NoError(t, st.ReadClock(t.Context()))
	n.slept = time.Hour
	eff := &lifecycle.Effective{Lease: 2 * claimed.PingExpireTime.Sub(claimed.ClaimedAt), PingInterval: time.Second}
	x := holder{New(task, claimed.ExecID, eff, st.Clock.Stamp())}
	k := NewKeeper(Config[holder]{Store: st, Clock: n, Health: health.New(claim.NewTrust(st.Clock, n), func(error) {}, func() {})})
	require.True(t, k.Ping(t.Context(), x))
	task, err = p.Get(t.Context(), sent.ID)
	require.NoError(t, err)
	require.True(t, task.WorkerStates[0].PingExpireTime.After(claimed.PingExpireTime))
}
