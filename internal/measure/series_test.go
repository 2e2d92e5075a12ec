package measure

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// ledger is what a set has recorded, as a database keeps it.
type ledger struct {
	calls int
	slots map[string]map[string]int64 // by key, then by counter
	fails func(Added) bool            // nil = all is written
}

func (l *ledger) write(added []Added) (left []Added) {
	l.calls++
	for _, a := range added {
		if l.fails != nil && l.fails(a) {
			left = append(left, a)
			continue
		}
		if l.slots == nil {
			l.slots = map[string]map[string]int64{}
		}
		if l.slots[a.key()] == nil {
			l.slots[a.key()] = map[string]int64{}
		}
		for what, n := range a.Counts {
			l.slots[a.key()][what] += n
		}
	}
	return left
}

// of is what the slot of a type has that begins then.
func (l *ledger) of(resolution int, typ string, at time.Time) map[string]int64 {
	return l.slots[(&Added{Resolution: Resolutions[resolution], Type: typ, At: at}).key()]
}

// middle is in the minute after noon of that number, later than any spread.
func middle(minute int) time.Time {
	return noon.Add(time.Duration(minute)*time.Minute + 30*time.Second)
}

func TestARecordHasWhatWasCountedInTheMinuteThatIsOver(t *testing.T) {
	var s Set
	var l ledger
	s.Types.Of("before").Ended.Of(Success).Add(1) // nobody records yet
	s.Record(middle(0), false, l.write)
	mail := s.Types.Of("mail")
	mail.Ended.Of(Success).Add(2)
	mail.Ended.Of("error").Add(1)
	mail.Ran.Observe(20 * time.Millisecond)
	mail.Delay.Observe(24 * time.Hour)
	s.Types.Of("sms").Ended.Of(Success).Add(4)
	s.Lateness.Of("periodic").Observe(12 * time.Second)
	s.Record(middle(0).Add(20*time.Second), false, l.write)
	require.Zero(t, l.calls, "the minute is not over")
	s.Record(middle(1), false, l.write)
	require.Equal(t, map[string]int64{"ended.success": 2, "ended.error": 1, "ran.to_25": 1, "delay.beyond": 1}, l.of(0, "mail", noon))
	require.Equal(t, map[string]int64{"ended.success": 7, "ended.error": 1, "ran.to_25": 1, "delay.beyond": 1, "late.periodic.to_30000": 1}, l.of(0, "", noon))
	for resolution := range Resolutions {
		require.Equal(t, l.of(0, "sms", noon), l.of(resolution, "sms", noon))
	}

	s.Record(middle(2), false, l.write)
	require.Equal(t, 1, l.calls, "where nothing was counted nothing is written")
	mail.Ended.Of(Success).Add(5)
	s.Record(middle(16), false, l.write)
	require.Equal(t, map[string]int64{"ended.success": 5}, l.of(0, "mail", noon.Add(15*time.Minute)))
	require.Equal(t, map[string]int64{"ended.success": 5}, l.of(1, "mail", noon.Add(15*time.Minute)))
	require.EqualValues(t, 7, l.of(2, "mail", noon)["ended.success"])
}

func TestALastRecordComesAtOnce(t *testing.T) {
	var s Set
	var l ledger
	s.Record(middle(0), false, l.write)
	s.Types.Of("mail").Ended.Of(Success).Add(2)
	s.Record(middle(0).Add(time.Second), true, l.write)
	require.Equal(t, map[string]int64{"ended.success": 2}, l.of(0, "mail", noon))
	s.Record(middle(0).Add(time.Second), true, l.write)
	require.Equal(t, 1, l.calls)
	s.Types.Of("mail").Ended.Of(Success).Add(3)
	s.Record(middle(1), true, l.write)
	require.Equal(t, map[string]int64{"ended.success": 5}, l.of(0, "mail", noon), "that minute was over")
}

func TestWhatWasNotWrittenComesWithTheNextRecordAndCountsOnce(t *testing.T) {
	var s Set
	var l ledger
	mail := s.Types.Of("mail")
	s.Record(middle(0), false, l.write)
	mail.Ended.Of(Success).Add(2)
	l.fails = func(a Added) bool { return a.Resolution.Name != "quarter" } // others are done
	s.Record(middle(1), false, l.write)
	require.Nil(t, l.of(0, "mail", noon))
	mail.Ended.Of(Success).Add(3)
	l.fails = nil
	s.Record(middle(2), false, l.write)
	require.EqualValues(t, 2, l.of(0, "mail", noon)["ended.success"], "in the minute in which it was counted")
	require.EqualValues(t, 3, l.of(0, "mail", noon.Add(time.Minute))["ended.success"])
	require.EqualValues(t, 5, l.of(1, "mail", noon)["ended.success"])
	require.EqualValues(t, 5, l.of(2, "mail", noon)["ended.success"])

	l.fails = func(Added) bool { return true }
	mail.Ended.Of(Success).Add(1)
	s.Record(middle(3), false, l.write)
	s.Record(middle(3+30*24*60), false, l.write)
	require.Empty(t, s.recorder.left, "what would be deleted at once is not kept")
}

