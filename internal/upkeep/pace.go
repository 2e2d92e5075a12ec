package upkeep

import (
	"sync/atomic"
	"time"
)

// How often a process looks: one that works soon, an idle one rarely.
const (
	BusyPause = 5 * time.Second
	IdlePause = time.Minute
)

// Pace is how often a process looks, while it works and while it is idle. The permit
// of one that died is free after two of its pauses and the grace.
type Pace struct {
	Busy, Idle time.Duration
	Grace      time.Duration
}

var hurried atomic.Pointer[Pace]

// Hurry sets the pace of keepers that are made from now on in this process. It is for
// tests that kill processes and must not wait minutes for what is left over.
func Hurry(p Pace) { hurried.Store(&p) }

func pace() Pace {
	if p := hurried.Load(); p != nil {
		return *p
	}
	return Pace{Busy: BusyPause, Idle: IdlePause, Grace: 10 * time.Second}
}
