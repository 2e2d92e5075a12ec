package store_test

import (
	"context"
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// A process reads the types again when the number of the control document has changed.
func TestAChangeOfATypeIsToldHoweverFarItsWriterGot(t *testing.T) {
	put := func(version int64) func(context.Context, *store.Store) error {
		return func(ctx context.Context, s *store.Store) error {
			// A sealed secret differs each time, so a repeated call does not recognize its own write.
			return s.Types.Put(ctx, &model.TaskType{Code: "mail", Version: version, Category: "c" + rand.Text()})
		}
	}
	for name, c := range map[string]struct {
		stored   bool
		change   func(context.Context, *store.Store) error
		command  string
		repeated error
	}{
		"created": {false, put(0), "insert", store.ErrTypeChanged},
		"changed": {true, put(1), "findAndModify", store.ErrTypeChanged},
		"deleted": {true, func(ctx context.Context, s *store.Store) error { return s.Types.Delete(ctx, "mail", 1) }, "delete", store.ErrNoType},
	} {
		t.Run(name, func(t *testing.T) {
			px := testdb.Behind(t)
			px.Patient()
			s, _ := openAs(t, options.Client().ApplyURI(px.URI()))
			require.NoError(t, s.Ready(t.Context()))
			require.NoError(t, s.ReadClock(t.Context()))
			told := func() int64 {
				doc, err := s.Control.Read(t.Context())
				require.NoError(t, err)
				return doc.Types
			}
			if c.stored {
				require.NoError(t, s.Types.Put(t.Context(), &model.TaskType{Code: "mail"}))
			}
			before := told()
			write := px.Set(proxy.Rule{Command: c.command, Collection: "task_types", Do: proxy.HoldBefore})
			done := make(chan error, 1)
			go func() { done <- c.change(t.Context(), s) }()
			testdb.Receive(t, write.Hit())
			between := told()
			require.Greater(t, between, before, "the writer may die after its write")

			refused := px.Set(proxy.Rule{Command: "update", Collection: "control", Times: -1, Do: proxy.Refuse, Code: 13})
			write.Release()
			require.Error(t, testdb.Receive(t, done))
			refused.Release()
			require.ErrorIs(t, c.change(t.Context(), s), c.repeated)
			require.Greater(t, told(), between, "a process may have read the types before the write")
		})
	}
}

func TestAProcessThatReadsTheTypesDuringAChangeReadsThemAgain(t *testing.T) {
	px := testdb.Behind(t)
	px.Patient()
	s, _ := openAs(t, options.Client().ApplyURI(px.URI()))
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	write := px.Set(proxy.Rule{Command: "insert", Collection: "task_types", Do: proxy.HoldBefore})
	done := make(chan error, 1)
	go func() { done <- s.Types.Put(t.Context(), &model.TaskType{Code: "mail"}) }()
	testdb.Receive(t, write.Hit())
	between, err := s.Control.Read(t.Context())
	require.NoError(t, err)
	write.Release()
	require.NoError(t, testdb.Receive(t, done))
	after, err := s.Control.Read(t.Context())
	require.NoError(t, err)
	require.Greater(t, after.Types, between.Types)
}
