package schedule

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/model"
)

// Rule is one document of the collection periodic_rules: a cron rule with the state that
// decisions about its ticks need. A zero field is not set.
type Rule struct {
	ID          string        `bson:"_id"`  // generated, immutable; ids of runs and tasks contain it
	Name        string        `bson:"name"` // unique among the tenant's rules
	Tenant      string        `bson:"tenant,omitempty"`
	Creator     string        `bson:"creator,omitempty"`
	Category    string        `bson:"category,omitempty"`
	Description string        `bson:"description,omitempty"`
	Ext         bson.RawValue `bson:"ext,omitempty"` // the caller's own data; its tasks carry it

	Cron     string    `bson:"cron"` // six fields or @every,
	Timezone string    `bson:"timezone,omitempty"`
	DST      *DST      `bson:"dst,omitempty"`
	StartAt  time.Time `bson:"start_at,omitempty"` // no tick before; zero = from its creation
	EndAt    time.Time `bson:"end_at,omitempty"`   // no tick at or after; zero = without end
	MaxRuns  int64     `bson:"max_runs,omitempty"` // ticks that run, ran or wait; 0 = without end
	// Jitter is the maximum delay of each task's start. The delay is fixed for each tick; the
	// nominal time does not change.
	Jitter time.Duration `bson:"jitter_ms,omitempty"`

	Task *TaskTemplate `bson:"task"` // what each tick sends
	// PastTypes are the task types before edits, the newest last. If the rule keeps no records,
	// a repeated request is recognized by its task.
	PastTypes []string `bson:"past_types,omitempty"`

	Overlap        OverlapPolicy     `bson:"overlap"`
	OnFailure      FailurePolicy     `bson:"on_failure"`
	MaxConcurrency int               `bson:"max_concurrency,omitempty"` // concurrent runs; 0 = no limit except that of every rule, 1000
	Concurrency    ConcurrencyPolicy `bson:"concurrency"`
	QueueLimit     int               `bson:"queue_limit,omitempty"` // maximum number of waiting runs; 0 = 100
	CatchUp        CatchUp           `bson:"catch_up"`
	Log            RunLog            `bson:"log,omitempty"`
	RunRetention   time.Duration     `bson:"run_retention_ms,omitempty"` // of records; 0 = 90 days

	// Status tells whether the rule fires (seed 000).
	//
	//	new      never enabled
	//	online   fires
	//	offline  disabled; when it is enabled again, missed ticks are recorded as skipped (paused)
	Status    string    `bson:"status"`
	PauseNote string    `bson:"pause_note,omitempty"` // why it is offline
	PausedAt  time.Time `bson:"paused_at,omitempty"`  // offline since
	DeletedAt time.Time `bson:"deleted_at,omitempty"` // logically deleted: its runs stay
	Living    string    `bson:"living,omitempty"`     // tenant/name until it is deleted; unique
	Version   int64     `bson:"version"`              // increases with every edit; an edit names the version that it read
	CreatedAt time.Time `bson:"created_at"`
	UpdatedAt time.Time `bson:"updated_at"` // the last change by a person; ticks do not change it

	// The state that decisions read and write. Rev increases with each decision and guards it.
	Rev        int64     `bson:"rev"`
	Decision   string    `bson:"decision,omitempty"`     // id of the last decision, for a process that lost the answer
	NextFireAt time.Time `bson:"next_fire_at,omitempty"` // the next tick to decide; only while online
	DecidedTo  time.Time `bson:"decided_to"`             // all ticks up to this time are decided
	Runs       int64     `bson:"runs,omitempty"`         // number of ticks that run, ran or wait
	Last       *LastRun  `bson:"last,omitempty"`         // the newest run that was not skipped
	// LastEffective is the run that the failure policy judges while Last is SCHEDULED: the
	// newest tick's run before Last that a worker has begun (seed 003). Nil if there is none,
	// and once Last has ended.
	LastEffective *LastRun  `bson:"last_effective,omitempty"`
	FailSkips     bool      `bson:"fail_skips,omitempty"` // a tick was already skipped because the judged run failed
	Active        []RunRef  `bson:"active,omitempty"`     // started runs whose end is not recorded yet
	Queued        []RunRef  `bson:"queued,omitempty"`     // waiting runs, in order
	QueuedAt      time.Time `bson:"queued_at,omitempty"`  // since when there are queued runs
	Range         *SkipSpan `bson:"range,omitempty"`      // consecutive skips right before DecidedTo, for one reason
	Planned       []Planned `bson:"planned,omitempty"`    // actions of decisions that may not be applied yet
	PlannedAt     time.Time `bson:"planned_at,omitempty"` // since when Planned has entries
}

