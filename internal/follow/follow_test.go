package follow

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

func TestASeatIsKeptThroughARenewalThatFailed(t *testing.T) {
	local := testdb.NewClock()
	st, err := store.Open(store.Config{Database: testdb.New(t), Clock: local})
	require.NoError(t, err)
	require.NoError(t, st.Ready(t.Context()))
	require.NoError(t, st.ReadClock(t.Context()))
	first, second := seat{store: st, holder: "first"}, seat{store: st, holder: "second"}
	require.NoError(t, first.take(t.Context()))

	local.Move(SeatRenewal)
	away, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, first.renew(away))
	before := *first.have
	require.NoError(t, first.renew(t.Context()))
	require.Equal(t, before, *first.have)

	local.Move(store.SeatLease - SeatRenewal + time.Second) // the lease that was not renewed would be over
	require.NoError(t, second.take(t.Context()))
	require.NotEqual(t, first.have, second.have, "the first still has its seat")
	require.ErrorIs(t, (&seat{store: st, holder: "third"}).take(t.Context()), errNoSeat)
}