func TestOneOfManyRecordsAtATime(t *testing.T) {
	var s Set
	s.Record(middle(0), false, nil)
	s.Types.Of("mail").Ended.Of(Success).Add(1)
	began, goOn := make(chan struct{}), make(chan struct{})
	var l ledger
	var first sync.WaitGroup
	first.Go(func() {
		s.Record(middle(1), false, func(a []Added) []Added {
			close(began)
			<-goOn
			return l.write(a)
		})
	})
	<-began
	require.False(t, s.Record(middle(2), false, func([]Added) []Added { panic("two record at once") }))
	require.Equal(t, Every, s.UntilRecord(middle(2)))
	last := make(chan struct{})
	go func() {
		defer close(last)
		s.Types.Of("mail").Ended.Of(Success).Add(1)
		s.Record(middle(2), true, l.write)
	}()
	close(goOn)
	first.Wait()
	<-last
	require.EqualValues(t, 2, l.of(2, "mail", noon)["ended.success"])
}

func TestAProcessRecordsInTheFirstQuarterOfAMinuteAndEveryMinute(t *testing.T) {
	for range 100 {
		var s Set
		at := noon.Add(rand.N(time.Minute)) //nolint:gosec // any time will do
		wait := s.UntilRecord(at)
		require.LessOrEqual(t, wait, Every)
		require.Less(t, at.Add(wait).Sub(at.Add(wait).Truncate(Every)), mostSpread)
		require.Zero(t, s.UntilRecord(at.Add(wait)))
		s.Record(at.Add(wait), false, nil)
		require.Equal(t, Every, s.UntilRecord(at.Add(wait)))
	}
}

func TestQuantilesOfBuckets(t *testing.T) {
	var d Durations
	for range 100 {
		d.Observe(15 * time.Millisecond)
	}
	for range 100 {
		d.Observe(20 * time.Second)
	}
	counts := map[string]int64{}
	d.countInto(counts, "x")
	h := Histogram{}
	for what, n := range counts {
		h[what[len("x."):]] = n
	}
	require.EqualValues(t, 200, h.Count())
	require.Equal(t, 25*time.Millisecond, h.Quantile(0.5))
	require.Equal(t, 10*time.Millisecond+7500*time.Microsecond, h.Quantile(0.25))
	require.Equal(t, 28*time.Second, h.Quantile(0.95))
	require.Equal(t, 30*time.Second, h.Quantile(1))
	require.EqualValues(t, 100, h.Over(10*time.Second))
	require.Zero(t, h.Over(30*time.Second))
	require.Equal(t, 2*time.Hour, Histogram{beyond: 1}.Quantile(0.5), "nobody knows how much longer")
	require.EqualValues(t, 1, Histogram{beyond: 1}.Over(2*time.Hour))
	require.Zero(t, Histogram{}.Quantile(0.5))
	require.Equal(t, 2500*time.Millisecond, Histogram{"to_3000": 2}.Quantile(0).Truncate(time.Millisecond), "a bound of another release")
}

func TestAQuantileIsBetweenTheBoundsOfItsBucket(t *testing.T) {
	for range 200 {
		var d Durations
		var all []time.Duration
		for range 1 + rand.IntN(50) { //nolint:gosec // any will do
			v := time.Duration(rand.Int64N(int64(3*time.Hour))) >> rand.IntN(30) //nolint:gosec // any will do
			all = append(all, v)
			d.Observe(v)
		}
		slices.Sort(all)
		counts := map[string]int64{}
		d.countInto(counts, "x")
		h := Histogram{}
		for what, n := range counts {
			h[what[len("x."):]] = n
		}
		for _, share := range []float64{0, 0.5, 0.95, 1} {
			exact := all[max(0, int(share*float64(len(all))+0.999999)-1)]
			i, _ := slices.BinarySearch(durationBounds, int64(exact))
			least, most := time.Duration(0), time.Duration(durationBounds[min(i, len(durationBounds)-1)])
			if i > 0 {
				least = time.Duration(durationBounds[i-1])
			}
			got := h.Quantile(share)
			require.True(t, least <= got && got <= most, fmt.Sprint(share, all, got))
		}
	}
}
