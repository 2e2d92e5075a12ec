package limits

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Grant is what lets one claim be written.
type Grant struct {
	Permits []lifecycle.Permit // nil = none are needed
	// From and Until are of the store: between them the work must begin, and is given back
	// without cost where it has not. Zero = any time.
	From, Until time.Time

	starts []start
	asked  time.Duration // monotonic: when its starts were reserved; 0 = it has none
}

// start is one that was reserved for a task.
type start struct {
	of   store.LimitOf
	at   time.Time
	next time.Time     // what was free after it
	step time.Duration // of the rate
}

// Late says whether the start that was granted is lost by now.
func (g Grant) Late(now time.Time) bool { return !g.Until.IsZero() && now.After(g.Until) }

// reserved is what one reservation brought.
type reserved struct {
	of     store.LimitOf
	rate   model.RateLimit
	pace   lifecycle.Pace
	asked  time.Duration
	starts lifecycle.Starts
}

func (g *Gate) reserve(ctx context.Context, of store.LimitOf, r model.RateLimit, from time.Time, want int) (reserved, error) {
	if g.paced.doubts(g.store.Local().Monotonic(), g.pace().Error > lifecycle.Tolerance(r)) {
		if err := g.store.ReadClock(ctx); err != nil {
			return reserved{}, err
		}
	}
	res := reserved{of: of, rate: r, pace: g.pace(), asked: g.store.Local().Monotonic()}
	var err error
	res.starts, err = g.store.Rates.Reserve(ctx, of, r, res.pace, from, want)
	return res, err
}

// give adds the i-th start to the grant; false when it cannot begin by all it has.
func (r *reserved) give(i int, g *Grant) bool {
	at, step := lifecycle.StartAt(r.rate, r.starts, i), lifecycle.Spacing(r.rate)
	behind := time.Duration(r.starts.Count-1-i) * step
	g.starts = append(g.starts, start{of: r.of, at: at, next: r.starts.Next.Add(-behind), step: step})
	if g.asked == 0 {
		g.asked = max(r.asked, 1)
	}
	g.From = clock.Later(g.From, at)
	g.Until = clock.Sooner(g.Until, at.Add(lifecycle.GoodFor(r.rate, r.pace)))
	return !g.From.After(g.Until)
}

// Claimed notes that claims by the grants have just been written: how long that took says
// how far ahead starts are to be reserved.
func (g *Gate) Claimed(grants map[*model.Task]Grant) {
	var asked time.Duration
	for _, grant := range grants {
		if grant.asked > 0 && (asked == 0 || grant.asked < asked) {
			asked = grant.asked
		}
	}
	if asked > 0 {
		g.paced.saw(g.store.Local().Monotonic() - asked)
	}
}

// pacer measures how long claims take: the longest lately, slowly forgotten.
type pacer struct {
	mu    sync.Mutex
	claim time.Duration

	again time.Duration // monotonic: when the clock may be read once more
	pause time.Duration // before that
}

// How soon a process reads the database's clock again that knows it worse than a rate
// tolerates, and so leaves much of the rate free for all: at once, and where its way is so
// long that this does not help, ever more rarely.
const (
	firstReread  = time.Second
	seldomReread = 30 * time.Second
)

// doubts says whether the clock is to be read before starts are reserved; bad is that it is
// known worse than the rate tolerates.
func (p *pacer) doubts(now time.Duration, bad bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !bad || now < p.again {
		return false
	}
	if now-p.again > seldomReread { // it was good for a while, or nothing was reserved
		p.pause = 0
	}
	p.pause = min(max(2*p.pause, firstReread), seldomReread)
	p.again = now + p.pause
	return true
}

const slowestPace = 2 * time.Second // what takes longer is an outage

func (p *pacer) saw(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claim = min(max(took, p.claim-(p.claim-took)/8), slowestPace)
}

// pace is what this process knows of its way to the database.
func (g *Gate) pace() lifecycle.Pace {
	late := g.store.Clock.Error() + time.Millisecond // its readings are cut to milliseconds
	g.paced.mu.Lock()
	defer g.paced.mu.Unlock()
	if g.paced.claim == 0 {
		return lifecycle.Pace{Error: late, Claim: min(3*late, slowestPace)} // a guess, until it has claimed
	}
	return lifecycle.Pace{Error: late, Claim: g.paced.claim}
}

// returnStarts gives back those that nobody will use, as far as nobody has reserved later
// ones: of a rate of one an hour each counts. What is left free behind starts stays so. Those that
// wait for the next start may begin with the one that came back, so they are looked at.
func (g *Gate) returnStarts(ctx context.Context, starts []start) error {
	slices.SortFunc(starts, func(a, b start) int { return b.at.Compare(a.at) })
	now, over, back := g.store.Clock.Now(), map[store.LimitOf]bool{}, map[store.LimitOf]bool{}
	for _, s := range starts {
		if over[s.of] || s.next.Before(now) {
			continue
		}
		returned, err := g.store.Rates.Return(ctx, s.of, s.next.Add(-s.step), s.next)
		if err != nil {
			return err
		}
		over[s.of] = !returned
		back[s.of] = back[s.of] || returned
	}
	return g.freed(ctx, back)
}
