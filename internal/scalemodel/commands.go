package scalemodel

import (
	"math"
	"time"

	"github.com/mscheduler/mscheduler/internal/control"
	"github.com/mscheduler/mscheduler/internal/lapse"
	"github.com/mscheduler/mscheduler/internal/lease"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/presence"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/stream"
	"github.com/mscheduler/mscheduler/internal/upkeep"
)

// Rates are commands a second of a whole fleet, by what they are for.
type Rates struct {
	Polls      float64 `json:"polls"`   // is there anything to claim, and is anything executing
	Control    float64 `json:"control"` // reads of the control document
	Heartbeats float64 `json:"heartbeats"`
	Counts     float64 `json:"counts"` // of the live workers: each reads the ids of all
	Seats      float64 `json:"seats"`  // of change streams, and their events
	Upkeep     float64 `json:"upkeep"` // who does it, and looks whether there is any
	Scans      float64 `json:"scans"`  // for lapsed leases
	Pings      float64 `json:"pings"`
	Tasks      float64 `json:"tasks"` // claims, looks for more, and ends
}

// All is the sum.
func (r Rates) All() float64 {
	return r.Polls + r.Control + r.Heartbeats + r.Counts + r.Seats + r.Upkeep + r.Scans + r.Pings + r.Tasks
}

func perSecond(d time.Duration) float64 { return 1 / d.Seconds() }

// Idle is what a fleet sends that has nothing to do. Its workers serve the same types, so two of
// them watch a change stream.
func Idle(workers int) Rates {
	n := float64(workers)
	watch := min(n, store.StreamsPerTypes)
	poll := n - watch
	pause := presence.PollPause(workers)
	const reread = presence.PollWatching * 3 / 4 // a poll reads an older copy of the control document again
	return Rates{
		Polls:      watch*perSecond(presence.PollWatching) + poll*perSecond(pause),
		Control:    watch*perSecond(presence.PollWatching) + poll*perSecond(max(pause, reread+pause/2)),
		Heartbeats: n * perSecond(store.HeartbeatInterval),
		Counts:     watch*perSecond(presence.CountWatching) + poll*perSecond(presence.CountPolling),
		Seats: watch*(perSecond(stream.RenewEvery)+perSecond(stream.LookEvery)+perSecond(store.StreamAwait)) +
			poll*perSecond(stream.SeatRetry),
		Upkeep: (n + 2) * perSecond(upkeep.IdlePause), // one of them also looks, with two queries
	}
}

// Holding is how many workers hold so many executions, where tasks come one by one: the watchers
// claim them while they have slots.
func Holding(workers int, executing float64) float64 {
	return min(float64(workers), max(min(store.StreamsPerTypes, executing), executing/slots))
}

// Busy is what a fleet sends that gets the given number of tasks a second, one by one. Each of them
// executes for the time takes.
func Busy(workers int, tasks float64, takes time.Duration) Rates {
	n, holding := float64(workers), Holding(workers, tasks*takes.Seconds())
	r := Idle(workers)
	r.Control = r.Control*(n-holding)/n + holding*perSecond(control.MaxAge)
	r.Counts = holding*perSecond(store.HeartbeatInterval) + (n-holding)*perSecond(presence.CountPolling)
	r.Seats += tasks * min(n, store.StreamsPerTypes) // each event is an answer
	r.Upkeep = (holding+2)*perSecond(upkeep.BusyPause) + (n-holding)*perSecond(upkeep.IdlePause)
	r.Scans = n * perSecond(lapse.ScanPause(workers))
	r.Pings = min(Pinged(tasks, takes), holding*perSecond(lease.LongestPause))
	r.Tasks = 3 * tasks // the claim, a look for more, the end
	return r
}

// pingedEvery is the time between two pings of a lease.
const pingedEvery = lifecycle.DefaultPingInterval - lifecycle.DefaultPingInterval/lease.Early + lease.LongestPause/2

// Pinged is how many leases are extended a second. Those of a worker that are due within a second
// go out as one command.
func Pinged(tasks float64, takes time.Duration) float64 {
	return tasks * math.Floor(takes.Seconds()/pingedEvery.Seconds())
}
