package store

import (
	"sync/atomic"

	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Each collection, or each purpose of one, has a type. They share one [core].
type (
	// Tasks is the collection tasks.
	Tasks struct {
		*core
		historyRoom *History
	}
	// History is the collection task_history: lives that ended and were archived.
	History struct {
		*core
		tasksRoom *Tasks
	}
	// Types is the collection task_types.
	Types struct {
		*core
		controlRoom *Control
	}
	// Control is the collection control, which each process reads every second, and the
	// signals to running executions.
	Control struct {
		*core
		tasksRoom *Tasks
		noted     atomic.Pointer[string] // the last name of the primary's term that is known to be noted
	}
	// Turns decides which process does a job of the fleet.
	Turns struct{ *core }
	// Seats limits how many change streams the fleet holds.
	Seats struct{ *core }
	// Permits holds the rights to run under a limit.
	Permits struct {
		*core
		tasksRoom *Tasks
	}
	// Rates holds when the next execution of a limited type may start.
	Rates struct{ *core }
	// Rules is the collection periodic_rules.
	Rules struct {
		decided[schedule.Rule, schedule.Planned]
	}
	// Runs is the collection periodic_runs.
	Runs struct{ *core }
	// Workers is the collection workers.
	Workers struct{ *core }
)

// furnish makes the types of the collections.
func furnish(c *core) *Store {
	s := &Store{
		core: c, Turns: &Turns{c}, Seats: &Seats{c}, Rates: &Rates{c},
		Runs: &Runs{c}, Workers: &Workers{c}, Flows: newFlows(c), Nodes: &Nodes{c}, Plans: newPlans(c), Results: &Results{c}, Tokens: &Tokens{c}, Answers: &Answers{c}, Audit: &Audit{core: c}, Series: &Series{c, recordTime},
	}
	s.Tasks = &Tasks{core: c}
	s.History = &History{core: c, tasksRoom: s.Tasks}
	s.Tasks.historyRoom = s.History
	s.Control = &Control{core: c, tasksRoom: s.Tasks}
	s.Types = &Types{core: c, controlRoom: s.Control}
	s.Permits = &Permits{core: c, tasksRoom: s.Tasks}
	s.Rules = newRules(c)
	return s
}
