package repeat

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/model"
)

// Type says how a plan repeats (seed 001, 1.2).
type Type string

// The types of plans. The intervals of second, minute and hour are elapsed time. A day is a day of the
// calendar in the plan's time zone, as are weeks and months.
const (
	None   Type = "none"   // at once, one step
	Time   Type = "time"   // at plan_time, one step
	Second Type = "second" // every plan_value seconds, the first that long after plan_time
	Minute Type = "minute"
	Hour   Type = "hour"
	Day    Type = "day"
	Week   Type = "week"  // on the weekday plan_value, at the time of day of plan_time
	Month  Type = "month" // on a day of the month, at the time of day of plan_time
)

// Status of a [Plan].
type Status string

// The statuses of plans. A plan that is FINISH or CANCELLED is over, and moves to plan_history.
const (
	StatusRunning   Status = "RUNNING"   // its next step waits for its time, or runs
	StatusError     Status = "ERROR"     // a plan error or a fatal one: no step starts until Reset, or until a person has its task succeed
	StatusFinish    Status = "FINISH"    // its last step has ended, or its last time has passed
	StatusCancelled Status = "CANCELLED" // by a person
)

// Spec is the definition of a plan. In files and API requests the fields have these names in snake case.
// encoding/json does not read it.
type Spec struct {
	// PlanID names the plan within its tenant: 1 to 128 bytes without / and @. An id has at most one plan,
	// and for 90 days after it is over: publishing it again changes nothing. "" = a generated id.
	PlanID    string `bson:"plan_id,omitempty"`
	Tenant    string `bson:"tenant,omitempty"`     // "" = none
	RequestID string `bson:"request_id,omitempty"` // the caller's own; at most 256 bytes
	Station   string `bson:"station,omitempty"`    // the task type of the steps
	Caller    string `bson:"caller,omitempty"`     // who asked for the plan, and the creator of the steps' tasks; at most 200 bytes
	// Description is the topic of the results that [github.com/mscheduler/mscheduler/plan.Plans.Subscribe]
	// returns; at most 4,096 bytes.
	Description string `bson:"description,omitempty"`

	PlanType Type `bson:"plan_type,omitempty"`
	// PlanValue is the interval of second, minute, hour and day: 0 to 32,767. Of week it is the day,
	// 0 to 6 with Sunday 0. Of month it is the day 1 to 31 (the last day if the month has no such day),
	// 0 for the last day, or -1 to -31 for that many days before the last, at least the 1st.
	PlanValue int `bson:"plan_value,omitempty"`
	// PlanRepet is the number of steps of a plan that repeats: -1 = without end, or at least 1. It has
	// no meaning for none and time.
	PlanRepet int `bson:"plan_repet,omitempty"`
	// NoKeep runs every step, late ones one after the other. Without it, times that have passed when a
	// step ends are skipped and count as steps; a plan whose last time has passed is over. Times that pass
	// while a step waits for a worker, or its end for an engine, are not skipped, unless the next step
	// would be more than ten seconds late. The times of week and month are always after the end of the step before.
	NoKeep bool `bson:"no_keep,omitempty"`
	// PlanTime is the time of a plan of type time, and the time from which intervals count (zero = the
	// time of publication). For week and month only its time of day in the time zone counts (zero =
	// 00:00). none ignores it.
	PlanTime time.Time `bson:"plan_time,omitempty"`
	Timezone string    `bson:"timezone,omitempty"` // an IANA name such as Europe/Berlin; "" = UTC

	Messages []any `bson:"messages,omitempty"` // what the steps are told: 1 to 1,000 JSON values, in total at most 240 KiB as BSON

	// PlanExecTimeout is the lease of a step's executions (WorkerTimeout of its task): a step is not
	// started again before it lapses. Workers of this library renew it while the handler runs. 0 = that
	// of the options, the task type or the handler.
	PlanExecTimeout time.Duration `bson:"plan_exec_timeout_ms,omitempty"`

	Priority *int          `bson:"priority,omitempty"` // of the steps' tasks; nil = 5
	Options  model.Options `bson:"options,omitempty"`  // of the steps' tasks
	// Callback configures signed requests about the plan. Success is called when it is FINISH, Error
	// when it is ERROR. nil = no calls.
	Callback *model.Callback `bson:"callback,omitempty"`
}