// DST configures ticks at daylight saving changes, when clocks are set forward or back; "" is
// the default.
type DST struct {
	Gap  string `bson:"gap,omitempty" json:"gap,omitempty"`   // run_after, skip; default run_after, or skip if the hour is *
	Fold string `bson:"fold,omitempty" json:"fold,omitempty"` // first, both; default first, or both if the hour is *
}

// TaskTemplate is the task that a tick sends.
type TaskTemplate struct {
	Type     string        `bson:"type"`
	Args     bson.RawValue `bson:"args,omitempty"`
	Priority *int          `bson:"priority,omitempty"`
	Options  model.Options `bson:"options,omitempty"`
}

// OverlapPolicy selects what a tick does if an earlier run is still active (seed 003).
type OverlapPolicy string

// The overlap policies; "" is ALLOW.
const (
	OverlapAllow      OverlapPolicy = "ALLOW"       // runs, within the concurrency limit
	OverlapSkip       OverlapPolicy = "SKIP"        // is skipped; behind a run of a backfill it waits
	OverlapCancelPrev OverlapPolicy = "CANCEL_PREV" // runs when the active runs that it cancels, all but backfills, have ended
	OverlapParallel   OverlapPolicy = "PARALLEL"    // runs despite the limit
)

// FailurePolicy selects what a tick does after a failed run (seed 003).
type FailurePolicy string

// The failure policies; "" is RUN_NEW.
const (
	FailureRunNew FailurePolicy = "RUN_NEW" // runs with attempt 1
	FailureSkip   FailurePolicy = "SKIP"    // is skipped, once; the next runs with attempt + 2
	FailureRetry  FailurePolicy = "RETRY"   // runs with the attempt of the failed run + 1
)

// ConcurrencyPolicy selects what a tick does if the rule has reached its limit (seed 003).
type ConcurrencyPolicy string

// The concurrency policies; "" is QUEUE.
const (
	ConcurrencyQueue    ConcurrencyPolicy = "QUEUE"    // waits until a run ends
	ConcurrencySkip     ConcurrencyPolicy = "SKIP"     // is skipped
	ConcurrencyParallel ConcurrencyPolicy = "PARALLEL" // runs despite the limit
)

// CatchUp configures what happens to ticks that no engine decided in time, which is within ten seconds.
type CatchUp struct {
	Mode   CatchUpMode   `bson:"mode,omitempty"`
	Window time.Duration `bson:"window_ms,omitempty"` // older ticks are skipped; 0 = a day
	Cap    int           `bson:"cap,omitempty"`       // FULL: the newest ticks, at most this many at a time; 0 = 100
}

// CatchUpMode selects which missed ticks run.
type CatchUpMode string

// The modes; "" is NONE.
const (
	CatchUpNone    CatchUpMode = "NONE"    // no missed tick; of those in time after it, the newest
	CatchUpCompact CatchUpMode = "COMPACT" // one run, for the newest due tick
	CatchUpFull    CatchUpMode = "FULL"    // each missed tick, within window and cap
)

// RunLog selects which records a rule keeps (seed 000).
type RunLog string

// The kinds of logs; "" keeps a record of every tick with all its states.
const (
	LogNone    RunLog = "none"        // no records; only the tasks are stored
	LogTrigger RunLog = "trigger_log" // records the trigger only, always as a success
	LogTrans   RunLog = "trans_log"   // executing, then success or failure
)

// RunStatus is the status of a run.
type RunStatus string

// The statuses of runs (design section 8). RUNNING and WAITING_CALLBACK are read from the
// task and not stored.
const (
	RunScheduled     RunStatus = "SCHEDULED"
	RunQueued        RunStatus = "QUEUED"
	RunRunning       RunStatus = "RUNNING"
	RunWaiting       RunStatus = "WAITING_CALLBACK"
	RunSuccess       RunStatus = "SUCCESS"
	RunFailed        RunStatus = "FAILED"
	RunTimeout       RunStatus = "TIMEOUT"        // the request or the execution timed out
	RunFailedTimeout RunStatus = "FAILED_TIMEOUT" // no completion arrived in time
	RunCanceled      RunStatus = "CANCELED"
	RunSkipped       RunStatus = "SKIPPED"
)

// LastRun is the newest run of a rule that was not skipped.
type LastRun struct {
	ID      string    `bson:"id"`
	Nominal time.Time `bson:"nominal"`
	Attempt int       `bson:"attempt"`
	Status  RunStatus `bson:"status"` // RUNNING until an engine has seen its end
}

// RunRef is a started or waiting run.
type RunRef struct {
	ID      string    `bson:"id"`      // of the run; the key of its task
	Nominal time.Time `bson:"nominal"` // the tick
	Attempt int       `bson:"attempt"`
	Manual  bool      `bson:"manual,omitempty"`
	// After names runs that must have ended before this one starts (CANCEL_PREV).
	After []string `bson:"after,omitempty"`
	// Force starts the run despite the limit.
	Force bool `bson:"force,omitempty"`
	// Cancelled reports that a cancel of its task was requested, because a later tick replaces
	// it.
	Cancelled bool `bson:"cancelled,omitempty"`
	// TaskType is the type of its task. It finds the task after the rule was edited.
	TaskType string    `bson:"task_type,omitempty"`
	Started  time.Time `bson:"started,omitempty"` // when its start was decided
}

