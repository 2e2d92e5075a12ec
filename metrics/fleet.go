package metrics

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/store"
)

// fleet is a census, and the database's time.
type fleet struct {
	store.Census
	now time.Time
}

// age is how long ago a time was, in seconds; 0 = it is not over, or there is none.
func (f fleet) age(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return max(f.now.Sub(at), 0).Seconds()
}

// ofFleet are the metrics of the fleet, which are the same in each process.
var ofFleet = []metric[fleet]{
	{"census_timestamp_seconds", gauge, "When the numbers of the fleet were counted.", nil,
		func(f fleet, emit emit) { emit(float64(f.At.UnixMilli()) / 1000) }},
	{"census_seconds", gauge, "Time that the last count took.", nil,
		func(f fleet, emit emit) { emit(f.Took.Seconds()) }},
	{"census_complete", gauge, "0 = some numbers are older, because they took too long to count.", nil,
		func(f fleet, emit emit) { emit(number(f.Complete)) }},
	{"tasks", gauge, "Tasks by state: due may be claimed now, delayed later, executing have an open execution. At most 100000 of each are counted.", []string{"type", "state"},
		func(f fleet, emit emit) {
			for _, t := range f.Types {
				for _, n := range []struct {
					count, state string
					n            int64
				}{{store.CountDue, "due", t.Due.N}, {store.CountDelayed, "delayed", t.Delayed}, {store.CountRunning, "executing", t.Running}} {
					if t.Counted(n.count) {
						emit(n.n, t.Type, n.state)
					}
				}
			}
		}},
	{"oldest_due_age_seconds", gauge, "How long the oldest due task has been due.", []string{"type"},
		func(f fleet, emit emit) {
			for _, t := range f.Types {
				if t.Counted(store.CountDue) {
					emit(f.age(t.Due.Oldest), t.Type)
				}
			}
		}},
	{"lapsed_leases", gauge, "Tasks that no worker has taken over although their lease lapsed ten seconds ago.", nil,
		func(f fleet, emit emit) { emit(f.Lapsed.N) }},
	{"outbox_entries", gauge, "Ended tasks with an outstanding action: a callback, a decision of a rule, flow or plan.", nil,
		func(f fleet, emit emit) { emit(f.Outbox.N) }},
	{"outbox_oldest_age_seconds", gauge, "How long the oldest of them has waited.", nil,
		func(f fleet, emit emit) { emit(f.age(f.Outbox.Oldest)) }},
	{"archive_backlog", gauge, "Ended tasks that should have moved to the history.", nil,
		func(f fleet, emit emit) { emit(f.Archive.N) }},
	{"archive_delay_seconds", gauge, "How late the oldest of them is.", nil,
		func(f fleet, emit emit) { emit(f.age(f.Archive.Oldest)) }},
	{"rules_online", gauge, "Periodic rules with a next tick.", nil,
		func(f fleet, emit emit) { emit(f.Rules.N) }},
	{"tick_delay_seconds", gauge, "How long the oldest tick that nobody has decided has been due.", nil,
		func(f fleet, emit emit) {
			if f.Rules.Oldest.After(f.At) {
				emit(0) // the tick may have been decided since
				return
			}
			emit(f.age(f.Rules.Oldest))
		}},
	{"planned", gauge, "Documents with decisions that are not confirmed as carried out.", []string{"kind"},
		func(f fleet, emit emit) {
			for _, p := range f.Planned {
				emit(p.Backlog.N, p.Kind)
			}
		}},
	{"planned_oldest_age_seconds", gauge, "Age of the oldest of them.", []string{"kind"},
		func(f fleet, emit emit) {
			for _, p := range f.Planned {
				emit(f.age(p.Backlog.Oldest), p.Kind)
			}
		}},
	{"flows", gauge, "Flows by status: RUNNING, or PENDING until a person decides.", []string{"status"},
		func(f fleet, emit emit) {
			emit(f.FlowsRunning.N, "RUNNING")
			emit(f.FlowsPending.N, "PENDING")
		}},
	{"flow_nodes_pending", gauge, "Nodes of flows and streams that wait for a person, and nodes that started a flow with such a node. Nodes behind them are left out.", nil,
		func(f fleet, emit emit) { emit(f.NodesPending.N) }},
	{"flow_streams", gauge, "Streams by state: open, suspended until a person decides, or closed.", []string{"scene", "state"},
		func(f fleet, emit emit) {
			for _, s := range f.Scenes {
				if s.Uncounted {
					continue
				}
				emit(s.Open, s.Scene, "open")
				emit(s.Suspended, s.Scene, "suspended")
				emit(s.Closed, s.Scene, "closed")
			}
		}},
	{"flow_stream_backlog", gauge, "Nodes of streams that were appended and have not ended, those of closed streams included. A node that is being linked may count twice.", []string{"scene"},
		func(f fleet, emit emit) {
			for _, s := range f.Scenes {
				if !s.Uncounted {
					emit(s.Backlog, s.Scene)
				}
			}
		}},
	{"plans", gauge, "Plans by status: RUNNING, or ERROR until a person decides.", []string{"status"},
		func(f fleet, emit emit) {
			emit(f.PlansRunning.N, "RUNNING")
			emit(f.PlansError.N, "ERROR")
		}},
	{"permits_taken", gauge, "Permits in use of types with max_running.", []string{"type"},
		func(f fleet, emit emit) {
			for _, t := range f.Types {
				if t.MaxRunning > 0 {
					emit(t.Permits, t.Type)
				}
			}
		}},
	{"permits_limit", gauge, "max_running of types.", []string{"type"},
		func(f fleet, emit emit) {
			for _, t := range f.Types {
				if t.MaxRunning > 0 {
					emit(t.MaxRunning, t.Type)
				}
			}
		}},
	{"workers", gauge, "Live workers and engines, by how they find work: watching, polling, off (engines), pulling.", []string{"stream"},
		func(f fleet, emit emit) {
			for _, w := range f.Workers {
				emit(w.N, w.Stream)
			}
		}},
	{"worker_slots", gauge, "Handlers that may run at once in the fleet.", nil,
		func(f fleet, emit emit) {
			n := int64(0)
			for _, w := range f.Workers {
				n += w.Slots
			}
			emit(n)
		}},
	{"worker_running", gauge, "Handlers that ran at the last heartbeats.", nil,
		func(f fleet, emit emit) {
			n := int64(0)
			for _, w := range f.Workers {
				n += w.Running
			}
			emit(n)
		}},
	{"stream_seats_taken", gauge, "Change streams of workers and subscriptions, of eight.", nil,
		func(f fleet, emit emit) { emit(f.Seats) }},
	{"paused", gauge, "1 = claiming is paused for all types.", nil,
		func(f fleet, emit emit) { emit(number(f.PausedAll)) }},
	{"paused_types", gauge, "Types for which claiming is paused.", nil,
		func(f fleet, emit emit) { emit(f.PausedTypes) }},
}

func number(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
