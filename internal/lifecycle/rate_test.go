package lifecycle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/model"
)

var quick = Pace{Error: time.Millisecond, Claim: 5 * time.Millisecond}

// The reservation is a majority write and the claim another: a start that was good for no
// longer than now would be lost by then, and with it all until the next.
func TestTheFirstStartAfterIdlenessIsGoodWhenItsClaimIsWritten(t *testing.T) {
	for _, r := range []model.RateLimit{{Count: 1, Per: time.Hour}, {Count: 1, Per: 20 * time.Second}, {Count: 100, Per: time.Second}, {Count: 1, Per: 100 * time.Millisecond}} {
		for _, ms := range []time.Duration{0, 1, 5, 20, 60, 150, 1000} {
			p := Pace{Error: ms*time.Millisecond/2 + time.Millisecond, Claim: ms * time.Millisecond}
			for _, next := range []time.Time{{}, limitEpoch.Add(-r.Per), limitEpoch.Add(-Tolerance(r) - time.Microsecond)} {
				s := ReserveStarts(r, p, next, limitEpoch, time.Time{}, 1)
				require.Equal(t, 1, s.Count)
				claimed := limitEpoch.Add(p.Claim)
				require.False(t, claimed.After(s.First.Add(GoodFor(r, p))), "%+v, %v: lost before it was claimed", r, p)
				require.False(t, s.First.After(clock.Later(claimed, limitEpoch)), "%+v, %v: it waits for nothing", r, p)
			}
		}
	}
}

func TestStartsAheadAreThoseThatCanBeReservedByNow(t *testing.T) {
	r, p := model.RateLimit{Count: 100, Per: time.Second}, Pace{Claim: 80 * time.Millisecond}
	ahead, step := p.Ahead(), Spacing(r)
	require.Equal(t, 1, StartsAhead(r, p, limitEpoch.Add(ahead), limitEpoch))
	require.Equal(t, 2, StartsAhead(r, p, limitEpoch.Add(ahead-step), limitEpoch))
	require.Zero(t, StartsAhead(r, p, limitEpoch.Add(ahead+step), limitEpoch))
	idle := StartsAhead(r, p, time.Time{}, limitEpoch)
	first := ReserveStarts(r, p, time.Time{}, limitEpoch, time.Time{}, 1).First
	require.Equal(t, int(limitEpoch.Add(ahead).Sub(first)/step)+1, idle, "what has passed cannot be reserved")
	few := model.RateLimit{Count: 2, Per: 20 * time.Millisecond}
	require.Equal(t, 2, StartsAhead(few, p, time.Time{}, limitEpoch), "as many as are reserved at a time")
}

func TestARateThatIsChangedActsAtOnce(t *testing.T) {
	slow, fast := model.RateLimit{Count: 1, Per: time.Hour}, model.RateLimit{Count: 100, Per: time.Second}
	s := ReserveStarts(slow, quick, time.Time{}, limitEpoch, time.Time{}, 1)
	next := FollowRate(fast, slow, s.Next)
	require.False(t, next.After(limitEpoch.Add(Spacing(fast)+Tolerance(slow))), "it waits until %v by the old rate", next)
	s = ReserveStarts(fast, quick, time.Time{}, limitEpoch, time.Time{}, 1)
	next = FollowRate(slow, fast, s.Next)
	require.False(t, next.Before(limitEpoch.Add(slow.Per)), "a second one within the hour")
	require.Equal(t, s.Next, FollowRate(fast, fast, s.Next))
}

// simulated are processes that take as many starts of a rate as they can, in virtual time.
type simulated struct {
	rate  model.RateLimit
	procs []*simulatedProcess
	rand  *rand.Rand
	next  time.Time // as the database has it
	began []time.Time
	lost  int
}

type simulatedProcess struct {
	rtt, lag time.Duration // of its estimate, behind the database's time
	pace     Pace
	at       time.Time // when it goes on
	asked    time.Time // when the reservation that is on its way was sent; zero = none is
}

func (s *simulated) between(a, b time.Duration) time.Duration {
	if b <= a {
		return a
	}
	return a + time.Duration(s.rand.Int64N(int64(b-a)))
}

