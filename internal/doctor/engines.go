package doctor

import (
	"context"
	"time"

	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
)

// engine is a kind of engine, and what the examination says of its work.
type engine struct {
	check, typ                  string
	work                        func(st *store.Store, found func()) store.Question // has it something to do?
	none, lives, nobody, advice string
}

var engines = []engine{{
	"rules", tickplan.EngineType,
	func(st *store.Store, found func()) store.Question {
		return st.Rules.NextQuestion(time.UnixMilli(0), func(time.Time) { found() })
	},
	"no rule has a next tick",
	"rules have ticks to come, and a live engine decides them",
	"rules have ticks to come, but there is no live engine of rules: no rule fires",
	"start one: mscheduler work --periodic, or a service that calls periodic.Periodic.Run",
}, {
	"flows", flowplan.EngineType,
	func(st *store.Store, found func()) store.Question { return st.Flows.RunningQuestion(found) },
	"no node of a flow runs or may run",
	"nodes run, and a live engine carries their flows on",
	"nodes of flows may run, but there is no live engine of flows: the nodes behind them do not start",
	"start one: mscheduler work --flow, or a service that calls flow.Flows.Run",
}, {
	"plans", stepplan.EngineType,
	func(st *store.Store, found func()) store.Question { return st.Plans.RunningQuestion(found) },
	"no plan has a step that waits or runs",
	"steps wait or run, and a live engine plans those behind them",
	"steps of plans wait or run, but there is no live engine of plans: the steps behind them do not start",
	"start one: mscheduler work --plan, or a service that calls plan.Plans.Run",
}}

// engines says whether an engine lives for the rules, flows and plans that have something to do.
func (d *doctor) engines(ctx context.Context, lives func(typ string) bool) {
	for _, e := range engines {
		found := false
		err := d.store.Ask(ctx, "looking for work of engines", e.work(d.store, func() { found = true }))
		switch {
		case err != nil:
			d.fail(e.check, err, "")
		case !found:
			d.ok(e.check, "%s", e.none)
		case lives(e.typ):
			d.ok(e.check, "%s", e.lives)
		default:
			d.warn(e.check, e.nobody, e.advice)
		}
	}
}
