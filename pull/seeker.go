package pull

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// seeker is what a process remembers between the fetches of one worker, or of a crowd. So a fetch looks
// at the queue as a consumer does: from the head on that it saw, and only at priorities in use.
type seeker struct {
	*claim.Seeker
	pace  *clock.Pacer
	empty atomic.Uint64 // one more than memory.news when the last look found nothing; 0 = it found something
	crowd *crowd        // that it looks for; nil = for one worker
}

const (
	wideGap = 30 * time.Second // between looks at everybody's audience
	// maxSeekers bounds the memory of a process that fetches for ever new workers.
	maxSeekers = 1000
)

// seeker returns what is remembered of the worker that the finder looks for.
func (p *memory) seeker(f claim.Finder) *seeker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.remembered(f, nil)
}

// remembered is the seeker of a worker, or of all workers that want those types. The caller holds mu.
func (p *memory) remembered(f claim.Finder, types []string) *seeker {
	only := f.Only
	if only == nil {
		only = &lifecycle.Conditions{}
	}
	var key strings.Builder
	for _, values := range [][]string{{f.WorkerID}, only.Tenants, only.Categories, only.Creators, types} {
		for _, v := range slices.Sorted(slices.Values(values)) {
			key.WriteString(v)
			key.WriteByte(0)
		}
		key.WriteByte(1)
	}
	s := p.seekers[key.String()]
	if s == nil {
		if p.seekers == nil || len(p.seekers) >= maxSeekers {
			p.seekers = map[string]*seeker{}
		}
		c := p.store.Local()
		s = &seeker{Seeker: claim.NewSeeker(f, c, wideGap, longestPace), pace: clock.NewPacer(c, 0, claim.FullEvery)}
		p.seekers[key.String()] = s
	}
	return s
}

// tellEvery is the time between two ordinary tasks of a priority that the seekers hear of. It is
// shorter than the time for which a priority that they heard of stays in use.
const tellEvery = time.Second

// hear records a task that this process has written.
func (p *memory) hear(t *model.Task) {
	if t.DueAt.IsZero() || t.Priority < 0 || t.Priority > input.MaxPriority {
		return
	}
	p.news.Add(1)
	now := p.store.Local().Monotonic()
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.told[t.Priority] != 0 && now-p.told[t.Priority] < tellEvery
	if len(p.seekers) == 0 || known && claim.Ordinary(t, p.store.Clock.Now()) {
		return
	}
	p.told[t.Priority] = max(now, 1)
	for _, seeker := range p.seekers {
		seeker.Hear(t)
	}
}

// look reads candidates where the queue begins. A look that took d and found nothing is not
// repeated before 20 d have passed, unless this process has written a task since. whole looks at
// everything, whatever is known.
func (s *seeker) look(ctx context.Context, types []string, n int, news uint64, whole bool) (got claim.Catch, err error) {
	if s.empty.Load() == news+1 && s.pace.Left() > 0 {
		return got, nil
	}
	err = s.pace.Do(func() (err error) {
		got, err = s.Find(ctx, types, claim.Aim{AtHead: true, Whole: whole || s.Refused.Full(), Take: n})
		return err
	})
	switch {
	case err != nil:
	case len(got.Tasks) == 0:
		s.empty.Store(news + 1)
	default:
		s.empty.Store(0)
	}
	return got, err
}

// lookBehind reads candidates after the first ones, where others that fetch at the same time do
// not look.
func (s *seeker) lookBehind(ctx context.Context, types []string, n, skip int) (claim.Catch, error) {
	return s.Find(ctx, types, claim.Aim{Skip: skip, Take: n})
}
