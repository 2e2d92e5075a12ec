package stats

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
)

// Span is a time that charts show, in slots of one resolution.
type Span string

// The spans.
const (
	Hour Span = "hour"
	Day  Span = "day"
	Week Span = "week"
)

// resolution is that of the span's slots, and how many there are.
func (s Span) resolution() (r measure.Resolution, slots int) {
	switch s {
	case Day:
		return measure.Resolutions[1], 96
	case Week:
		return measure.Resolutions[2], 84
	default:
		return measure.Resolutions[0], 60
	}
}

// settled is how long after a time all processes have recorded what they did up to then.
const settled = 90 * time.Second

// slots are the beginnings of the span's slots: the last one is of the latest time that all processes have
// recorded. So a minute is shown when it is over, and a longer slot while it goes on.
func (s Span) slots(now time.Time) (r measure.Resolution, begins []time.Time) {
	r, n := s.resolution()
	last := now.Add(-settled).UTC().Truncate(r.Slot)
	for i := range n {
		begins = append(begins, last.Add(time.Duration(i-n+1)*r.Slot))
	}
	return r, begins
}

// Series is what has happened in a span of time, as JSON.
type Series struct {
	Window Span                `json:"window"`
	Type   string              `json:"type,omitempty" doc:"absent: all types together"`
	At     string              `json:"at" format:"date-time" doc:"the database's time"`
	SlotMS int64               `json:"slot_ms" doc:"how long a slot is"`
	Sum    Slot                `json:"sum" doc:"all slots together; its time is when the first one begins"`
	Slots  []Slot              `json:"slots" doc:"in their order. A minute is listed when all processes have recorded it; the last slot of a day or a week goes on"`
	Late   map[string]Lateness `json:"late,omitempty" doc:"of all types together alone, by kind: how late engines decided what was due. Those of kind periodic are ticks"`
}

// Slot is what has happened in one of them.
type Slot struct {
	At        string           `json:"at" format:"date-time" doc:"when it begins"`
	Succeeded int64            `json:"succeeded" doc:"executions that succeeded"`
	Failed    int64            `json:"failed" doc:"executions that ended with an error, a timeout or a panic"`
	Other     int64            `json:"other" doc:"executions that ended without a result: released or cancelled"`
	Outcomes  map[string]int64 `json:"outcomes,omitempty" doc:"all of them by outcome: success or the fail_kind"`
	Delay     *Quantiles       `json:"delay_ms,omitempty" doc:"from due to started; absent where nothing started"`
	Ran       *Quantiles       `json:"ran_ms,omitempty" doc:"how long handlers ran; absent where none returned"`
}

// Quantiles are estimates from the buckets of a histogram, in milliseconds.
type Quantiles struct {
	Count  int64 `json:"count"`
	Median int64 `json:"p50"`
	P95    int64 `json:"p95"`
	Max    int64 `json:"max" doc:"none was longer; 7200000: some were, or this long"`
}

// Lateness is how late things were decided.
type Lateness struct {
	Quantiles
	Late int64 `json:"late" doc:"by more than ten seconds"`
}

// SeriesOf reads what has happened to tasks of a type, or of all types, in a span of time up to now.
func SeriesOf(ctx context.Context, s *store.Store, span Span, typ string) (Series, error) {
	if typ != "" {
		if err := input.Name("type", typ); err != nil {
			return Series{}, err
		}
	}
	now, err := timeOf(ctx, s)
	if err != nil {
		return Series{}, err
	}
	r, begins := span.slots(now)
	found, err := s.Series.Of(ctx, r, typ, begins[0], begins[len(begins)-1].Add(r.Slot))
	if err != nil {
		return Series{}, err
	}
	out := Series{Window: span, Type: typ, At: stamp(now), SlotMS: r.Slot.Milliseconds()}
	by := map[time.Time]store.SeriesSlot{}
	sum := store.SeriesSlot{At: begins[0], Ended: map[string]int64{}, Delay: measure.Histogram{}, Ran: measure.Histogram{}}
	late := map[string]measure.Histogram{}
	for _, slot := range found {
		by[slot.At.UTC()] = slot
		add(sum.Ended, slot.Ended)
		add(sum.Delay, slot.Delay)
		add(sum.Ran, slot.Ran)
		for kind, h := range slot.Late {
			if late[kind] == nil {
				late[kind] = measure.Histogram{}
			}
			add(late[kind], h)
		}
	}
	for _, at := range begins {
		slot := by[at]
		slot.At = at
		out.Slots = append(out.Slots, slotOf(slot))
	}
	out.Sum = slotOf(sum)
	for kind, h := range late {
		if out.Late == nil {
			out.Late = map[string]Lateness{}
		}
		out.Late[kind] = Lateness{*quantiles(h), h.Over(tickplan.MissedAfter)}
	}
	return out, nil
}