// SkipSpan is the record that consecutive skips of one reason share.
type SkipSpan struct {
	ID     string    `bson:"id"`     // of the record: the id of its first tick
	Reason string    `bson:"reason"` // see [Run]
	First  time.Time `bson:"first"`
	Last   time.Time `bson:"last"`
	Count  int64     `bson:"count"`
}

// Planned lists the actions of one decision. Each action is idempotent.
type Planned struct {
	ID     string      `bson:"id"`               // of the decision
	Record *Run        `bson:"record,omitempty"` // to store, unless a later decision has stored one
	Task   *model.Task `bson:"task,omitempty"`   // to send; its key makes the send idempotent
	Cancel []string    `bson:"cancel,omitempty"` // ids of tasks
}

// Run is one document of the collection periodic_runs: the outcome of one tick, or of a range
// of ticks that were skipped for one reason.
type Run struct {
	ID       string    `bson:"_id"` // rule@nominal, rule!request for a manual one
	RuleID   string    `bson:"rule_id"`
	RuleName string    `bson:"rule_name"`
	Tenant   string    `bson:"tenant,omitempty"`
	Nominal  time.Time `bson:"nominal"`
	Last     time.Time `bson:"last,omitempty"`  // of a range of skips: its last tick
	Count    int64     `bson:"count,omitempty"` // of a range of skips: its number of ticks
	Status   RunStatus `bson:"status"`
	// Reason says why the tick did not run; "" = it did.
	//
	//	overlap      an earlier run was still active
	//	failure      the previous run failed
	//	concurrency  the rule had reached its limit of running and waiting runs
	//	missed       no engine decided it in time
	//	paused       the rule was offline
	//	edited       the tick was late when the rule was edited
	//	capacity     the rule had 1,000 active runs, the maximum
	Reason  string    `bson:"reason,omitempty"`
	Error   string    `bson:"error_info,omitempty"`
	Attempt int       `bson:"attempt,omitempty"`
	Manual  bool      `bson:"manual,omitempty"`
	TaskID  string    `bson:"task_id,omitempty"`
	Late    int64     `bson:"late_ms,omitempty"` // from the nominal time to the start, or to the decision to wait or skip
	Rev     int64     `bson:"rev"`               // of the decision; a record never goes back to a lower rev
	At      time.Time `bson:"at"`                // of the decision

	StartedAt time.Time `bson:"started_at,omitempty"` // when its task was sent
	// ExecutedAt is when a worker began the first known execution of the task.
	ExecutedAt time.Time `bson:"executed_at,omitempty"`
	EndedAt    time.Time `bson:"ended_at,omitempty"`
	DeleteAt   time.Time `bson:"delete_at,omitempty"`

	Call *HTTPCall `bson:"call,omitempty"` // the last call of an HTTP target
}

// HTTPCall is one call of an HTTP target, without secrets. The values of the URL's query, the
// credentials in headers and the callback URL are "***". Long texts are truncated.
type HTTPCall struct {
	At       time.Time     `bson:"at" json:"at"`
	Took     int64         `bson:"took_ms" json:"took_ms"`
	Attempt  int           `bson:"attempt" json:"attempt"` // of the task, retries included
	Request  HTTPRequest   `bson:"request" json:"request"`
	Response *HTTPResponse `bson:"response,omitempty" json:"response,omitempty"` // nil: no response, or not yet
	Error    string        `bson:"error_info,omitempty" json:"error_info,omitempty"`
}

// HTTPRequest is the request of an [HTTPCall].
type HTTPRequest struct {
	Method    string   `bson:"method" json:"method"`
	URL       string   `bson:"url" json:"url"`
	Headers   []string `bson:"headers,omitempty" json:"headers,omitempty"` // the rule's, as "Name: value"
	Body      string   `bson:"body,omitempty" json:"body,omitempty"`
	Truncated bool     `bson:"truncated,omitempty" json:"truncated,omitempty"` // a part of it is left out
}

// HTTPResponse is the answer to an [HTTPCall].
type HTTPResponse struct {
	Status    int      `bson:"status" json:"status"`
	Headers   []string `bson:"headers,omitempty" json:"headers,omitempty"` // those that describe the content
	Body      string   `bson:"body,omitempty" json:"body,omitempty"`
	Encoding  string   `bson:"encoding,omitempty" json:"encoding,omitempty"`   // base64 if the body is not text
	Truncated bool     `bson:"truncated,omitempty" json:"truncated,omitempty"` // a part of it is left out
}
