package callback

import (
	"math/rand/v2"
	"sync"
	"time"
)

// receivers keeps one that does not answer, or answers slowly, from taking all the slots of a
// process: each call of it holds one for up to the whole timeout, while those of others would take
// milliseconds. As long as its last call was not answered quickly, only so many are made at once,
// and the deliveries beyond get turns, one after the other: each costs the database two
// writes to be put off, so what they cost must not grow with how many there are.
type receivers struct {
	most int // calls at once of one that is silent; at least 1

	mu    sync.Mutex
	hosts map[string]*host
}

type host struct {
	calls  int
	silent bool          // its last call got no answer, or a slow one
	next   time.Duration // the first turn that nobody has, by the monotonic clock
}

const (
	// slowAfter is the longest that a call may take without a limit on its receiver.
	slowAfter = 2 * time.Second
	// remembered bounds the hosts that are known: beyond it all are forgotten, and learned again.
	remembered = 10_000
	// firstTurn is how long a delivery waits, at least, for its turn at a silent receiver.
	firstTurn = 5 * time.Second
	// turnEvery is the time between two turns. A silent receiver takes about one call a
	// second, so most turns find no place; but when it answers again, this is how fast it
	// gets what has waited.
	turnEvery = 200 * time.Millisecond
	// lastTurn is how far off a turn is, at most: after so long even the last of a queue
	// hears that the receiver answers again.
	lastTurn = 2 * time.Hour
)

// enter begins a call, and leave ends it: answered says whether the host answered, left is the time. leave is nil
// when the host is silent and has its share: then wait is how long the delivery waits for its turn.
func (r *receivers) enter(name string, now time.Duration) (leave func(answered bool, left time.Duration), wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.hosts[name]
	if h == nil {
		if r.hosts == nil || len(r.hosts) >= remembered {
			r.hosts = map[string]*host{}
		}
		h = &host{}
		r.hosts[name] = h
	}
	if h.silent && h.calls >= r.most {
		return nil, h.turn(now)
	}
	h.calls++
	return func(answered bool, left time.Duration) {
		r.mu.Lock()
		defer r.mu.Unlock()
		h.calls--
		h.silent = !answered || left-now > slowAfter
		if h.calls == 0 && !h.silent && r.hosts[name] == h {
			delete(r.hosts, name)
		}
	}, 0
}

// turn is how long a delivery waits that finds no place now.
func (h *host) turn(now time.Duration) time.Duration {
	h.next = max(h.next, now+firstTurn)
	wait := h.next - now
	if wait > lastTurn { // all turns are taken
		return lastTurn - rand.N(lastTurn/2)
	}
	h.next += turnEvery
	return wait
}
