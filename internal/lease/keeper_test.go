package lease

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/fakeworker"
	"github.com/mscheduler/mscheduler/internal/health"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

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

	n := testdb.NewSleeper()
	st, err := store.Open(store.Config{Database: db, Clock: n})
	require.NoError(t, err)
	require.NoError(t, st.ReadClock(t.Context()))
	n.Sleep(time.Hour)
	eff := &lifecycle.Effective{Lease: 2 * claimed.PingExpireTime.Sub(claimed.ClaimedAt), PingInterval: time.Second}
	x := holder{New(task, claimed.ExecID, eff, st.Clock.Stamp())}
	k := NewKeeper(Config[holder]{Store: st, Clock: n, Health: health.New(claim.NewTrust(st.Clock, n), func(error) {}, func() {})})
	require.True(t, k.Ping(t.Context(), x))
	task, err = p.Get(t.Context(), sent.ID)
	require.NoError(t, err)
	require.True(t, task.WorkerStates[0].PingExpireTime.After(claimed.PingExpireTime))
}
