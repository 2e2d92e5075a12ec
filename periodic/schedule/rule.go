package schedule

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/model"
)

// Rule is one document of the collection periodic_rules: a cron rule, and everything that
// the decisions about its ticks need. A zero field says nothing.
type Rule struct {
	ID          string        `bson:"_id"`  // made up, immutable: runs and tasks are named after it
	Name        string        `bson:"name"` // unique among the living rules of a tenant
	Tenant      string        `bson:"tenant,omitempty"`
	Creator     string        `bson:"creator,omitempty"`
	Category    string        `bson:"category,omitempty"`
	Description string        `bson:"description,omitempty"`
	Ext         bson.RawValue `bson:"ext,omitempty"` // the caller's own; its tasks carry it

	Cron     string    `bson:"cron"` // six fields or @every,
	Timezone string    `bson:"timezone,omitempty"`
	DST      *DST      `bson:"dst,omitempty"`
	StartAt  time.Time `bson:"start_at,omitempty"` // no tick before; zero = from its creation
	EndAt    time.Time `bson:"end_at,omitempty"`   // no tick at or after; zero = without end
	MaxRuns  int64     `bson:"max_runs,omitempty"` // ticks that ran; 0 = without end
	// Jitter delays the start of each task by a time that is fixed for the tick, up to
	// this; the nominal time stays.
	Jitter time.Duration `bson:"jitter_ms,omitempty"`

	Task *TaskTemplate `bson:"task"` // what each tick sends
	// PastTypes are those of the tasks that it sent before an edit, the newest last: where no
	// records are kept a request that is repeated is known by its task.
	PastTypes []string `bson:"past_types,omitempty"`

	Overlap        OverlapPolicy     `bson:"overlap"`
	OnFailure      FailurePolicy     `bson:"on_failure"`
	MaxConcurrency int               `bson:"max_concurrency,omitempty"` // runs at once; 0 = no limit but that of all rules, 1000
	Concurrency    ConcurrencyPolicy `bson:"concurrency"`
	QueueLimit     int               `bson:"queue_limit,omitempty"` // runs that wait, at most; 0 = 100
	CatchUp        CatchUp           `bson:"catch_up"`
	Log            RunLog            `bson:"log,omitempty"`
	RunRetention   time.Duration     `bson:"run_retention_ms,omitempty"` // of records; 0 = 90 days

	Status    Status    `bson:"status"`
	PauseNote string    `bson:"pause_note,omitempty"` // why it is offline
	PausedAt  time.Time `bson:"paused_at,omitempty"`  // offline since
	DeletedAt time.Time `bson:"deleted_at,omitempty"` // logically: its runs stay
	Living    string    `bson:"living,omitempty"`     // tenant/name until it is deleted: what is unique
	Version   int64     `bson:"version"`              // rises with every edit; an edit names the one it saw
	CreatedAt time.Time `bson:"created_at"`
	UpdatedAt time.Time `bson:"updated_at"` // the last change by a person; ticks leave it alone

	// What decisions read and write. Rev rises with each of them and guards it.
	Rev        int64     `bson:"rev"`
	Decision   string    `bson:"decision,omitempty"`     // the last one's own id, for who lost the answer
	NextFireAt time.Time `bson:"next_fire_at,omitempty"` // only while online: the next tick to decide
	DecidedTo  time.Time `bson:"decided_to"`             // every tick up to here is decided
	Runs       int64     `bson:"runs,omitempty"`         // that were started or queued
	Last       *LastRun  `bson:"last,omitempty"`         // the newest that was not skipped
	// LastEffective is the run that the failure policy judges while Last is SCHEDULED: the
	// newest tick's run before Last that a worker has begun (seed 003). Nil if there is none,
	// and once Last has ended.
	LastEffective *LastRun  `bson:"last_effective,omitempty"`
	FailSkips     bool      `bson:"fail_skips,omitempty"` // a tick was skipped already for the failure of the judged run
	Active        []RunRef  `bson:"active,omitempty"`     // started; their ends are not known yet
	Queued        []RunRef  `bson:"queued,omitempty"`     // wait for their turn, in order
	QueuedAt      time.Time `bson:"queued_at,omitempty"`  // since when there are queued runs
	Range         *SkipSpan `bson:"range,omitempty"`      // the skips right before DecidedTo, of one reason
	Planned       []Planned `bson:"planned,omitempty"`    // decided and not known to be carried out
	PlannedAt     time.Time `bson:"planned_at,omitempty"` // since when there is something planned
}

