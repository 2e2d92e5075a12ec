package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// stopped is a machine's clock that a test moves by [store.Clock.Skip].
type stopped struct{}

func (stopped) Now() time.Time           { return time.Unix(0, 0) }
func (stopped) Monotonic() time.Duration { return 0 }

// process is a store of a client of its own, which counts for itself. Its first minute has begun.
func process(t *testing.T, uri, database string) *store.Store {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetServerSelectionTimeout(300 * time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	testdb.Reached(t, client)
	s, err := store.Open(store.Config{Database: client.Database(database), Clock: stopped{}})
	require.NoError(t, err)
	s.Series.Within = testdb.Patience
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	require.False(t, s.Series.Record(t.Context(), false))
	return s
}

// minutePasses lets the store's time be in the next minute.
func minutePasses(s *store.Store) { s.Clock.Skip(measure.Every) }

// back waits until the store reaches its database again.
func back(t *testing.T, s *store.Store) {
	t.Helper()
	require.Eventually(t, func() bool { return s.ReadClock(t.Context()) == nil }, testdb.Patience, 10*time.Millisecond)
}

// total is what all slots of a type have, by resolution.
func total(t *testing.T, s *store.Store, typ string) (ended []map[string]int64) {
	t.Helper()
	for _, r := range measure.Resolutions {
		slots, err := s.Series.Of(t.Context(), r, typ, s.Clock.Now().Add(-r.Kept), s.Clock.Now().Add(r.Slot))
		require.NoError(t, err)
		sum := map[string]int64{}
		for _, slot := range slots {
			for outcome, n := range slot.Ended {
				sum[outcome] += n
			}
		}
		ended = append(ended, sum)
	}
	return ended
}

// inAll is what [total] returns where all resolutions have the same.
func inAll(ended map[string]int64) (all []map[string]int64) {
	for range measure.Resolutions {
		all = append(all, ended)
	}
	return all
}

func TestProcessesAddToTheSameSlots(t *testing.T) {
	db := testdb.New(t)
	one, other := process(t, testdb.URI(t), db.Name()), process(t, testdb.URI(t), db.Name())
	require.NotSame(t, one.Measure, other.Measure)
	const minutes = 20
	var both sync.WaitGroup
	for _, s := range []*store.Store{one, other} {
		both.Go(func() {
			for range minutes {
				s.Measure.Types.Of("mail").Ended.Of(measure.Success).Add(3)
				s.Measure.Types.Of("mail").Ran.Observe(time.Millisecond)
				s.Measure.Types.Of(".a-type").Ended.Of("error").Add(1)
				s.Measure.Lateness.Of("periodic").Observe(time.Minute)
				minutePasses(s)
				s.Series.Record(context.Background(), false)
			}
			s.Series.Record(context.Background(), true) // what another made at the same moment, perhaps
		})
	}
	both.Wait()
	require.Equal(t, inAll(map[string]int64{"success": 2 * 3 * minutes}), total(t, one, "mail"))
	require.Equal(t, inAll(map[string]int64{"success": 2 * 3 * minutes, "error": 2 * minutes}), total(t, one, ""))

	fine, now := measure.Resolutions[0], one.Clock.Now()
	slots, err := one.Series.Of(t.Context(), fine, "", now.Add(-time.Hour), now)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(slots), minutes)
	var ran, late int64
	for i, slot := range slots {
		require.Zero(t, slot.At.Sub(slot.At.Truncate(time.Minute)))
		require.True(t, i == 0 || slots[i-1].At.Before(slot.At))
		ran, late = ran+slot.Ran.Count(), late+slot.Late["periodic"].Over(10*time.Second)
	}
	require.EqualValues(t, 2*minutes, ran)
	require.EqualValues(t, 2*minutes, late)
	none, err := one.Series.Of(t.Context(), fine, "mai", now.Add(-time.Hour), now)
	require.NoError(t, err)
	require.Empty(t, none, "another type begins with it")

	all, more, err := one.Series.Ended(t.Context(), fine, now.Add(-time.Hour), now)
	require.NoError(t, err)
	require.False(t, more)
	types := map[string]int64{}
	for _, slot := range all {
		require.Empty(t, slot.Ran, "only the ends are read")
		types[slot.Type] += slot.Ended[measure.Success] + slot.Ended["error"]
	}
	require.Equal(t, map[string]int64{"mail": 2 * 3 * minutes, ".a-type": 2 * minutes}, types)
	early, _, err := one.Series.Ended(t.Context(), fine, slots[0].At, slots[0].At.Add(time.Minute))
	require.NoError(t, err)
	require.Len(t, early, 2)
}

