package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// A task that an engine of this process lets run is claimed as it is; one of a type that the worker
// does not run, or of another database, is nobody's.
func TestAnOfferedTaskIsClaimedAsItIs(t *testing.T) {
	db := testdb.New(t)
	c, _ := prepared(t, db)
	task := put(t, c, "k", nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		c.offerLoop(ctx)
		close(done)
	}()
	stop := decision.Offers(c.store, c.offered)
	decision.Offer(c.store, []*model.Task{{ID: "-/other/k", Type: "other"}, task})
	require.Eventually(t, func() bool { return c.stats.won.Load() == 1 }, testdb.Patience, time.Millisecond)
	require.EqualValues(t, 1, c.stats.attempted.Load())

	other, _ := prepared(t, testdb.New(t))
	decision.Offer(other.store, []*model.Task{put(t, other, "k", nil)})
	stop()
	decision.Offer(c.store, []*model.Task{put(t, c, "later", nil)})
	require.Empty(t, c.offers)
	cancel()
	<-done
	require.EqualValues(t, 1, c.stats.attempted.Load())
}
