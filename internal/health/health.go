// Package health knows whether the database answers a process. Loops report every answer
// and every error to a [Monitor]. While the database is away they wait with a [BackOff], which ends
// as soon as any call is answered. After an outage a process writes its own pings and ends
// before it looks for more work.
package health

import (
	"context"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
)

// CallTimeout bounds every call to the database that is not bounded otherwise: a server
// that accepts and never answers must not stop a loop for ever.
const CallTimeout = 20 * time.Second

// Monitor is what a process knows about the database's availability. It is safe for
// concurrent use.
type Monitor struct {
	Trust *claim.Trust // when a lapsed lease may be taken over

	lost func(err error)
	back func()

	mu     sync.Mutex
	down   bool
	era    context.Context // ends when the database answers again after an outage
	endEra context.CancelFunc
	owes   chan struct{} // closed by the first pings after an outage; nil = nothing is owed
}

// New returns a Monitor that has seen no outage. It calls lost when an outage begins and back
// when one ends.
func New(trust *claim.Trust, lost func(err error), back func()) *Monitor {
	m := &Monitor{Trust: trust, lost: lost, back: back}
	m.era, m.endEra = context.WithCancel(context.Background())
	return m
}

// Report takes the error of a call; nil means that the server answered. An error that says nothing about
// the server changes nothing.
func (m *Monitor) Report(err error) {
	switch {
	case err == nil:
		m.answered()
	case store.Away(err):
		m.Trust.Failed()
		m.mu.Lock()
		was := m.down
		m.down = true
		m.mu.Unlock()
		if !was {
			m.lost(err)
		}
	}
}

func (m *Monitor) answered() {
	m.Trust.Answered()
	m.mu.Lock()
	was := m.down
	m.down = false
	if was {
		m.endEra()
		m.era, m.endEra = context.WithCancel(context.Background())
		if m.owes == nil {
			m.owes = make(chan struct{})
		}
	}
	m.mu.Unlock()
	if was {
		m.back()
	}
}

// Down reports whether the last call met an outage.
func (m *Monitor) Down() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.down
}

// current returns the era since the last outage. The end of the next outage ends it.
func (m *Monitor) current() context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.era
}

// Call returns the context of a call that is repeated until it is answered. When another call
// learns that the database is back, this one ends as soon as it has waited for staleCall. Its
// connection may be dead, so that the answer never arrives.
func (m *Monitor) Call(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	call, cancel := context.WithTimeout(ctx, limit)
	began := clock.System().Monotonic() // as real as the timeout
	stop := context.AfterFunc(m.current(), func() {
		clock.Pause(call, staleCall-(clock.System().Monotonic()-began))
		cancel()
	})
	return call, func() {
		stop()
		cancel()
	}
}

// staleCall is how long a call may wait although others are answered. A server under load
// answers late, and each cancelled and repeated call adds to the load.
const staleCall = time.Second

// Pinged records that all due pings have been answered.
func (m *Monitor) Pinged() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owes != nil && !m.down {
		select {
		case <-m.owes:
		default:
			close(m.owes)
		}
	}
}

// Owes reports whether pings and ends must go first, because of an outage.
func (m *Monitor) Owes() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owes != nil
}

// OwnFirst waits, after an outage, until this process has pinged its own leases and ends has
// returned, which waits for the ends that are to be written. The leases of others are as old,
// and a process that looks for work before all have pinged takes it from healthy workers. It
// waits no longer than other processes wait for this one.
func (m *Monitor) OwnFirst(ctx context.Context, ends func(context.Context) error) {
	m.mu.Lock()
	owed := m.owes
	m.mu.Unlock()
	if owed == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, claim.Notice)
	defer cancel()
	select {
	case <-owed:
	case <-ctx.Done():
	}
	_ = ends(ctx) // an end that a transaction holds must not delay this
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owes == owed {
		m.owes = nil
	}
}
