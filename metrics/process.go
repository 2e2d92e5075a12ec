package metrics

import "github.com/mscheduler/mscheduler/internal/measure"

// process is what this process has measured.
type process struct {
	*measure.Set
	worker measure.Worker
}

// ofProcess are the metrics of one process. Their labels have at most [measure.Most] values each, and
// "other".
var ofProcess = []metric[process]{
	{"claims_attempted_total", counter, "Claims that were tried; the excess over claims_won_total was lost to other workers.", nil,
		func(p process, emit emit) { emit(p.Attempted.Load()) }},
	{"claims_won_total", counter, "Claims that were won.", nil,
		func(p process, emit emit) { emit(p.Won.Load()) }},
	{"claim_batch_size", histogram, "Tasks that one try claims.", nil,
		func(p process, emit emit) { emit(p.ClaimBatch.Read()) }},
	{"start_delay_seconds", histogram, "Time from due to started.", []string{"type"},
		func(p process, emit emit) {
			for typ, t := range p.Types.All() {
				emit(t.Delay.Read(), typ)
			}
		}},
	{"execution_seconds", histogram, "Time that handlers ran.", []string{"type"},
		func(p process, emit emit) {
			for typ, t := range p.Types.All() {
				emit(t.Ran.Read(), typ)
			}
		}},
	{"executions_total", counter, "Executions that ended, by outcome: success, error, timeout and the other kinds of failures. Those of type mscheduler.callback are deliveries of callbacks. Ends that are part of a caller's transaction are not counted.", []string{"type", "outcome"},
		func(p process, emit emit) {
			for typ, t := range p.Types.All() {
				t.Ended.Of(measure.Success) // a rate needs a first value
				for outcome, n := range t.Ended.All() {
					emit(n.Load(), typ, outcome)
				}
			}
		}},
	{"end_batch_size", histogram, "Ends that one command writes.", nil,
		func(p process, emit emit) { emit(p.EndBatch.Read()) }},
	{"takeovers_total", counter, "Tasks taken over after the lease of another worker had lapsed.", nil,
		func(p process, emit emit) { emit(p.TakenOver.Load()) }},
	{"leases_lost_total", counter, "Handlers that were cancelled because their lease was lost.", nil,
		func(p process, emit emit) { emit(p.worker.LeasesLost) }},
	{"fenced_ends_total", counter, "Results that came too late and were refused.", nil,
		func(p process, emit emit) { emit(p.worker.Fenced) }},
	{"fetches_total", counter, "Queries for due tasks.", nil,
		func(p process, emit emit) { emit(p.worker.Fetches) }},
	{"polls_total", counter, "Queries for work by idle workers.", nil,
		func(p process, emit emit) { emit(p.worker.Polls) }},
	{"lease_scans_total", counter, "Searches for lapsed leases.", nil,
		func(p process, emit emit) { emit(p.worker.Scans) }},
	{"ping_batches_total", counter, "Batches of pings that were answered.", nil,
		func(p process, emit emit) { emit(p.worker.Pings) }},
	{"process_workers", gauge, "Consumers that run in this process.", nil,
		func(p process, emit emit) { emit(p.worker.Workers) }},
	{"process_slots", gauge, "Handlers that may run at once in this process.", nil,
		func(p process, emit emit) { emit(p.worker.Slots) }},
	{"process_held", gauge, "Executions of this process: waiting for a slot, running or finishing.", nil,
		func(p process, emit emit) { emit(p.worker.Held) }},
	{"process_running", gauge, "Handlers that run in this process.", nil,
		func(p process, emit emit) { emit(p.worker.Running) }},
	{"process_watching", gauge, "Consumers of this process that watch a change stream; the others poll.", nil,
		func(p process, emit emit) { emit(p.worker.Watching) }},
	{"process_outages", gauge, "Consumers of this process that cannot reach the database.", nil,
		func(p process, emit emit) { emit(p.worker.Down) }},
	{"decision_lateness_seconds", histogram, "Time from when a periodic rule, flow or plan was due until an engine of this process decided. Of rules it is the lateness of ticks.", []string{"kind"},
		func(p process, emit emit) {
			for kind, d := range p.Lateness.All() {
				emit(d.Read(), kind)
			}
		}},
	{"ticks_total", counter, "Ticks that engines of this process decided: started, queued, or the reason why they were skipped. A queued tick counts as started, too, when its turn comes.", []string{"result"},
		func(p process, emit emit) {
			for result, n := range p.Ticks.All() {
				emit(n.Load(), result)
			}
		}},
	{"database_errors_total", counter, "Errors of the database, by class: retry, ambiguous, duplicate, fatal. It covers all databases of the process.", []string{"class"},
		func(_ process, emit emit) {
			for class, n := range measure.Failures.All() {
				emit(n.Load(), class)
			}
		}},
}
