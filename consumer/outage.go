package consumer

import (
	"sync"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/workerevent"
)

// outages keeps the log short where the database comes and goes: at most one outage a minute is logged, with its end.
// An outage that lasts is logged as soon as the minute is over.
type outages struct {
	mu     sync.Mutex
	now    error // of the outage that has not ended; nil = none
	logged bool
	seldom clock.Seldom
}

func (c *Consumer) databaseLost(err error) {
	c.outages.mu.Lock()
	c.outages.now = err
	c.outages.mu.Unlock()
	c.logOutage()
	c.emit(Event{Kind: workerevent.Outage, Reason: err.Error()})
}

// logOutage logs the outage that has not ended, once.
func (c *Consumer) logOutage() {
	o := &c.outages
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.now == nil || o.logged || !o.seldom.Again("", c.cfg.Clock) {
		return
	}
	o.logged = true
	c.log.Warn().Err(o.now).Msg("the database is unavailable; work continues when it is available again")
}

func (c *Consumer) databaseBack() {
	c.leases.PingNow()
	c.store.Forget()
	c.logRestored()
	c.emit(Event{Kind: workerevent.Restored})
	c.wake.now()
	c.lapses.Restored()
}

func (c *Consumer) logRestored() {
	o := &c.outages
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.logged {
		c.log.Warn().Msg("the database is available again")
	}
	o.now, o.logged = nil, false
}
