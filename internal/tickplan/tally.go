package tickplan

import (
	"cmp"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// What became of a tick, for [Tally]. A tick that does not run has a reason instead, see Reason of [schedule.Run].
const (
	TickStarted = "started"
	TickQueued  = "queued" // it counts as started, too, when its turn comes
)

// Tallied are all that [Tally] counts.
var Tallied = []string{
	TickStarted, TickQueued, string(SkipOverlap), string(SkipFailure), string(SkipConcurrency), string(SkipMissed), string(SkipPaused), string(SkipEdited), string(SkipCapacity),
}

// Tick is what a decision made of a tick, or of consecutive ticks that it skipped for one reason.
type Tick struct {
	Nominal time.Time // of skipped ticks: of the last one
	Result  string    // one of Tallied
	Count   int64
	Manual  bool        // a run that a person started
	Task    *model.Task // nil = it waits, or was skipped
}

// Ticks are what a decision made of ticks, and the runs of people whose tasks it sends. Of a rule without
// records it knows only the last of several reasons to skip.
func Ticks(before, after *schedule.Rule) (ticks []Tick) {
	skipped := func(id string, nominal time.Time, why string, count int64, manual bool) {
		if before.Range != nil && before.Range.ID == id {
			count -= before.Range.Count // by this decision
		}
		if count > 0 {
			ticks = append(ticks, Tick{Nominal: nominal, Result: why, Count: count, Manual: manual})
		}
	}
	for i := range after.Planned {
		p := &after.Planned[i]
		if slices.ContainsFunc(before.Planned, func(old schedule.Planned) bool { return old.ID == p.ID }) {
			continue
		}
		if t := p.Task; t != nil && t.Origin != nil && t.Origin.Tick != nil {
			ticks = append(ticks, Tick{Nominal: t.Origin.Tick.Nominal, Result: TickStarted, Count: 1, Manual: t.Origin.Tick.Manual, Task: t})
		}
		if r := p.Record; r != nil && r.Status == schedule.RunSkipped {
			skipped(r.ID, cmp.Or(r.Last, r.Nominal), r.Reason, r.Count, r.Manual)
		}
	}
	for _, q := range after.Queued {
		if !q.Manual && !slices.ContainsFunc(before.Queued, func(old schedule.RunRef) bool { return old.ID == q.ID }) {
			ticks = append(ticks, Tick{Nominal: q.Nominal, Result: TickQueued, Count: 1})
		}
	}
	if r := after.Range; r != nil && after.Log == schedule.LogNone {
		skipped(r.ID, r.Last, r.Reason, r.Count, false)
	}
	return ticks
}

// Tally counts what a decision made of ticks, by what became of them. It does not count runs that a
// person started.
func Tally(before, after *schedule.Rule) map[string]int64 {
	n := map[string]int64{}
	for _, t := range Ticks(before, after) {
		if !t.Manual {
			n[t.Result] += t.Count
		}
	}
	return n
}
