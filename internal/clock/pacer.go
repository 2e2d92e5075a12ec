package clock

import (
	"sync"
	"time"
)

// restShare is how many times as long as a query took its loop leaves it alone.
const restShare = 20

// Pacer bounds what a loop's query costs the server: a query that took d is not repeated
// before 20 d have passed. The caller still queries when an event announces that there is
// work. It is safe for concurrent use.
type Pacer struct {
	clock       Clock
	least, most time.Duration

	mu     sync.Mutex
	asking int
	next   time.Duration // monotonic: from then on the query may be repeated, by its last answer
}

// NewPacer makes a pacer. The pause between two queries is at least the one duration and at
// most the other, however long a query takes.
func NewPacer(c Clock, least, most time.Duration) *Pacer {
	return &Pacer{clock: c, least: least, most: most}
}

// Do runs the query, whether its time has come or not.
func (p *Pacer) Do(query func() error) error {
	p.mu.Lock()
	p.asking++
	p.mu.Unlock()
	return p.run(query)
}

// Try runs the query if its time has come and no other goroutine runs it; ran reports whether it did.
func (p *Pacer) Try(query func() error) (ran bool, err error) {
	p.mu.Lock()
	if p.asking > 0 || p.clock.Monotonic() < p.next {
		p.mu.Unlock()
		return false, nil
	}
	p.asking++
	p.mu.Unlock()
	return true, p.run(query)
}

func (p *Pacer) run(query func() error) error {
	began := p.clock.Monotonic()
	defer func() {
		ended := p.clock.Monotonic()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asking--
		p.next = ended + min(max(restShare*(ended-began), p.least), p.most)
	}()
	return query()
}

// Left is how long it takes until the query may be repeated; 0 = it may be.
func (p *Pacer) Left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.next-p.clock.Monotonic(), 0)
}
