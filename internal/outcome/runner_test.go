package outcome

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// stubborn carries out what is not called stuck.
type stubborn struct{ done []string }

func (*stubborn) Name() string { return "test" }

func (k *stubborn) Carry(_ context.Context, entries []Entry) []error {
	errs := make([]error, len(entries))
	for i, e := range entries {
		if strings.Contains(e.Life.ID, "stuck") {
			errs[i] = errors.New("not now")
		} else {
			k.done = append(k.done, e.Life.ID)
		}
	}
	return errs
}

// Many ends of one group commit have the same time: more of them than a page holds, which
// cannot be carried out, stand before nothing, be it of the same moment or of a later one.
func TestWhatCannotBeCarriedOutStandsInNobodysWay(t *testing.T) {
	for coll, life := range map[string]string{"tasks": "", "task_history": "@1"} {
		t.Run(coll, func(t *testing.T) {
			db := testdb.New(t)
			s, err := store.Open(store.Config{Database: db})
			require.NoError(t, err)
			require.NoError(t, s.Ready(t.Context()))
			require.NoError(t, s.ReadClock(t.Context()))
			at := s.Clock.Now().Add(-time.Hour).Truncate(time.Millisecond)
			var docs []bson.D
			ended := func(key string, at time.Time) string {
				id := model.TaskID("", "t", key)
				docs = append(docs, bson.D{
					{Key: "_id", Value: id + life}, {Key: "task_id", Value: id}, {Key: "type", Value: "t"}, {Key: "key", Value: key}, {Key: "generation", Value: int64(1)}, {Key: "rev", Value: int64(3)},
					{Key: "status", Value: "Success"}, {Key: "outbox", Value: bson.A{bson.D{{Key: "kind", Value: "test"}, {Key: "rev", Value: int64(3)}}}}, {Key: "outbox_at", Value: at},
				})
				return id
			}
			for i := range perSweep + 1 {
				ended(fmt.Sprint("stuck", i), at)
			}
			want := []string{ended("z of the same moment", at), ended("later", at.Add(time.Millisecond))}
			_, err = db.Collection(coll).InsertMany(t.Context(), docs)
			require.NoError(t, err)

			k := &stubborn{}
			r := New(s, zerolog.Nop(), k)
			defer r.Close()
			_, err = r.Sweep(t.Context(), Overdue)
			require.ErrorContains(t, err, "not now")
			require.Equal(t, want, k.done)
			left, err := db.Collection(coll).CountDocuments(t.Context(), bson.D{{Key: "outbox_at", Value: bson.D{{Key: "$exists", Value: true}}}, {Key: "type", Value: bson.D{{Key: "$ne", Value: "~"}}}})
			require.NoError(t, err)
			require.EqualValues(t, perSweep+1, left)
		})
	}
}

func TestASweepFindsWhatIsLeftOverAlthoughTheClockOfTheDatabaseWasSetBack(t *testing.T) {
	for _, back := range []time.Duration{10 * time.Second, time.Hour} {
		var offset atomic.Int64
		now := func() time.Time { return time.Now().Add(-time.Duration(offset.Load())) }
		d, err := engine.Embedded(embedded.Options{Now: now}).Start(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		db := engine.Fresh(t, engine.Connect(t, d.URI))
		s, err := store.Open(store.Config{Database: db})
		require.NoError(t, err)
		require.NoError(t, s.Ready(t.Context()))
		require.NoError(t, s.ReadClock(t.Context()))
		k := &stubborn{}
		r := New(s, zerolog.Nop(), k)
		defer r.Close()
		_, err = r.Sweep(t.Context(), Overdue)
		require.NoError(t, err)

		offset.Store(int64(back))
		require.NoError(t, s.ReadClock(t.Context()))
		id := model.TaskID("", "t", "k")
		_, err = db.Collection("tasks").InsertOne(t.Context(), bson.D{
			{Key: "_id", Value: id}, {Key: "type", Value: "t"}, {Key: "key", Value: "k"}, {Key: "generation", Value: int64(1)}, {Key: "rev", Value: int64(3)}, {Key: "status", Value: "Success"},
			{Key: "outbox", Value: bson.A{bson.D{{Key: "kind", Value: "test"}, {Key: "rev", Value: int64(3)}}}}, {Key: "outbox_at", Value: s.Clock.Now().Add(-Overdue)},
		})
		require.NoError(t, err)
		_, err = r.Sweep(t.Context(), Overdue)
		require.NoError(t, err)
		require.Equal(t, []string{id}, k.done)
	}
}