func TestASlotGoesWhenItsResolutionKeepsItNoLonger(t *testing.T) {
	db := testdb.New(t)
	s := process(t, testdb.URI(t), db.Name())
	s.Measure.Types.Of("mail").Ended.Of(measure.Success).Add(1)
	s.Series.Record(t.Context(), true)
	cur, err := db.Collection("series").Find(t.Context(), bson.D{{Key: "type", Value: "mail"}}, options.Find().SetSort(bson.D{{Key: "at", Value: -1}}))
	require.NoError(t, err)
	var docs []struct {
		At       time.Time `bson:"at"`
		DeleteAt time.Time `bson:"delete_at"`
	}
	require.NoError(t, cur.All(t.Context(), &docs))
	require.Len(t, docs, len(measure.Resolutions))
	kept := map[time.Duration]bool{}
	for _, d := range docs {
		kept[d.DeleteAt.Sub(d.At)] = true
	}
	for _, r := range measure.Resolutions {
		require.True(t, kept[r.Slot+r.Kept], r.Name)
	}
}

func TestAProcessInWhichNothingHappensAddsNothing(t *testing.T) {
	px := testdb.Behind(t)
	s := process(t, px.URI(), testdb.New(t).Name())
	trap := px.Set(proxy.Rule{Collection: "series", Times: -1})
	for range 5 {
		minutePasses(s)
		require.True(t, s.Series.Record(t.Context(), false))
	}
	require.True(t, s.Series.Record(t.Context(), true))
	require.Zero(t, trap.Sprung())
	s.Measure.Types.Of("mail").Ended.Of(measure.Success).Add(1)
	require.False(t, s.Series.Record(t.Context(), false), "somebody is to record it later")
	require.Zero(t, trap.Sprung(), "the minute is not over")
	minutePasses(s)
	require.True(t, s.Series.Record(t.Context(), false))
	require.Equal(t, 1, trap.Sprung(), "one command for all slots")
}

func TestWhatCouldNotBeSentIsAddedLater(t *testing.T) {
	px := testdb.Behind(t)
	s := process(t, px.URI(), testdb.New(t).Name())
	px.Cut()
	require.Eventually(t, func() bool { return s.ReadClock(t.Context()) != nil }, testdb.Patience, time.Millisecond)
	s.Measure.Types.Of("mail").Ended.Of(measure.Success).Add(3)
	minutePasses(s)
	require.False(t, s.Series.Record(t.Context(), false))
	s.Measure.Types.Of("mail").Ended.Of(measure.Success).Add(4)
	require.False(t, s.Series.Record(t.Context(), false), "once a minute, also where it failed")
	px.Mend()
	back(t, s)
	s.Series.Record(t.Context(), true)
	require.Equal(t, inAll(map[string]int64{"success": 7}), total(t, s, "mail"))
}

// The answer is lost, and the driver repeats the write: the server knows that it has done it.
func TestAWriteWhoseAnswerWasLostCountsOnce(t *testing.T) {
	for name, times := range map[string]int{"the repetition is answered": 1, "and that of the repetition, too": -1} {
		t.Run(name, func(t *testing.T) {
			px := testdb.Behind(t)
			s := process(t, px.URI(), testdb.New(t).Name())
			s.Measure.Types.Of("mail").Ended.Of(measure.Success).Add(3)
			minutePasses(s)
			trap := px.Set(proxy.Rule{Command: "update", Collection: "series", Do: proxy.CutAfter, Times: times})
			require.True(t, s.Series.Record(t.Context(), false))
			require.Positive(t, trap.Sprung())
			px.Clear()
			back(t, s)
			minutePasses(s)
			require.True(t, s.Series.Record(t.Context(), false))
			require.Equal(t, inAll(map[string]int64{"success": 3}), total(t, s, "mail"))
		})
	}
}

// A round of an engine is cut off when another engine of the process joins it.
func TestARecordThatIsCutOffLosesNothing(t *testing.T) {
	db := testdb.New(t)
	s := process(t, testdb.URI(t), db.Name())
	s.Series.Record(t.Context(), false)
	s.Measure.Types.Of("mail").Ended.Of(measure.Success).Add(7)
	minutePasses(s)
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, s.Series.Record(cut, false))
	require.True(t, s.Series.Record(t.Context(), true))
	require.Equal(t, inAll(map[string]int64{"success": 7}), total(t, s, "mail"))
}
