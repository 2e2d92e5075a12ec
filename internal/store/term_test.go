package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestTheTermOfAPrimaryIsKnownFromWhenItWasFirstNoted(t *testing.T) {
	s, _ := openAs(t, options.Client().ApplyURI(testdb.URI(t)))
	require.NoError(t, s.Ready(t.Context()))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, err := s.Control.TermSince(t.Context(), "one")
			require.NoError(t, err)
		})
	}
	all.Wait()
	one, err := s.Control.TermSince(t.Context(), "one")
	require.NoError(t, err)
	require.False(t, one.IsZero())
	require.Eventually(t, func() bool {
		two, err := s.Control.TermSince(t.Context(), "two")
		require.NoError(t, err)
		again, err := s.Control.TermSince(t.Context(), "one")
		require.NoError(t, err)
		return two.After(one) && !again.Before(two)
	}, testdb.Patience, time.Millisecond)
}
