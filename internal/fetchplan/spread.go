package fetchplan

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// spread decides where in the queue a worker looks. A worker alone looks at the head and
// keeps exact order. Workers of a crowd, which fetch at the same time, would all see the same
// head and claim the same tasks. So each of them starts at a random due_at in its strip of the
// queue between the known head and tail, within the greatest priority that has tasks. Every few
// seconds the strips go round, so none waits for a worker that is busy or dead. If many tasks
// share a millisecond it also skips a few batches, and how many goes by its strip, too. The server
// walks over one index key for each skipped task, so these are few.
//
// Now and then each worker of the crowd looks at the head itself, where stragglers and greater
// priorities are. spread is pure; the simulation in spread_test.go runs it.
type spread struct {
	crowded bool
	calm    int           // consecutive looks with few lost claims
	trust   int           // how many of them end the crowd; doubled each time that the crowd returns at once
	among   float64       // how many batches it chooses among at one place
	slow    float64       // how many times as long as from a look to its claim it rests after that
	headAt  time.Duration // monotonic: when to look at the head again
	allAt   time.Duration // monotonic: when to name all greater priorities again
	opening int           // so many looks are the first of a crowd whose tasks share a millisecond
	strip   int           // its part of the queue, among those of all workers; any number, they go round
	misses  int           // looks in a row, since the last that found something, that were past the end
	field   field
}

// field is the part of the queue in which a crowd looks: the tasks of one priority.
type field struct {
	priority   int
	first      *model.Task   // as it was last seen; nil = nothing is known
	head, tail time.Time     // due_at of the first and the last; zero tail = not known
	tailAt     time.Duration // monotonic: when the tail was asked
	gap        time.Duration // between moments at which many tasks each are due; 0 = they are due all along
	depth      int           // about how many tasks there are; 0 = not known
}

// Aim is the place of a look.
type Aim struct {
	atHead   bool      // with no bound but the known head
	from     time.Time // unless atHead: tasks due before are not looked at
	priority int       // unless atHead: those of lower priorities neither
	all      bool      // of greater priorities all are looked at, not only those in use
	scout    bool      // the found tasks are not claimed, because others see them, too
	skip     int       // tasks to pass over
	take     int
}

// place returns where the look goes in a queue with the given knowledge: the priorities to
// name, nil = all, and the lower bound of due_at.
func (a Aim) place(l claim.Look) (priorities []int, from time.Time) {
	switch {
	case a.atHead:
		return l.Priorities, l.From
	case a.all:
		for p := a.priority; p <= input.MaxPriority; p++ {
			priorities = append(priorities, p)
		}
	default:
		priorities = slices.DeleteFunc(slices.Clone(l.Priorities), func(p int) bool { return p <= a.priority })
		priorities = slices.Insert(priorities, 0, a.priority)
	}
	return priorities, a.from
}

const (
	// fewLost and littleLost are shares of the claims of a batch. Up to a tenth lost costs
	// less than smaller batches, or than more skipped tasks, would.
	fewLost    = 0.1
	littleLost = 0.05
	// leastShare is how many tasks a worker takes at the end of a queue, at least. Quick ones
	// are at least as many as start within quickShare, up to a quarter of a batch: a command for
	// few of them would cost more than they do.
	leastShare = 2
	quickShare = 100 * time.Millisecond
	// perWorker is how many batches for each worker a crowd looks among, in time.
	perWorker = 16
	// leastTrust and mostTrust are limits of spread.trust.
	leastTrust = 16
	mostTrust  = 256
	// headPause is the time between two looks at the head, in a crowd together.
	headPause = 500 * time.Millisecond
	// blindly is how many tasks a worker may take where it cannot see how many share a moment. Of
	// more it takes half.
	blindly = 250
	// golden is the part of a whole by which the places of successive strips differ among tasks of
	// one moment: so any number of neighbours lie evenly apart.
	golden = 0.6180339887498949
	// stripTime is how long a worker has a strip.
	stripTime = 4 * time.Second
	// tailPause is how long the tail counts as known.
	tailPause   = 5 * time.Second
	maxMisses   = 2
	slower      = 4.0 // for each share lost
	nearer      = 0.25
	quicker     = 0.1
	longestRest = 2 * time.Second
	// openingLooks is how many looks of a new crowd take few tasks.
	openingLooks = 2
	// scouted is how many tasks a scout reads: enough to see whether they share a millisecond.
	scouted = 20
	// maxSkip bounds how many tasks a look passes over.
	maxSkip = 16_000
)