// DST says what becomes of ticks where clocks are set forward or back; "" is the default.
type DST struct {
	Gap  string `bson:"gap,omitempty" json:"gap,omitempty"`   // run_after, skip; default run_after, skip where the hour is *
	Fold string `bson:"fold,omitempty" json:"fold,omitempty"` // first, both; default first, both where the hour is *
}

// TaskTemplate is the task that a tick sends.
type TaskTemplate struct {
	Type     string        `bson:"type"`
	Args     bson.RawValue `bson:"args,omitempty"`
	Priority *int          `bson:"priority,omitempty"`
	Options  model.Options `bson:"options,omitempty"`
}

// Status is whether a rule fires.
type Status string

// The statuses of seed 000.
const (
	StatusNew     Status = "new"     // never enabled
	StatusOnline  Status = "online"  // fires
	StatusOffline Status = "offline" // disabled: what comes is recorded as skipped (paused) when it is enabled again
)

// OverlapPolicy says what a tick does when an earlier run has not ended (seed 003).
type OverlapPolicy string

// The overlap policies; "" is ALLOW.
const (
	OverlapAllow      OverlapPolicy = "ALLOW"       // runs, within the concurrency limit
	OverlapSkip       OverlapPolicy = "SKIP"        // is skipped
	OverlapCancelPrev OverlapPolicy = "CANCEL_PREV" // cancels what runs but backfills, and runs when that has ended
	OverlapParallel   OverlapPolicy = "PARALLEL"    // runs, whatever the limit
)

// FailurePolicy says what a tick does after a run that failed (seed 003).
type FailurePolicy string

// The failure policies; "" is RUN_NEW.
const (
	FailureRunNew FailurePolicy = "RUN_NEW" // runs with attempt 1
	FailureSkip   FailurePolicy = "SKIP"    // is skipped, once; the next runs with attempt + 2
	FailureRetry  FailurePolicy = "RETRY"   // runs with the attempt of the failed run + 1
)

// ConcurrencyPolicy says what a tick does at the limit (seed 003).
type ConcurrencyPolicy string

// The concurrency policies; "" is QUEUE.
const (
	ConcurrencyQueue    ConcurrencyPolicy = "QUEUE"    // waits for its turn
	ConcurrencySkip     ConcurrencyPolicy = "SKIP"     // is skipped
	ConcurrencyParallel ConcurrencyPolicy = "PARALLEL" // runs all the same
)

// CatchUp says what becomes of ticks that nobody decided in time.
type CatchUp struct {
	Mode   CatchUpMode   `bson:"mode,omitempty"`
	Window time.Duration `bson:"window_ms,omitempty"` // older ones are skipped; 0 = a day
	Cap    int           `bson:"cap,omitempty"`       // FULL: at most so many at a time, the newest; 0 = 100
}

// CatchUpMode is how many of the missed ticks run.
type CatchUpMode string

// The modes; "" is NONE.
const (
	CatchUpNone    CatchUpMode = "NONE"    // none of them
	CatchUpCompact CatchUpMode = "COMPACT" // the newest, once for all
	CatchUpFull    CatchUpMode = "FULL"    // each, within window and cap
)

// RunLog says which records a rule keeps (seed 000).
type RunLog string

// The kinds of logs; "" keeps a record of every tick with all its states.
const (
	LogNone    RunLog = "none"        // no records: the tasks are what is kept
	LogTrigger RunLog = "trigger_log" // that it was triggered, which is always a success
	LogTrans   RunLog = "trans_log"   // executing, then success or failure
)

// RunStatus is what became of a tick.
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
	RunTimeout       RunStatus = "TIMEOUT"        // the request or the execution took too long
	RunFailedTimeout RunStatus = "FAILED_TIMEOUT" // no callback came in time
	RunCanceled      RunStatus = "CANCELED"
	RunSkipped       RunStatus = "SKIPPED"
)

// SkipReason says why a tick did not run.
//
//	overlap      an earlier run had not ended
//	failure      the run before failed
//	concurrency  as many as allowed ran, or waited
//	missed       nobody decided it in time
//	paused       the rule was offline
//	edited       nobody had decided it in time when the rule was edited
//	capacity     as many runs as one rule holds were active, whatever its policies
type SkipReason string

