package schedule

import (
	"time"

	"github.com/mscheduler/mscheduler/model"
)

// Spec is the definition of a rule. Its JSON and YAML names are those of the fields in snake case;
// durations are text such as "90s". The secrets of Options.Callback and HTTP are sealed with the
// SecretKey of periodic's Config before anything is written.
type Spec struct {
	Name        string // unique among the living rules of the tenant; at most 200 bytes in one line
	Tenant      string // "" = none
	Creator     string
	Category    string
	Description string
	// Ext is any JSON value of the caller's own. Handlers read it with consumer.Execution.Ext, HTTP
	// targets with {{ext}}.
	Ext any

	// Cron has 6 fields (5 get second 0), or is @daily and the like, or @every 90s. Given both
	// day of month and day of week, either will do; where one begins with *, both must match.
	Cron     string
	Timezone string // of the time zone database; "" = UTC
	DST      DST
	StartAt  time.Time // no tick before; zero = from now on
	EndAt    time.Time // no tick at or after; zero = without end
	MaxRuns  int64     // 0 = without end
	Jitter   time.Duration

	Type     string      // of the task that each tick sends
	Args     any         // any JSON value
	HTTP     *HTTPTarget // what each tick calls, instead of Type and Args
	Priority *int        // nil = 5
	Options  model.Options

	Overlap   OverlapPolicy // "" = ALLOW
	OnFailure FailurePolicy // "" = RUN_NEW
	// MaxConcurrency is how many runs go on at once; 0 = as many as one rule holds, 1000:
	// beyond that a run is skipped (capacity), whatever the policies say, forced ones too.
	MaxConcurrency int
	Concurrency    ConcurrencyPolicy // "" = QUEUE
	QueueLimit     int               // 0 = 100, at most 1000
	CatchUp        CatchUp
	Log            RunLog        // "" = a record of every tick
	RunRetention   time.Duration // of the records; 0 = 90 days
}