// mostAmong bounds spread.among. On average half as many batches are skipped, which the
// server's time for lost claims must pay for: the optimum grows with the root of the crowd.
func mostAmong(workers int) float64 { return min(0.5+0.5*float64(max(workers, 2)), 64) }

// mostSlow bounds spread.slow: a quarter of the crowd or less is between a look and its claim
// then, and a small crowd is not kept from its work.
func mostSlow(workers int) float64 { return min(2.5+float64(workers)/5, 6) }

// crowd expects so many workers to fetch at once, as when a fleet starts on a backlog.
func (s *spread) crowd(workers int) {
	if workers > 1 && !s.crowded {
		s.enter(workers)
	}
}

// stand takes the strip of the worker of that rank, from 0, at the time, which is the store's.
func (s *spread) stand(rank int, at time.Time) {
	s.strip = rank + int(at.UnixMilli()/stripTime.Milliseconds())
}

func (s *spread) enter(workers int) {
	if s.calm < s.trust { // it has just ended
		s.trust = min(2*s.trust, mostTrust)
	} else {
		s.trust = leastTrust
	}
	s.crowded, s.calm, s.among = true, 0, mostAmong(workers)
}

// look returns where to look for n tasks. The worker starts quick tasks within quickShare.
func (s *spread) look(n, quick, workers int, now time.Duration, r *rand.Rand) Aim {
	switch {
	case !s.crowded:
		return Aim{atHead: true, take: n}
	case s.field.first == nil: // the start of a crowd: all of it looks at the head now
		return Aim{atHead: true, scout: true, take: scouted}
	case now >= s.headAt || s.misses >= maxMisses:
		return Aim{atHead: true, take: max(s.share(n, quick, workers), (n+1)/2)} // others look there, too
	}
	f := &s.field
	a := Aim{priority: f.priority, from: f.head, take: s.share(n, quick, workers)}
	if now >= s.allAt {
		a.all, s.allAt = true, now+claim.FullEvery
	}
	length := f.tail.Sub(f.head)
	if f.depth > 0 {
		if wanted := perWorker * max(workers, 2) * n; f.depth > wanted {
			length = time.Duration(float64(length) * float64(wanted) / float64(f.depth))
		}
	}
	if length > 0 && (s.misses == 0 || s.among <= 1) { // after a miss among the tasks of the first moment
		// From before the head, so that its moment has as many strips as each later one. In the first
		// half of the strip, since the batch goes on from there.
		gap := min(f.gap, length)
		each := (length + gap) / time.Duration(max(workers, 1))
		first := each*time.Duration(s.strip%max(workers, 1)) - gap
		a.from = f.head.Add(first + time.Duration(r.Int64N(int64(each/2)+1))).Truncate(time.Millisecond)
	}
	if s.among > 1 {
		a.take = min(a.take, max(1, int(maxSkip/s.among)))
		reach := int((s.among - 1) * float64(a.take))
		if s.opening > 0 { // all look at one moment, since nothing has kept them apart yet
			s.opening--
			a.take = min(a.take, max(leastShare, reach/(2*max(workers, 2))))
		}
		a.skip = s.pass(reach, workers, r)
	}
	return a
}

// pass is how many tasks to pass over, reach at most, in the part of them that is the strip's own.
func (s *spread) pass(reach, workers int, r *rand.Rand) int {
	_, part := math.Modf(golden * float64(s.strip%(1<<20)))
	return int((part+r.Float64()/float64(max(workers, 1)))*float64(reach)) % (reach + 1)
}

// share is how many of n tasks to take. Near the end each worker takes a few, or the first would
// leave nothing to the others. Of a large crowd more look at once. No batch is more than a worker's
// part of what is left, however quick the tasks are.
func (s *spread) share(n, quick, workers int) int {
	depth := s.field.depth
	switch {
	case depth == 0 && s.field.gap > 0: // the moment may end here
		return max(min(n, blindly), n/2)
	case depth == 0:
		return n
	}
	workers = max(workers, 2)
	parts := workers * min(max(workers/4, 2), 4)
	return min(n, max(leastShare, min(quick, n/4, depth/workers), depth/parts))
}

