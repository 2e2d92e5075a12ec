package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// The server answers the second try of a retryable write with what the first one has stored. If a failover comes in
// between, that is the time of the old primary.
func TestAReadingWhoseAnswerIsLostIsThatOfTheSecondTry(t *testing.T) {
	const apart = time.Hour // by how much the new primary's clock is ahead
	for collection, read := range map[string]func(*testing.T, *store.Store) error{
		"control": func(t *testing.T, s *store.Store) error { return s.ReadClock(t.Context()) },
		"workers": func(t *testing.T, s *store.Store) error {
			_, err := s.Workers.Beat(t.Context(), store.Worker{ID: "w", Process: "p"}, false)
			return err
		},
	} {
		t.Run(collection, func(t *testing.T) {
			here, there := testdb.NewClock(), testdb.NewClock()
			server, err := embedded.Start(embedded.Options{Now: there.Now})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, server.Close()) })
			px, err := proxy.Start(server.URI())
			require.NoError(t, err)
			t.Cleanup(px.Close)
			s, err := store.Open(store.Config{Database: engine.Connect(t, px.URI()).Database("d"), Clock: here})
			require.NoError(t, err)
			require.NoError(t, read(t, s))
			require.Equal(t, there.Now().Truncate(time.Millisecond).UTC(), s.Clock.Now().UTC())

			px.Set(proxy.Rule{Command: "findAndModify", Collection: collection, Do: proxy.CutAfter})
			again := px.Set(proxy.Rule{Command: "findAndModify", Collection: collection, Do: proxy.HoldBefore})
			done := make(chan error, 1)
			go func() { done <- read(t, s) }()
			<-again.Hit()
			there.Move(apart)
			again.Release()
			require.NoError(t, <-done)
			require.Equal(t, there.Now().Truncate(time.Millisecond).UTC(), s.Clock.Now().UTC())
			_, jumped := s.Clock.Jumped(apart / 2)
			require.True(t, jumped)
		})
	}
}