// timeOf is the database's time, if the store may be used.
func timeOf(ctx context.Context, s *store.Store) (time.Time, error) {
	if err := s.Ready(ctx); err != nil {
		return time.Time{}, err
	}
	return s.ServerTime(ctx)
}

func add[M ~map[string]int64](sum, more M) {
	for name, n := range more {
		sum[name] += n
	}
}

func slotOf(s store.SeriesSlot) Slot {
	out := Slot{At: stamp(s.At), Delay: quantiles(s.Delay), Ran: quantiles(s.Ran)}
	if len(s.Ended) > 0 {
		out.Outcomes = s.Ended
	}
	out.Succeeded, out.Failed, out.Other = outcomes(s.Ended)
	return out
}

// outcomes tells apart how executions ended.
func outcomes(ended map[string]int64) (succeeded, failed, other int64) {
	for outcome, n := range ended {
		switch {
		case outcome == measure.Success:
			succeeded += n
		case lifecycle.Costs(outcome):
			failed += n
		default:
			other += n
		}
	}
	return succeeded, failed, other
}

func quantiles(h measure.Histogram) *Quantiles {
	n := h.Count()
	if n == 0 {
		return nil
	}
	ms := func(share float64) int64 { return h.Quantile(share).Round(time.Millisecond).Milliseconds() }
	return &Quantiles{n, ms(0.5), ms(0.95), ms(1)}
}

// SeriesOfTypes is how many executions have ended in each slot, by type.
type SeriesOfTypes struct {
	Window   Span         `json:"window"`
	At       string       `json:"at" format:"date-time" doc:"the database's time"`
	From     string       `json:"from" format:"date-time" doc:"when the first slot begins"`
	SlotMS   int64        `json:"slot_ms" doc:"how long a slot is"`
	Complete bool         `json:"complete" doc:"false: so many types had tasks that some are left out"`
	Types    []TypeSeries `json:"types" doc:"those of which an execution has ended, by name. Each process counts a hundred types by name, and further ones as other"`
}

// TypeSeries are the executions of one type by slot.
type TypeSeries struct {
	Type   string  `json:"type"`
	Ended  []int64 `json:"ended" doc:"for each slot; an execution may fail or be released, too"`
	Failed []int64 `json:"failed" doc:"how many of them ended with an error, a timeout or a panic"`
}

// SeriesOfAll reads how many executions of each type have ended in a span of time up to now.
func SeriesOfAll(ctx context.Context, s *store.Store, span Span) (SeriesOfTypes, error) {
	now, err := timeOf(ctx, s)
	if err != nil {
		return SeriesOfTypes{}, err
	}
	r, begins := span.slots(now)
	found, more, err := s.Series.Ended(ctx, r, begins[0], begins[len(begins)-1].Add(r.Slot))
	if err != nil {
		return SeriesOfTypes{}, err
	}
	by := map[string]TypeSeries{}
	for _, slot := range found {
		t, there := by[slot.Type]
		if !there {
			t = TypeSeries{slot.Type, make([]int64, len(begins)), make([]int64, len(begins))}
			by[slot.Type] = t
		}
		succeeded, failed, other := outcomes(slot.Ended)
		i := int(slot.At.Sub(begins[0]) / r.Slot)
		t.Ended[i], t.Failed[i] = succeeded+failed+other, failed
	}
	out := SeriesOfTypes{Window: span, At: stamp(now), From: stamp(begins[0]), SlotMS: r.Slot.Milliseconds(), Complete: !more, Types: []TypeSeries{}}
	for _, typ := range slices.Sorted(maps.Keys(by)) {
		if t := by[typ]; slices.ContainsFunc(t.Ended, func(n int64) bool { return n > 0 }) {
			out.Types = append(out.Types, t)
		}
	}
	return out, nil
}
