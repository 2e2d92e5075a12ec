package pull

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/groupcommit"
	"github.com/mscheduler/mscheduler/model"
)

// Many workers fetch by one process at the same time. If each looked at the head of the queue they would
// all find the same tasks. So one look finds tasks for all that ask meanwhile and want the same, deals
// each task to one of them, and keeps some for those that come in the next moment.
//
//	fetch ─▶ crowd: asks ─▶ gather ─▶ one look ─▶ dealt, each to one ─▶ claims ─▶ gather ─▶ one command
//
// A worker that comes alone gets what a look of its own would find.

// crowd are the fetches that want the same.
type crowd struct {
	seeker *seeker // of no worker in particular
	memory *memory
	types  []string
	queue  *groupcommit.Queue[*ask]

	mu      sync.Mutex
	left    []*model.Task   // found and not dealt
	found   time.Duration   // monotonic: when they were found
	news    uint64          // and what [memory.news] was
	out     map[string]bool // ids that were dealt, and of which it is not known whether they were claimed
	looking bool
	settled []string // were in out, and may be found by the look that is under way
}

// ask is what one fetch wants of its crowd.
type ask struct {
	most   int // how many tasks
	rivals int // how often in a row other processes were quicker
	wants  func(*model.Task) bool
	dealt  []*model.Task
	passed bool // there were tasks that it does not want
	err    error
	done   chan struct{}
}

const (
	keptFor   = 100 * time.Millisecond // how long what was found is dealt
	asksAtOne = 1000                   // that one look answers
	lookTime  = 20 * time.Second
)

// crowd is that of fetches of the types by workers that meet the finder's conditions.
func (p *memory) crowd(f claim.Finder, types []string) *crowd {
	f.WorkerID = ""
	types = slices.Sorted(slices.Values(types))
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.remembered(f, types)
	if s.crowd == nil {
		c := &crowd{seeker: s, memory: p, types: types, out: map[string]bool{}}
		c.queue = groupcommit.New(asksAtOne, c.answer)
		s.crowd = c
	}
	return s.crowd
}

// take returns tasks that no other fetch of the crowd gets before settle is called with them.
func (c *crowd) take(ctx context.Context, a ask) (_ ask, err error) {
	c.mu.Lock()
	if a.rivals == 0 && len(c.left) >= a.most && c.fresh() {
		c.deal([]*ask{&a})
	}
	c.mu.Unlock()
	if len(a.dealt) > 0 {
		return a, nil
	}
	a.done = make(chan struct{})
	if err := c.queue.Put(ctx, &a); err != nil {
		return a, err
	}
	select {
	case <-a.done:
		return a, a.err
	case <-ctx.Done():
		go func() { // nobody claims them
			<-a.done
			c.settle(a.dealt)
		}()
		return ask{}, context.Cause(ctx)
	}
}

// settle says that the tasks are claimed by now, or will not be.
func (c *crowd) settle(tasks []*model.Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range tasks {
		if c.looking {
			c.settled = append(c.settled, t.ID)
		} else {
			delete(c.out, t.ID)
		}
	}
}

// fresh reports whether what is left may still be dealt. The caller holds mu.
func (c *crowd) fresh() bool {
	return c.news == c.memory.news.Load() && c.memory.store.Local().Monotonic()-c.found < keptFor
}

// answer looks for all that ask: once, unless a look that was cut short left some of them without a task.
func (c *crowd) answer(asks []*ask) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	var err error
	for look, more := 0, true; err == nil && more && look < tries; look++ {
		more, err = c.lookFor(ctx, asks, look)
	}
	for _, a := range asks {
		if a.err = err; len(a.dealt) > 0 {
			a.err = nil // what it has is not lost because there could have been more
		}
		close(a.done)
	}
}

// lookFor looks once. more says that there are more tasks, and somebody who was dealt none.
func (c *crowd) lookFor(ctx context.Context, asks []*ask, look int) (more bool, err error) {
	most, rivals := 0, 0
	for _, a := range asks {
		most += a.most - len(a.dealt)
		rivals = max(rivals, a.rivals)
	}
	if len(asks) > 1 {
		most *= 2 // others come while these claim
	}
	c.mu.Lock()
	c.looking = true
	out := len(c.out) + len(c.left) // what is left may be dealt meanwhile
	c.mu.Unlock()
	news := c.memory.news.Load()
	var got claim.Catch
	switch {
	case rivals > 0:
		got, err = c.seeker.lookBehind(ctx, c.types, min(most+out, maxFetch), rand.IntN((most+out)*4<<min(rivals, tries)))
	case look > 0: // what was dealt stands where it stood
		got, err = c.seeker.lookBehind(ctx, c.types, min(most, maxFetch), out)
	default:
		got, err = c.seeker.look(ctx, c.types, min(most+out, maxFetch), news, false)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.found, c.news = got.Tasks, c.memory.store.Local().Monotonic(), news
	c.deal(asks)
	c.looking = false
	for _, id := range c.settled {
		delete(c.out, id)
	}
	c.settled = nil
	return err == nil && len(got.Tasks) > 0 && !got.Complete() && slices.ContainsFunc(asks, func(a *ask) bool { return len(a.dealt) == 0 && !a.passed }), err
}

// deal gives what is left to those that ask: to each its share first, then the rest. The caller holds mu.
func (c *crowd) deal(asks []*ask) {
	c.left = slices.DeleteFunc(c.left, func(t *model.Task) bool { return c.out[t.ID] })
	share := max(1, len(c.left)/len(asks))
	for _, most := range []int{share, maxFetch} {
		for _, a := range asks {
			for i := 0; i < len(c.left) && len(a.dealt) < min(a.most, most); {
				t := c.left[i]
				switch {
				case !a.wants(t):
					a.passed = true
					i++
					continue
				case i == 0: // the rest need not move
					c.left = c.left[1:]
				default:
					c.left = slices.Delete(c.left, i, i+1)
				}
				a.dealt = append(a.dealt, t)
				c.out[t.ID] = true
			}
		}
	}
}
