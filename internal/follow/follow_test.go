package follow

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

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

// ended is a stream whose listener has left.
type ended struct{}

func (ended) Token() bson.Raw             { return bson.Raw{5, 0, 0, 0, 0} }
func (ended) Close(context.Context) error { return nil }

func TestAListenerThatHasLeftIsNotAskedToWaitForAnotherSeat(t *testing.T) {
	db := testdb.New(t)
	st, err := store.Open(store.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, st.Ready(t.Context()))
	require.NoError(t, st.ReadClock(t.Context()))
	left := errors.New("left")
	f := Follower[ended]{
		Store: st, Renewal: time.Millisecond,
		Open: func(context.Context, bson.Raw) (ended, error) { return ended{}, nil },
		Take: func(ctx context.Context, _ ended) error { // others take all seats meanwhile
			_, err := db.Collection("seats").UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "holder", Value: "other"}}}})
			require.NoError(t, err)
			other := seat{store: st, holder: "second"}
			_ = other.take(t.Context())
			<-ctx.Done()
			return left
		},
		Ends: func(err error) bool { return errors.Is(err, left) },
	}
	require.ErrorIs(t, f.Run(t.Context(), nil), left)
}