// Plan is one document of the collection plans, and of plan_history when it is over. Every decision
// about a plan is one write on this document, guarded by Rev. The names of its fields are those of
// seed 001, where it has them.
type Plan struct {
	ID          string `bson:"_id"` // tenant/plan_id
	PlanID      string `bson:"plan_id"`
	Tenant      string `bson:"tenant,omitempty"`
	RequestID   string `bson:"request_id,omitempty"`
	Station     string `bson:"station"`
	Caller      string `bson:"caller,omitempty"`
	Description string `bson:"description,omitempty"`

	PlanType  Type          `bson:"plan_type"`
	PlanValue int           `bson:"plan_value"`
	PlanRepet int           `bson:"plan_repet"`
	NoKeep    bool          `bson:"no_keep,omitempty"`
	Timezone  string        `bson:"timezone,omitempty"`
	Messages  bson.RawValue `bson:"messages,omitempty"` // an array

	PlanExecTimeout time.Duration   `bson:"plan_exec_timeout_ms,omitempty"`
	Priority        *int            `bson:"priority,omitempty"`
	Options         model.Options   `bson:"options,omitempty"`
	Callback        *model.Callback `bson:"callback,omitempty"` // secrets are sealed

	// Trace is the span that published the plan, or that last reset it, from which the spans of its steps follow;
	// nil = none.
	Trace *model.Trace `bson:"trace,omitempty"`

	Start     time.Time `bson:"start"`                // what intervals count from; of week and month the time of day
	Step      int64     `bson:"step"`                 // the step that waits or runs, from 1 on; skipped times count; 0 = there is none
	Try       int64     `bson:"try,omitempty"`        // how often the step was started again
	Done      bool      `bson:"done,omitempty"`       // that step is over, and the next one could not be planned
	PlanTime  time.Time `bson:"plan_time,omitempty"`  // the time of that step
	ExecTime  time.Time `bson:"exec_time,omitempty"`  // when the last step ended
	RealRepet int64     `bson:"real_repet,omitempty"` // steps that have succeeded
	Skipped   int64     `bson:"skipped,omitempty"`    // times that were skipped
	LastState string    `bson:"last_state,omitempty"` // how the last step ended, or what is wrong with it, see [Result]; "" = none has ended

	Status    Status    `bson:"status"`
	Reason    string    `bson:"reason,omitempty"`  // of the last state and the status, for people
	LookAt    time.Time `bson:"look_at,omitempty"` // engines look often for the end of the step from then on
	Rev       int64     `bson:"rev"`               // rises on every decision
	Decision  string    `bson:"decision,omitempty"`
	CreatedAt time.Time `bson:"created_at"`
	UpdatedAt time.Time `bson:"updated_at"`
	EndedAt   time.Time `bson:"ended_at,omitempty"`
	DeleteAt  time.Time `bson:"delete_at,omitempty"` // the document goes then

	Planned   []Planned `bson:"planned,omitempty"`
	PlannedAt time.Time `bson:"planned_at,omitempty"`

	// Created says, of a plan that Publish returns, that this Publish has stored it; false = the id had a
	// plan. It is never stored.
	Created bool `bson:"-"`
}

// Planned is a decision about a plan that an engine must carry out.
type Planned struct {
	ID   string    `bson:"id"`
	Do   Action    `bson:"do"`
	Step int64     `bson:"step,omitempty"`
	Try  int64     `bson:"try,omitempty"`
	At   time.Time `bson:"at,omitempty"`   // when the step may start; of a note that nobody serves it, its plan_time
	Tell string    `bson:"tell,omitempty"` // the error_info of a callback that is sent, the remark of a cancel
	// Trace is the span of the step, to which its task belongs; nil = the task has the trace of the plan.
	Trace *model.Trace `bson:"trace,omitempty"`
}

// Action is what is to be done. The actions are the engine's own.
type Action string

// Result is what one participant of a step has done: one document of the collection plan_results. A
// step with concurrent_worker_count n has at least n. They are kept with the plan. A task keeps at most ten failed
// executions. Results are stored when it has ended, so earlier failures of a try have none. This can happen if max_errors
// and max_lapses together exceed 9, as by default.
type Result struct {
	ID          string    `bson:"_id"`  // plan/step/execution
	Plan        string    `bson:"plan"` // the ID of the plan
	PlanID      string    `bson:"plan_id"`
	Tenant      string    `bson:"tenant,omitempty"`
	RequestID   string    `bson:"request_id,omitempty"` // of the plan, as is the caller
	Caller      string    `bson:"caller,omitempty"`
	Description string    `bson:"description,omitempty"`
	Station     string    `bson:"station"`
	Step        int64     `bson:"step"`
	Try         int64     `bson:"try,omitempty"`
	PlanTime    time.Time `bson:"plan_time"`
	Worker      string    `bson:"worker,omitempty"` // "" = nobody took part
	// State says how the participant ended, or what is wrong with the step (the last_state of seed 001).
	//
	//	OK          it succeeded
	//	ERROR       it failed: the step is due again, or its task is Pending
	//	CANCELLED   a person cancelled the task: the plan goes on with the next step
	//	PLAN_ERROR  the plan is ERROR
	//	NO_WORKER   the step is due, and no live worker takes its task (NOT_WORKER in seed 001)
	State     string        `bson:"state"`
	Result    bson.RawValue `bson:"result,omitempty"`
	ErrorInfo string        `bson:"error_info,omitempty"`
	At        time.Time     `bson:"at"` // when the participant ended
	DeleteAt  time.Time     `bson:"delete_at,omitempty"`
}

// Args are the arguments of the task of a step. M is the type of the messages. The type of a station is
// model.NewType[repeat.Args[M], R](station).
type Args[M any] struct {
	PlanID      string    `bson:"plan_id" json:"plan_id"`
	PlanTime    time.Time `bson:"plan_time" json:"plan_time"` // the time that the step is about, however late it runs
	Step        int64     `bson:"step" json:"step"`           // from 1 on; skipped times count
	RequestID   string    `bson:"request_id,omitempty" json:"request_id,omitempty"`
	Caller      string    `bson:"caller,omitempty" json:"caller,omitempty"`
	Description string    `bson:"description,omitempty" json:"description,omitempty"`
	// What follows is of the plan as it was when the step was sent. A step that an earlier release sent has none of it.
	PlanType  Type   `bson:"plan_type,omitempty" json:"plan_type,omitempty"`
	PlanValue int    `bson:"plan_value" json:"plan_value"`
	PlanRepet int    `bson:"plan_repet" json:"plan_repet"`
	RealRepet int64  `bson:"real_repet" json:"real_repet"`                     // steps that had succeeded
	LastState string `bson:"last_state,omitempty" json:"last_state,omitempty"` // how the step or try before ended, see [Result]; "" = there was none
	Messages  []M    `bson:"messages" json:"messages"`
}
