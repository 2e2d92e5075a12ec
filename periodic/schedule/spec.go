package schedule

import (
	"time"

	"github.com/mscheduler/mscheduler/model"
)

// Spec is the definition of a rule. In files and API requests the fields have these names in snake
// case; durations are text such as "90s". encoding/json does not read it. The secrets of Options.Callback and HTTP are
// encrypted with the SecretKey of periodic's Config before anything is written.
type Spec struct {
	Name        string // unique among the living rules of the tenant; at most 200 bytes in one line
	Tenant      string // "" = none
	Creator     string
	Category    string
	Description string
	// Enabled, if it is not nil, enables or disables the rule in the write that stores the Spec.
	// nil = a stored rule stays as it is, and a new one does not fire.
	Enabled *bool
	// Ext is the caller's own data, any JSON value. Handlers read it with
	// consumer.Execution.Ext, HTTP targets with {{ext}}.
	Ext any

	// Cron has 6 fields (with 5 fields, the second is 0), or is a descriptor such as @daily or
	// @every 90s. If both day of month and day of week are given, a tick must match one of
	// them; if one of the fields begins with *, it must match both.
	Cron     string
	Timezone string // of the time zone database; "" = UTC
	DST      DST
	StartAt  time.Time // no tick before; zero = from now on
	EndAt    time.Time // no tick at or after; zero = without end
	MaxRuns  int64     // 0 = without end
	Jitter   time.Duration

	Type     string      // type of the task that each tick sends
	Args     any         // any JSON value
	HTTP     *HTTPTarget // the HTTP call of each tick, instead of Type and Args
	Priority *int        // nil = 5
	Options  model.Options

	Overlap   OverlapPolicy // "" = ALLOW
	OnFailure FailurePolicy // "" = RUN_NEW
	// MaxConcurrency limits the concurrent runs; 0 = the maximum of every rule, 1000. A run
	// beyond the maximum is skipped (capacity), whatever the policies are and even if it is
	// forced.
	MaxConcurrency int
	Concurrency    ConcurrencyPolicy // "" = QUEUE
	QueueLimit     int               // 0 = 100, at most 1000
	CatchUp        CatchUp
	Log            RunLog        // "" = a record of every tick
	RunRetention   time.Duration // of the records; 0 = 90 days
}
