package model

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Task is one document of the collection tasks. A zero field is absent from the document, which
// contains only the fields that were set and those that the indexes need. Times come from the
// database's clock, with millisecond precision.
type Task struct {
	ID         string `bson:"_id"` // tenant/type/key, see [TaskID]
	Type       string `bson:"type"`
	Key        string `bson:"key"`
	Tenant     string `bson:"tenant,omitempty"`
	Category   string `bson:"category,omitempty"`
	Creator    string `bson:"creator,omitempty"`
	Generation int64  `bson:"generation"` // number of the life; increases with each life
	Rev        int64  `bson:"rev"`        // increases with every deciding write, across all lives

	Priority  int       `bson:"priority"` // 0 to 9, 9 first
	Status    Status    `bson:"status"`
	StartTime time.Time `bson:"start_time"`

	// Derived from the other fields; present only while they have a meaning.
	DueAt    time.Time `bson:"due_at,omitempty"`    // workers may claim the task from then on
	LapseAt  time.Time `bson:"lapse_at,omitempty"`  // if executions are open: their earliest ping_expire_time, or earlier
	Audience []string  `bson:"audience,omitempty"`  // who may claim
	ExpireAt time.Time `bson:"expire_at,omitempty"` // if no worker has started it: when it is cancelled

	Args    bson.RawValue `bson:"args,omitempty"`
	Options Options       `bson:"options,omitempty"`
	Applied *Options      `bson:"applied,omitempty"` // options of the type and the handler at the newest claim
	Origin  *Origin       `bson:"origin,omitempty"`  // what created the task and is notified of its end
	Trace   *Trace        `bson:"trace,omitempty"`   // the span that created the task; nil = none

	WorkerStates []WorkerState `bson:"worker_states,omitempty"`
	Attempt      int           `bson:"attempt,omitempty"`     // of the newest execution; released executions do not count; 0 = not started
	ErrorCount   int           `bson:"error_count,omitempty"` // over all workers together
	LapseCount   int           `bson:"lapse_count,omitempty"`
	ErrorInfo    string        `bson:"error_info,omitempty"` // of the last error
	Result       bson.RawValue `bson:"result,omitempty"`     // of the execution that completed the task

	CancelRequestedAt time.Time     `bson:"cancel_requested_at,omitempty"`
	UndecodableSince  time.Time     `bson:"undecodable_since,omitempty"` // when a worker first failed to decode the arguments
	Progress          *Progress     `bson:"progress,omitempty"`
	Checkpoint        bson.RawValue `bson:"checkpoint,omitempty"` // with n > 1 kept in the worker's state
	Steps             []Step        `bson:"steps,omitempty"`      // written by open executions, without a new rev
	Remark            string        `bson:"remark,omitempty"`

	Outbox   []OutboxEntry `bson:"outbox,omitempty"`    // outstanding actions after its end
	OutboxAt time.Time     `bson:"outbox_at,omitempty"` // since when the outbox has entries

	ArchiveAt  time.Time `bson:"archive_at,omitempty"` // when the ended task moves to the history
	WakeAt     time.Time `bson:"wake_at,omitempty"`    // the last write that made the task due sooner; streams watch it
	CreatedAt  time.Time `bson:"created_at"`
	UpdatedAt  time.Time `bson:"updated_at"`
	FinishedAt time.Time `bson:"finished_at,omitempty"`

	// ArchivedAt is when this life was copied to the history; zero for a task that is not in
	// the history.
	ArchivedAt time.Time `bson:"archived_at,omitempty"`
}

// WorkerState is one execution of the task by one worker. It is open while it has neither a
// success time nor a fail time.
type WorkerState struct {
	ExecID         string    `bson:"exec_id"` // shared by the tasks claimed in one batch
	WorkerID       string    `bson:"worker_id"`
	ClaimedAt      time.Time `bson:"claimed_at"`
	PingExpireTime time.Time `bson:"ping_expire_time"`   // the lease; never past Deadline
	Deadline       time.Time `bson:"deadline,omitempty"` // claimed_at + execution_timeout
	Attempt        int       `bson:"attempt"`

	// SuccessTime and FailTime are the ends of the execution. Both are zero while it holds the task.
	SuccessTime time.Time `bson:"success_time,omitempty"`
	FailTime    time.Time `bson:"fail_time,omitempty"`
	// FailKind is the way in which the execution failed; "" = it did not. error, fatal, plan_error, panic and
	// timeout count in error_count. A lapse has its own counter and budget, so that lost machines do not use
	// up retries. The other kinds do not count.
	//
	//	error        the handler returned an error
	//	fatal        the handler returned Fatal, or reported fatal: no retry follows; if the task ends as Failure, a plan whose step it is is ERROR
	//	plan_error   the handler returned or reported PlanError: no retry follows, and the plan of the step is ERROR
	//	panic        the handler panicked
	//	timeout      the execution ran past its deadline
	//	lapsed       the lease expired without a ping
	//	released     the worker released it: shutdown, lease margin, snooze, worker filter
	//	undecodable  the worker could not decode the arguments
	//	cancelled    ended because the task was cancelled
	//	cleaned      a send reset its success or failure, see [RestartSucceeded] and [RestartFailed]
	FailKind   string        `bson:"fail_kind,omitempty"`
	FailReason string        `bson:"fail_reason,omitempty"`
	RetryAt    time.Time     `bson:"retry_at,omitempty"` // after a failure: the execution keeps its place until then
	Returns    bson.RawValue `bson:"returns,omitempty"`  // n > 1: this worker's own result
	Parked     bool          `bson:"parked,omitempty"`   // the handler returned and the execution waits for a completion, or did so until it timed out
	Checkpoint bson.RawValue `bson:"checkpoint,omitempty"`
	NoCallback bool          `bson:"no_callback,omitempty"` // suppresses the callback of its success; set when it is parked or succeeds
	Unstarted  bool          `bson:"unstarted,omitempty"`   // released before it did anything
	Pulled     bool          `bson:"pulled,omitempty"`      // fetched by package pull: the worker learns of a cancel by its pings
	// LocalRetries counts the retries inside the execution that have begun, see [LocalRetry].
	// It includes those that it inherited from the previous execution.
	LocalRetries int `bson:"local_retries,omitempty"`
	// ErrorsBefore counts errors of this worker whose executions are no longer listed. Together
	// with those that are listed they count for MaxErrorsPerWorker.
	ErrorsBefore int `bson:"errors_before,omitempty"`
	// LapsesBefore counts lapses of this worker whose executions are no longer listed.
	LapsesBefore int `bson:"lapses_before,omitempty"`
	// Options are the task's options at the claim, if they changed while the execution was
	// open; nil = the task's current options apply. See applied.go.
	Options *ClaimedOptions `bson:"options,omitempty"`
}

// Trace is the context of a span, as the W3C writes it in the headers of HTTP requests.
type Trace struct {
	Parent string    `bson:"traceparent" json:"traceparent"`
	State  string    `bson:"tracestate,omitempty" json:"tracestate,omitempty"`
	At     time.Time `bson:"at,omitempty" json:"at,omitzero"` // when it was stored
}

// Progress is the last progress that a handler reported.
type Progress struct {
	Percent float64   `bson:"percent" json:"percent"`
	Message string    `bson:"message,omitempty" json:"message,omitempty"`
	At      time.Time `bson:"at" json:"at"`
}