// LastRun is the newest run of a rule that was not skipped.
type LastRun struct {
	ID      string    `bson:"id"`
	Nominal time.Time `bson:"nominal"`
	Attempt int       `bson:"attempt"`
	Status  RunStatus `bson:"status"` // RUNNING until it is seen to have ended
}

// RunRef is a run that was started or waits.
type RunRef struct {
	ID      string    `bson:"id"`      // of the run; the key of its task
	Nominal time.Time `bson:"nominal"` // the tick
	Attempt int       `bson:"attempt"`
	Manual  bool      `bson:"manual,omitempty"`
	// After names runs that must have ended before this one starts (CANCEL_PREV).
	After []string `bson:"after,omitempty"`
	// Force starts it whatever the limit.
	Force bool `bson:"force,omitempty"`
	// Cancelled: its task was asked to end, because a later tick takes its place.
	Cancelled bool `bson:"cancelled,omitempty"`
	// TaskType is that of its task, for who must find it after the rule was edited.
	TaskType string    `bson:"task_type,omitempty"`
	Started  time.Time `bson:"started,omitempty"` // when its start was decided
}

// SkipSpan is the record that consecutive skips of one reason share.
type SkipSpan struct {
	ID     string     `bson:"id"` // of the record: that of its first tick
	Reason SkipReason `bson:"reason"`
	First  time.Time  `bson:"first"`
	Last   time.Time  `bson:"last"`
	Count  int64      `bson:"count"`
}

// Planned is what one decision wants carried out: each part is idempotent.
type Planned struct {
	ID     string      `bson:"id"`               // of the decision
	Record *Run        `bson:"record,omitempty"` // to be stored, unless a later decision's is there
	Task   *model.Task `bson:"task,omitempty"`   // to be sent; its key makes it once
	Cancel []string    `bson:"cancel,omitempty"` // ids of tasks
}

// Run is one document of the collection periodic_runs: what became of one tick, or of a
// span of ticks that were skipped for one reason.
type Run struct {
	ID       string     `bson:"_id"` // rule@nominal, rule!request for a manual one
	RuleID   string     `bson:"rule_id"`
	RuleName string     `bson:"rule_name"`
	Tenant   string     `bson:"tenant,omitempty"`
	Nominal  time.Time  `bson:"nominal"`
	Last     time.Time  `bson:"last,omitempty"`  // of a span: its last tick
	Count    int64      `bson:"count,omitempty"` // of a span: its ticks
	Status   RunStatus  `bson:"status"`
	Reason   SkipReason `bson:"reason,omitempty"`
	Error    string     `bson:"error_info,omitempty"`
	Attempt  int        `bson:"attempt,omitempty"`
	Manual   bool       `bson:"manual,omitempty"`
	TaskID   string     `bson:"task_id,omitempty"`
	Late     int64      `bson:"late_ms,omitempty"` // from the nominal time to the start, or to the decision that it waits or is skipped
	Rev      int64      `bson:"rev"`               // of the decision: a record never goes back
	At       time.Time  `bson:"at"`                // of the decision

	StartedAt time.Time `bson:"started_at,omitempty"` // when its task was sent
	// ExecutedAt is when a worker began the first known execution of the task.
	ExecutedAt time.Time `bson:"executed_at,omitempty"`
	EndedAt    time.Time `bson:"ended_at,omitempty"`
	DeleteAt   time.Time `bson:"delete_at,omitempty"`

	Call *HTTPCall `bson:"call,omitempty"` // the last call of an HTTP target
}

// HTTPCall is one call of an HTTP target, without secrets. The values of the URL's query, the
// credentials in headers and the callback URL are "***". Long texts are cut.
type HTTPCall struct {
	At       time.Time     `bson:"at" json:"at"`
	Took     int64         `bson:"took_ms" json:"took_ms"`
	Attempt  int           `bson:"attempt" json:"attempt"` // of the task, retries included
	Request  HTTPRequest   `bson:"request" json:"request"`
	Response *HTTPResponse `bson:"response,omitempty" json:"response,omitempty"` // nil: no response, or not yet
	Error    string        `bson:"error_info,omitempty" json:"error_info,omitempty"`
}

// HTTPRequest is what an [HTTPCall] sent.
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
