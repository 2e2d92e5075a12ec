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

func TestASeatIsRenewedAgainSoonAfterARenewalThatFailed(t *testing.T) {
	local := testdb.NewClock()
	st, err := store.Open(store.Config{Database: testdb.New(t), Clock: local})
	require.NoError(t, err)
	require.NoError(t, st.Ready(t.Context()))
	require.NoError(t, st.ReadClock(t.Context()))
	first, second := seat{store: st, of: "/tests", holder: "first"}, seat{store: st, of: "/tests", holder: "second"}
	require.NoError(t, first.keep(t.Context()))

	local.Move(seatRenewal)
	away, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, first.keep(away))
	require.NoError(t, first.keep(t.Context()))

	local.Move(store.SeatLease - seatRenewal + time.Second) // the lease that was not renewed would be over
	require.NoError(t, second.keep(t.Context()))
	require.NotEqual(t, first.have, second.have, "the first still has its seat")
}
