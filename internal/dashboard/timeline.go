package dashboard

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// timeline is the picture of a task's executions: a row for each, from its claim to its end, with the time for which its
// lease holds.
type timeline struct {
	Width, Height int
	Ticks         []mark
	Rows          []lane
	Start         float64 // where the start time is
}

type mark struct {
	X    float64
	Text string
}

// lane is one execution.
type lane struct {
	Y          int
	X, Width   float64
	Lease      float64 // where its lease ends, or ended; 0 = not shown
	Class      string
	Label, End string
}

const (
	timelineWidth = 900
	timelineLeft  = 190
	laneHeight    = 26
	mostLanes     = 40
)

// timelineOf draws a task; bars of executions that go on end now.
func timelineOf(task document, now time.Time) *timeline {
	states := list(task["worker_states"])
	if len(states) == 0 {
		return nil
	}
	left := len(states) - mostLanes
	states = states[max(0, left):]
	first, _ := instant(object(states[0])["claimed_at"])
	last := first
	ends := make([]time.Time, len(states))
	for i, s := range states {
		w := object(s)
		end, ended := now, false
		for _, name := range []string{"success_time", "fail_time"} {
			if at, ok := instant(w[name]); ok {
				end, ended = at, true
			}
		}
		if lease, ok := instant(w["ping_expire_time"]); ok && !ended && lease.After(end) {
			last = clock.Later(last, lease)
		}
		ends[i], last = end, clock.Later(last, end)
	}
	whole := max(last.Sub(first), time.Millisecond)
	x := func(at time.Time) float64 {
		return timelineLeft + float64(at.Sub(first))/float64(whole)*(timelineWidth-timelineLeft-70)
	}
	t := &timeline{Width: timelineWidth, Height: laneHeight*len(states) + 26}
	for i, s := range states {
		w := object(s)
		claimed, _ := instant(w["claimed_at"])
		l := lane{Y: i * laneHeight, X: x(claimed), Width: max(x(ends[i])-x(claimed), 3), Label: text(w["worker_id"]), End: span(ends[i].Sub(claimed)), Class: "run"}
		switch lease, ok := instant(w["ping_expire_time"]); {
		case text(w["success_time"]) != "":
			l.Class = "good"
		case text(w["fail_time"]) != "":
			l.Class, l.End = "bad", text(w["fail_kind"])
		case ok:
			l.Lease = x(lease)
		}
		t.Rows = append(t.Rows, l)
	}
	for i := range 5 {
		after := whole * time.Duration(i) / 4
		t.Ticks = append(t.Ticks, mark{X: x(first.Add(after)), Text: "+" + span(after)})
	}
	return t
}

// LeaseWidth is how far the lease reaches.
func (l lane) LeaseWidth() float64 { return l.Lease - l.X }

// EndX is where the bar ends.
func (l lane) EndX() float64 { return l.X + l.Width }
