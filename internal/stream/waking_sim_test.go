package stream

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/scenario"
	"github.com/mscheduler/mscheduler/internal/store"
)

// Idle workers and a hundred tasks a second, in virtual time: two of the workers watch,
// the others poll. Run with -v it prints what docs/performance.md quotes, and beside it
// what the same fleet does when every watcher writes at once.
func TestWorkersThatHearOfTheSameTaskDoNotAllWrite(t *testing.T) {
	for _, workers := range []int{1, 16, 256, 1024} {
		t.Run(fmt.Sprintf("%d workers", workers), func(t *testing.T) {
			ranked, rash := simulateWaking(workers, false), simulateWaking(workers, true)
			t.Logf("%4d workers: %s; all at once: %s", workers, ranked, rash)
			require.Equal(t, ranked.tasks, ranked.won, "each task was claimed once")
			require.LessOrEqual(t, ranked.perWin(), 1.2)
			require.LessOrEqual(t, ranked.p50, 5*time.Millisecond)
			require.LessOrEqual(t, ranked.p99, 30*time.Millisecond)
			require.LessOrEqual(t, ranked.inverted, 0.001)
			if workers > 1 {
				require.Greater(t, rash.perWin(), 1.5, "else the simulation has no contention")
			}
		})
	}
}

// wakeResult is what came of it.
type wakeResult struct {
	tasks, won, attempts int
	inverted             float64
	p50, p99             time.Duration
}

func (r wakeResult) perWin() float64 { return float64(r.attempts) / float64(r.won) }

func (r wakeResult) String() string {
	return fmt.Sprintf("%.3f claims attempted for each won, %.5f of the pairs inverted, due to claimed p50 %v, p99 %v",
		r.perWin(), r.inverted, r.p50.Round(100*time.Microsecond), r.p99.Round(100*time.Microsecond))
}

// waking simulates the workers of one database.
type waking struct {
	random   *rand.Rand
	now      time.Duration
	events   wakeEvents
	watchers []*Ranks
	due      []time.Duration // of each task
	waiting  []int           // inserted and not claimed, in order
	claimed  map[int]bool
	order    []int
	result   wakeResult
	late     []time.Duration
}

type wakeEvent struct {
	at time.Duration
	do func()
}

type wakeEvents []wakeEvent

func (s wakeEvents) Len() int           { return len(s) }
func (s wakeEvents) Less(i, j int) bool { return s[i].at < s[j].at }
func (s wakeEvents) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *wakeEvents) Push(x any)        { *s = append(*s, x.(wakeEvent)) } //nolint:forcetypeassert // only those are pushed
func (s *wakeEvents) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

func (w *waking) after(d time.Duration, do func()) { heap.Push(&w.events, wakeEvent{w.now + d, do}) }

// takes is how long a message is under way: half a millisecond and some, and one in a
// hundred a good deal longer.
func (w *waking) takes() time.Duration {
	d := 500*time.Microsecond + time.Duration(w.random.ExpFloat64()*float64(500*time.Microsecond))
	if w.random.IntN(100) == 0 {
		d += 10 * time.Millisecond
	}
	return d
}

const wakingFor = time.Minute

func simulateWaking(workers int, rash bool) wakeResult {
	w := &waking{random: rand.New(rand.NewPCG(3, uint64(workers))), claimed: map[int]bool{}}
	for i := range min(workers, store.StreamsPerTypes) {
		r := &Ranks{}
		if !rash {
			r.Learn(store.Watching{Watchers: min(workers, store.StreamsPerTypes), Rank: i})
		}
		w.watchers = append(w.watchers, r)
	}
	for at := time.Duration(0); at < wakingFor; at += time.Duration(w.random.ExpFloat64() * float64(10*time.Millisecond)) {
		w.due = append(w.due, at)
		id := len(w.due) - 1
		w.after(at, func() { w.insert(id) })
	}
	pause := max(time.Second, time.Duration(workers)*time.Second/20) // as pollDelay has it
	for range workers - len(w.watchers) {
		var poll func()
		poll = func() {
			w.after(pause*3/4+time.Duration(w.random.Int64N(int64(pause/2))), poll)
			if len(w.waiting) > 0 { // a fetch follows
				w.after(2*w.takes(), func() { w.claim(slices.Clone(w.waiting), nil) })
			}
		}
		w.after(time.Duration(w.random.Int64N(int64(pause))), poll)
	}
	for len(w.events) > 0 {
		e := heap.Pop(&w.events).(wakeEvent) //nolint:forcetypeassert // as above
		if w.now = e.at; w.now > wakingFor+time.Second {
			break
		}
		e.do()
	}
	w.result.tasks, w.result.won, w.result.inverted = len(w.due), len(w.order), scenario.Inversions(w.order)
	slices.Sort(w.late)
	w.result.p50, w.result.p99 = w.late[len(w.late)/2], w.late[len(w.late)*99/100]
	return w.result
}

// insert makes a task known to those who watch.
func (w *waking) insert(id int) {
	w.waiting = append(w.waiting, id)
	for _, r := range w.watchers {
		w.after(w.takes(), func() {
			d := r.Delay(fmt.Sprint("-/t/", id))
			if d == 0 {
				w.claim([]int{id}, r)
				return
			}
			w.after(d+w.takes(), func() { // it looks first
				if w.claimed[id] {
					r.Waited(1, 0)
					return
				}
				r.Waited(0, 1)
				w.after(w.takes(), func() { w.claim([]int{id}, r) })
			})
		})
	}
}

// claim sends a claim, which is decided when it arrives.
func (w *waking) claim(ids []int, r *Ranks) {
	w.result.attempts += len(ids)
	w.after(w.takes(), func() {
		for _, id := range ids {
			if w.claimed[id] {
				if r != nil {
					r.Lost() // as the follower says
				}
				continue
			}
			w.claimed[id] = true
			w.order = append(w.order, id)
			w.late = append(w.late, w.now-w.due[id])
			w.waiting = slices.DeleteFunc(w.waiting, func(other int) bool { return other == id })
		}
	})
}