func (s *simulated) run(until time.Time, late time.Duration) {
	for {
		p := slices.MinFunc(s.procs, func(a, b *simulatedProcess) int { return a.at.Compare(b.at) })
		if p.at.After(until) {
			return
		}
		if p.asked.IsZero() { // it has looked for tasks
			p.asked = p.at.Add(p.rtt)
			p.at = p.asked.Add(s.between(0, p.rtt))
			continue
		}
		asked := p.asked
		p.asked = time.Time{}
		got := ReserveStarts(s.rate, p.pace, s.next, asked.Add(-p.lag), time.Time{}, 1_000_000)
		if got.Count == 0 {
			p.at = clock.Later(p.at, got.Next.Add(p.lag-p.pace.Ahead()+s.between(0, Tolerance(s.rate)/3)))
			continue
		}
		s.next = got.Next
		claimed := asked.Add(2*p.rtt + s.between(0, p.rtt) + s.between(0, late))
		took := claimed.Sub(asked)
		p.pace.Claim = max(took, p.pace.Claim-(p.pace.Claim-took)/8)
		p.at = claimed
		for i := range got.Count {
			from := StartAt(s.rate, got, i)
			at := clock.Later(from, claimed.Add(-p.lag)).Add(s.between(0, late/4))
			if at.After(from.Add(GoodFor(s.rate, p.pace))) {
				s.lost++
				continue
			}
			s.began = append(s.began, at.Add(p.lag))
		}
	}
}

func (s *simulated) add(rtt, lag time.Duration, at time.Time) {
	e := rtt + time.Millisecond
	s.procs = append(s.procs, &simulatedProcess{rtt: rtt, lag: min(lag, e), at: at, pace: Pace{Error: e, Claim: 3 * e}})
}

// most is the greatest number that began within any span of the rate's.
func (s *simulated) most() (most int) {
	slices.SortFunc(s.began, time.Time.Compare)
	from := 0
	for i := range s.began {
		for s.began[i].Sub(s.began[from]) >= s.rate.Per {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

// However long the ways are, whatever the errors of the clocks and however late anybody is.
func TestNoSpanHoldsMoreStartsThanItsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		millis := func(name string, most int) time.Duration {
			return time.Duration(rapid.IntRange(0, most).Draw(t, name)) * time.Millisecond
		}
		s := &simulated{rate: model.RateLimit{Count: rapid.IntRange(1, 200).Draw(t, "count"), Per: 100*time.Millisecond + millis("per", 5000)},
			rand: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))}
		for range rapid.IntRange(1, 5).Draw(t, "processes") {
			rtt := millis("rtt", 200)
			s.add(rtt, millis("lag", 200), limitEpoch.Add(millis("at", 500)))
		}
		for range 3 { // idle in between
			s.run(s.procs[0].at.Add(2*s.rate.Per), millis("late", 150))
			for _, p := range s.procs {
				if p.asked.IsZero() {
					p.at = p.at.Add(millis("idle", 3000))
				}
			}
		}
		if most := s.most(); most > s.rate.Count {
			t.Fatalf("%d began within %v, where %d may", most, s.rate.Per, s.rate.Count)
		}
	})
}

func TestUnderLoadNineTenthsOfARateAreReachedOverWaysOfUpTo40Milliseconds(t *testing.T) {
	if testing.Short() {
		t.Skip("it has one goroutine: make scenarios runs it without the race detector")
	}
	for _, r := range []model.RateLimit{{Count: 100, Per: time.Second}, {Count: 1, Per: time.Second}, {Count: 10_000, Per: time.Second}, {Count: 7, Per: time.Minute}, {Count: 100_000, Per: 24 * time.Hour}} {
		for _, ms := range []time.Duration{0, 1, 2, 5, 10, 20, 30, 40, 60, 80, 100} {
			for _, procs := range []int{1, 4} {
				t.Run(fmt.Sprintf("%d in %v, %d ms, %d processes", r.Count, r.Per, ms, procs), func(t *testing.T) {
					s := &simulated{rate: r, rand: rand.New(rand.NewPCG(uint64(ms), uint64(procs)))}
					for range procs {
						s.add(ms*time.Millisecond, s.between(0, ms*time.Millisecond), limitEpoch)
					}
					spans := 20
					if r.Per > time.Minute {
						spans = 1
					}
					span := time.Duration(spans) * r.Per
					s.run(limitEpoch.Add(span), 2*time.Millisecond)
					began := 0
					for _, at := range s.began {
						if at.Before(limitEpoch.Add(span)) {
							began++
						}
					}
					reached := float64(began) / (float64(spans) * float64(r.Count))
					least := 0.9
					if ms > 40 {
						least = 0.75 // what may be late by more than the tolerance is paid for
					}
					require.LessOrEqual(t, s.most(), r.Count)
					require.GreaterOrEqual(t, reached, least, "%d were lost", s.lost)
				})
			}
		}
	}
}
