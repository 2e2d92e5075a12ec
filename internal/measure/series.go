package measure

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// Resolution is a series of slots of time: how long one is, and for how long it is kept after its end.
type Resolution struct {
	Name string
	Slot time.Duration
	Kept time.Duration
}

// Resolutions are those of the series, the finest first. Each has about a hundred slots for the time that
// it is made for: an hour, a day, a week.
var Resolutions = []Resolution{
	{"minute", time.Minute, 2 * time.Hour},
	{"quarter", 15 * time.Minute, 2 * 24 * time.Hour},
	{"hours", 2 * time.Hour, 15 * 24 * time.Hour},
}

// Every is how often a process adds to the series.
const Every = time.Minute

// mostSpread bounds by how much later than the minute a process adds, so that a fleet does not do it at one
// moment. What is added is of the minute before all the same.
const mostSpread = 15 * time.Second

// Added is what a process adds to one slot of the series of one type.
type Added struct {
	Resolution Resolution
	Type       string    // "" = all types together
	At         time.Time // when the slot begins
	// Counts are the counters that have risen, by how much: ended.OUTCOME, delay.BUCKET, ran.BUCKET, and of
	// all types together late.KIND.BUCKET. See [Bucket].
	Counts map[string]int64
}

// key names the slot.
func (a *Added) key() string {
	return a.Resolution.Name + "/" + a.Type + "/" + strconv.FormatInt(a.At.Unix(), 10)
}

// recorder remembers what of a set the series have.
type recorder struct {
	recording clock.Lock // held while somebody records
	spread    time.Duration
	begun     bool
	minute    int64                       // of the last record, counted from the epoch
	seen      map[string]map[string]int64 // by type, then as in [Added.Counts]
	left      map[string]Added            // what was not written, by key
}

// Record has write add to the series what was counted since the last record, once a minute; now is the
// database's time. It does nothing until a minute is over, where nothing was counted, and while another call
// records. A last record comes at once, whatever the time, and waits for the other.
//
// write returns what it knows it has not written, which comes again with the next record. done says that all
// that was counted until the minute's end is written, or given up.
func (s *Set) Record(now time.Time, last bool, write func([]Added) (left []Added)) (done bool) {
	r := &s.recorder
	if last {
		r.recording.Lock()
	} else if !r.recording.TryLock() {
		return false
	}
	defer r.recording.Unlock()
	minute, due := r.due(now)
	if !due && !last {
		return false
	}
	r.minute = minute
	// What was counted is of the minute that is over, or at a last record of the one that has begun.
	at := minute
	if due {
		at--
	}
	r.collect(s, time.Unix(at*int64(Every/time.Second), 0).UTC())
	maps.DeleteFunc(r.left, func(_ string, a Added) bool { return a.At.Add(a.Resolution.Slot + a.Resolution.Kept).Before(now) })
	if len(r.left) == 0 {
		return true
	}
	all := slices.SortedFunc(maps.Values(r.left), func(a, b Added) int { return cmp.Compare(a.key(), b.key()) })
	left := write(all)
	clear(r.left)
	for _, a := range left {
		r.left[a.key()] = a
	}
	return len(left) == 0
}

// UntilRecord is how long it is from now until the next record is due.
func (s *Set) UntilRecord(now time.Time) time.Duration {
	if !s.recorder.recording.TryLock() { // one is under way
		return Every
	}
	defer s.recorder.recording.Unlock()
	minute, due := s.recorder.due(now)
	if due {
		return 0
	}
	return time.Unix((minute+1)*int64(Every/time.Second), 0).Add(s.recorder.spread).Sub(now)
}

// due says in which minute now is, late by the spread, and whether that is another than at the last record.
// The first call begins the first minute.
func (r *recorder) due(now time.Time) (minute int64, due bool) {
	if !r.begun {
		r.spread = rand.N(mostSpread) //nolint:gosec // it only spreads the load
	}
	minute = now.Add(-r.spread).Unix() / int64(Every/time.Second)
	if !r.begun {
		r.begun, r.minute = true, minute
	}
	return minute, minute != r.minute
}

