package model

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// Task is one document of the collection tasks. A zero field is absent from the
// document: it holds only what was set and what the indexes need. Times have the
// database's millisecond precision and are in the store's clock.
type Task struct {
	ID         string `bson:"_id"` // tenant/type/key, see [TaskID]
	Type       string `bson:"type"`
	Key        string `bson:"key"`
	Tenant     string `bson:"tenant,omitempty"`
	Category   string `bson:"category,omitempty"`
	Creator    string `bson:"creator,omitempty"`
	Generation int64  `bson:"generation"` // one life of the key; rises
	Rev        int64  `bson:"rev"`        // rises on every deciding write, through all lives

	Priority  int       `bson:"priority"` // 0 to 9, 9 first
	Status    Status    `bson:"status"`
	StartTime time.Time `bson:"start_time"`

	// Derived from the fields above and below; present only while they mean something.
	DueAt    time.Time `bson:"due_at,omitempty"`    // a slot is free from then on
	LapseAt  time.Time `bson:"lapse_at,omitempty"`  // an execution is open: its earliest ping_expire_time, or earlier
	Audience []string  `bson:"audience,omitempty"`  // who may claim
	ExpireAt time.Time `bson:"expire_at,omitempty"` // nobody started it yet: it is cancelled then

	Args    bson.RawValue `bson:"args,omitempty"`
	Options Options       `bson:"options,omitempty"`
	Applied *Options      `bson:"applied,omitempty"` // what type and handler said to the newest execution
	Origin  *Origin       `bson:"origin,omitempty"`  // what made the task and learns of its end

	WorkerStates []WorkerState `bson:"worker_states,omitempty"`
	Attempt      int           `bson:"attempt,omitempty"`     // of the newest execution; released ones do not count; 0 = nobody has started it
	ErrorCount   int           `bson:"error_count,omitempty"` // over all workers together
	LapseCount   int           `bson:"lapse_count,omitempty"`
	ErrorInfo    string        `bson:"error_info,omitempty"` // of the last error
	Result       bson.RawValue `bson:"result,omitempty"`     // of the execution that completed the task

	CancelRequestedAt time.Time     `bson:"cancel_requested_at,omitempty"`
	UndecodableSince  time.Time     `bson:"undecodable_since,omitempty"` // the first worker that did not understand the arguments
	Progress          *Progress     `bson:"progress,omitempty"`
	Checkpoint        bson.RawValue `bson:"checkpoint,omitempty"` // with n > 1 kept in the worker's state
	Steps             []Step        `bson:"steps,omitempty"`      // written by open executions, without a new rev
	Remark            string        `bson:"remark,omitempty"`

	Outbox   []OutboxEntry `bson:"outbox,omitempty"`    // what must follow its end and has not yet
	OutboxAt time.Time     `bson:"outbox_at,omitempty"` // there is such; since then

	ArchiveAt  time.Time `bson:"archive_at,omitempty"` // ended: moves to the history then
	WakeAt     time.Time `bson:"wake_at,omitempty"`    // the last write that made the task due sooner; streams watch it
	CreatedAt  time.Time `bson:"created_at"`
	UpdatedAt  time.Time `bson:"updated_at"`
	FinishedAt time.Time `bson:"finished_at,omitempty"`

	// ArchivedAt is when this life was copied to the history; zero among the tasks.
	ArchivedAt time.Time `bson:"archived_at,omitempty"`
}

// WorkerState is one execution: one worker's hold on the task. It is open while it has
// neither success nor fail time.
type WorkerState struct {
	ExecID         string    `bson:"exec_id"` // shared by the tasks claimed in one batch
	WorkerID       string    `bson:"worker_id"`
	ClaimedAt      time.Time `bson:"claimed_at"`
	PingExpireTime time.Time `bson:"ping_expire_time"`   // the lease; never past Deadline
	Deadline       time.Time `bson:"deadline,omitempty"` // claimed_at + execution_timeout
	Attempt        int       `bson:"attempt"`

	SuccessTime time.Time     `bson:"success_time,omitempty"`
	FailTime    time.Time     `bson:"fail_time,omitempty"`
	FailKind    FailKind      `bson:"fail_kind,omitempty"`
	FailReason  string        `bson:"fail_reason,omitempty"`
	RetryAt     time.Time     `bson:"retry_at,omitempty"` // ended badly: its slot stays taken until then
	Returns     bson.RawValue `bson:"returns,omitempty"`  // n > 1: this worker's own result
	Parked      bool          `bson:"parked,omitempty"`   // the handler ended, an outside completion is awaited; or, timed out, was
	Checkpoint  bson.RawValue `bson:"checkpoint,omitempty"`
	NoCallback  bool          `bson:"no_callback,omitempty"` // nobody is to be told of its success; set when it is parked, or succeeds
	Unstarted   bool          `bson:"unstarted,omitempty"`   // given back before it did anything
	// LocalRetries is how many retries inside the execution have begun, see [LocalRetry]. It
	// counts those that it took over from an execution before it.
	LocalRetries int `bson:"local_retries,omitempty"`
	// Options are those of the task at the claim, where they changed while the execution was
	// open; nil = the task's own hold. See applied.go.
	Options *ClaimedOptions `bson:"options,omitempty"`
}

// Progress is what a handler last said of itself.
type Progress struct {
	Percent float64   `bson:"percent" json:"percent"`
	Message string    `bson:"message,omitempty" json:"message,omitempty"`
	At      time.Time `bson:"at" json:"at"`
}

// Open says whether the execution still holds its task.
func (w *WorkerState) Open() bool { return w.SuccessTime.IsZero() && w.FailTime.IsZero() }

// ExecTime is how long the execution that ended last took, from its claim to its end (seed
// 000's exec_time); 0 as long as none has ended. One that was given back before it did
// anything does not count. It is computed, never stored.
func (t *Task) ExecTime() time.Duration {
	var took time.Duration
	var last time.Time
	for i := range t.WorkerStates {
		w := &t.WorkerStates[i]
		ended := clock.Later(w.SuccessTime, w.FailTime)
		if !ended.IsZero() && !w.Unstarted && !ended.Before(last) {
			last, took = ended, max(ended.Sub(w.ClaimedAt), 0)
		}
	}
	return took
}
