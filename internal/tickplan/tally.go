package tickplan

import (
	"slices"

	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// What became of a tick, for [Tally]. A tick that does not run has a [schedule.SkipReason] instead.
const (
	TickStarted = "started"
	TickQueued  = "queued" // it counts as started, too, when its turn comes
)

// Tallied are all that [Tally] counts.
var Tallied = []string{
	TickStarted, TickQueued, string(SkipOverlap), string(SkipFailure), string(SkipConcurrency), string(SkipMissed), string(SkipPaused), string(SkipEdited), string(SkipCapacity),
}

// Tally counts what a decision made of ticks, by what became of them. It does not count runs that a
// person started. Of a rule without records it knows only the last of several reasons to skip.
func Tally(before, after *schedule.Rule) map[string]int64 {
	n := map[string]int64{}
	add := func(what string, count int64) {
		if count > 0 {
			n[what] += count
		}
	}
	skipped := func(id string, count int64) int64 { // by this decision
		if before.Range != nil && before.Range.ID == id {
			count -= before.Range.Count
		}
		return count
	}
	for i := range after.Planned {
		p := &after.Planned[i]
		if slices.ContainsFunc(before.Planned, func(old schedule.Planned) bool { return old.ID == p.ID }) {
			continue
		}
		if t := p.Task; t != nil && t.Origin != nil && t.Origin.Tick != nil && !t.Origin.Tick.Manual {
			add(TickStarted, 1)
		}
		if r := p.Record; r != nil && r.Status == schedule.RunSkipped {
			add(string(r.Reason), skipped(r.ID, r.Count))
		}
	}
	for _, q := range after.Queued {
		if !q.Manual && !slices.ContainsFunc(before.Queued, func(old schedule.RunRef) bool { return old.ID == q.ID }) {
			add(TickQueued, 1)
		}
	}
	if r := after.Range; r != nil && after.Log == schedule.LogNone {
		add(string(r.Reason), skipped(r.ID, r.Count))
	}
	return n
}