// wantsTail reports whether to query the tail of the field.
func (s *spread) wantsTail(now time.Duration) bool {
	f := &s.field
	return s.crowded && f.first != nil && (f.tail.IsZero() || now-f.tailAt >= tailPause)
}

// sawTail records the tail.
func (s *spread) sawTail(tail time.Time, now time.Duration) {
	f := &s.field
	if tail.Before(f.head) {
		tail = f.head
	}
	if tail.After(f.tail) {
		f.depth = 0 // it was of less
	}
	f.tail, f.tailAt = tail, now
}

// saw records what a look found. again asks for another look at once in its place: after a
// scout, or nearer to the head after a look past the end, which shows nothing of the queue.
func (s *spread) saw(a Aim, found []*model.Task, workers int, now time.Duration, r *rand.Rand) (again bool) {
	f := &s.field
	switch {
	case len(found) == 0 && a.atHead:
		*s = spread{strip: s.strip} // nothing to do, so no competition
		return a.scout
	case len(found) == 0:
		s.misses++
		if a.skip > 0 {
			if f.depth == 0 || f.depth > a.skip {
				f.depth = a.skip
			}
			s.among = max(1, s.among/2)
		} else {
			f.tail = a.from
		}
		return true
	}
	s.misses = 0
	first := found[0]
	if a.atHead {
		s.headAt = now + time.Duration((0.5+r.Float64())*float64(min(max(time.Duration(workers)*headPause, time.Second), time.Minute)))
	}
	if a.atHead || first.Priority != f.priority {
		if first.Priority != f.priority {
			*f = field{priority: first.Priority}
		}
		f.first, f.head = first, first.DueAt
	}
	if a.scout {
		if found[len(found)-1].DueAt.After(first.DueAt) {
			s.among = 1 // there are places enough in time
		} else {
			s.slow = mostSlow(workers) * 2 / 3
			s.opening = openingLooks
		}
		return true
	}
	n, last := 0, f.head
	for _, t := range found {
		if t.Priority == f.priority {
			n, last = n+1, t.DueAt
		}
	}
	from := f.head
	if !a.atHead {
		if a.from.After(from) {
			from = a.from
		}
		hole := first.DueAt.Sub(from)
		if n > 1 && last.Equal(first.DueAt) {
			f.gap = max(f.gap, hole)
		} else {
			f.gap /= 2
		}
		if a.skip == 0 && hole > from.Sub(f.head) && (f.gap == 0 || from.Equal(f.head)) {
			f.first, f.head = first, first.DueAt // so much was taken already that the head has probably come here
		}
	}
	if n < a.take { // the end of the field
		f.tail, f.tailAt = last, now
	}
	before := f.depth
	f.depth = 0
	if whole, part := f.tail.Sub(f.head), last.Sub(from); whole <= 0 && n < a.take {
		f.depth = a.skip + n
	} else if whole > 0 && part > 0 {
		depth := float64(a.skip+n) * float64(whole) / float64(part)
		if before > 0 {
			depth = math.Sqrt(depth * float64(before))
		}
		f.depth = max(1, int(depth))
	}
	return false
}

// rest is how long to wait before the next look, after a look and its claim kept the server
// busy for the given time. In a crowd that keeps the server busy some workers must wait. It is
// better to wait here than between a look and its claim, where others claim the same tasks.
func (s *spread) rest(took time.Duration) time.Duration {
	if !s.crowded {
		return 0
	}
	return min(time.Duration(s.slow*float64(took)), longestRest)
}

// learn adapts to how a claim went, in a fleet of so many workers.
func (s *spread) learn(won, lost, workers int) {
	if won+lost == 0 {
		return
	}
	share := float64(lost) / float64(won+lost)
	switch {
	case share > fewLost && !s.crowded:
		s.enter(workers)
	case share > fewLost:
		s.calm = 0
		if s.among++; s.among > mostAmong(workers) {
			s.among, s.slow = mostAmong(workers), min(s.slow+slower*share, mostSlow(workers))
		}
	default:
		s.calm = min(s.calm+1, mostTrust)
		switch {
		case share >= littleLost:
		case s.slow > 0:
			s.slow = max(0, s.slow-quicker)
		default:
			s.among = max(1, s.among-nearer)
		}
		if s.crowded && (s.calm >= s.trust || workers <= 1) {
			s.crowded, s.calm = false, 0
		}
	}
}