// collect adds to what is left what was counted since the last time, as of that minute.
func (r *recorder) collect(s *Set, at time.Time) {
	if r.seen == nil {
		r.seen, r.left = map[string]map[string]int64{}, map[string]Added{}
	}
	sum := map[string]int64{}
	for typ, t := range s.Types.All() {
		for what, n := range r.risen(typ, t.counts()) {
			r.add(typ, at, what, n)
			sum[what] += n
		}
	}
	late := map[string]int64{}
	for kind, d := range s.Lateness.All() {
		d.countInto(late, "late."+kind)
	}
	maps.Copy(sum, r.risen("", late))
	for what, n := range sum {
		r.add("", at, what, n)
	}
}

// risen are the counters of a type that have risen since the last time, by how much.
func (r *recorder) risen(typ string, counts map[string]int64) map[string]int64 {
	seen := r.seen[typ]
	r.seen[typ] = counts
	out := map[string]int64{}
	for what, n := range counts {
		if n > seen[what] {
			out[what] = n - seen[what]
		}
	}
	return out
}

// add adds to the slots of all resolutions.
func (r *recorder) add(typ string, at time.Time, what string, n int64) {
	for _, res := range Resolutions {
		a := Added{Resolution: res, Type: typ, At: at.Truncate(res.Slot), Counts: map[string]int64{}}
		if before, there := r.left[a.key()]; there {
			a = before
		}
		a.Counts[what] += n
		r.left[a.key()] = a
	}
}

// counts are the counters of a type that are not zero.
func (t *Type) counts() map[string]int64 {
	out := map[string]int64{}
	for outcome, n := range t.Ended.All() {
		if n := n.Load(); n > 0 {
			out["ended."+outcome] = n
		}
	}
	t.Delay.countInto(out, "delay")
	t.Ran.countInto(out, "ran")
	return out
}

// countInto puts in how many are in each bucket that is not empty.
func (d *Durations) countInto(counts map[string]int64, name string) {
	for i := range len(durationBounds) + 1 {
		if n := d.n[i].Load(); n > 0 {
			counts[name+"."+Bucket(i)] = int64(n) //nolint:gosec // nobody counts as far
		}
	}
}

const (
	bucketPrefix = "to_"
	beyond       = "beyond"
)

// Bucket names the bucket of durations of that number by its upper bound in milliseconds: to_1, to_2, to_5;
// the last one is beyond.
func Bucket(i int) string {
	if i >= len(durationBounds) {
		return beyond
	}
	return bucketPrefix + strconv.FormatInt(durationBounds[i]/int64(time.Millisecond), 10)
}

// Histogram is how many durations each bucket has, by its name.
type Histogram map[string]int64

// Count is how many durations there are.
func (h Histogram) Count() (n int64) {
	for _, in := range h {
		n += in
	}
	return n
}

// Over is how many were longer than a duration, which is the bound of a bucket.
func (h Histogram) Over(d time.Duration) (n int64) {
	for _, b := range h.buckets() {
		if b.from >= d {
			n += b.n
		}
	}
	return n
}

// Quantile estimates the duration that the given share of all does not exceed: a bucket's durations count as
// evenly spread. Beyond the last bound it is that bound. It is 0 where there are none.
func (h Histogram) Quantile(share float64) time.Duration {
	all := h.buckets()
	rank, passed := share*float64(h.Count()), 0.0
	for i, b := range all {
		if passed+float64(b.n) >= rank || i == len(all)-1 {
			part := min(max((rank-passed)/float64(b.n), 0), 1)
			return b.from + time.Duration(part*float64(b.to-b.from))
		}
		passed += float64(b.n)
	}
	return 0
}

// bucket is one that is not empty.
type bucket struct {
	from, to time.Duration
	n        int64
}

// buckets are those that are not empty, the shortest first. One that another release has named counts, too.
func (h Histogram) buckets() []bucket {
	var out []bucket
	for name, n := range h {
		b := bucket{n: n, from: time.Duration(durationBounds[len(durationBounds)-1])}
		b.to = b.from
		if bound, ok := strings.CutPrefix(name, bucketPrefix); ok {
			ms, err := strconv.ParseInt(bound, 10, 64)
			if err != nil {
				continue
			}
			b.to, b.from = time.Duration(ms)*time.Millisecond, 0
			for _, lower := range durationBounds {
				if lower := time.Duration(lower); lower < b.to {
					b.from = lower
				}
			}
		}
		if n > 0 {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b bucket) int { return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.from, b.from)) })
	return out
}
