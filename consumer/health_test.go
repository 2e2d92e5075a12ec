package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

var errAway = context.DeadlineExceeded

func TestAfterAnOutagePingsAndEndsGoFirst(t *testing.T) {
	c, o := prepared(t, testdb.New(t))
	require.NoError(t, c.lapses.OwnFirst(t.Context()), "nothing is owed")
	put(t, c, "a", nil)
	c.health.Report(errAway)
	c.health.Report(nil)
	<-c.leases.Woken() // the ping loop is woken
	before := o.count()
	fetched := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		_, err := c.fetch(context.Background())
		fetched <- err
		close(done)
	}()
	require.False(t, clock.PauseOr(t.Context(), 100*time.Millisecond, done), "the ping is not answered yet")
	require.Equal(t, before, o.count())
	c.leases.PingDue(t.Context())
	require.NoError(t, <-fetched)
	require.EqualValues(t, 1, c.Stats().ClaimsWon)
	require.False(t, c.health.Owes())
}
