package form

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Rule is a periodic rule.
type Rule struct {
	Name        string `json:"name,omitzero"`
	Tenant      string `json:"tenant,omitzero"`
	Creator     string `json:"creator,omitzero"`
	Category    string `json:"category,omitzero"`
	Description string `json:"description,omitzero"`
	Version     int64  `json:"version,omitzero"` // of the stored rule; 0 = any
	Enabled     *bool  `json:"enabled,omitzero"` // nil = as it is; a new one does not fire

	Cron     string    `json:"cron,omitzero"`
	Timezone string    `json:"timezone,omitzero"`
	DST      *DST      `json:"dst,omitzero"`
	StartAt  *Time     `json:"start_at,omitzero"`
	EndAt    *Time     `json:"end_at,omitzero"`
	MaxRuns  int64     `json:"max_runs,omitzero"`
	Jitter   *Duration `json:"jitter,omitzero"`

	Type     string      `json:"type,omitzero"`
	Args     Value       `json:"args,omitzero"`
	HTTP     *HTTPTarget `json:"http,omitzero"` // what is called, instead of type and args
	Priority *int        `json:"priority,omitzero"`
	Options  *Options    `json:"options,omitzero"`

	Overlap        string    `json:"overlap,omitzero"`
	OnFailure      string    `json:"on_failure,omitzero"`
	MaxConcurrency int       `json:"max_concurrency,omitzero"`
	Concurrency    string    `json:"concurrency,omitzero"`
	QueueLimit     int       `json:"queue_limit,omitzero"`
	CatchUp        *CatchUp  `json:"catch_up,omitzero"`
	Log            string    `json:"log,omitzero"`
	RunRetention   *Duration `json:"run_retention,omitzero"`

	Ext Value `json:"ext,omitzero"`
}

// renamed are the fields of seed 003 and 000 that have other names here.
func (Rule) renamed() map[string]string {
	return map[string]string{
		"cron_expr": "use cron", "cron_expressions": "use cron", "overlap_action": "use overlap", "failure_action": "use on_failure",
		"concurrency_policy": "use concurrency", "status": "use enabled", "tenant_id": "use tenant", "catch_up_mode": "use catch_up: {mode: ...}",
		"timeout": "use options: {timeout: ...}", "retry": "use options: {retry: ...}", "retry_policy_json": "use options: {retry: ...}", "callback": "use options: {callback: ...}",
		"target_url": "use http: {url: ...}", "http_method": "use http: {method: ...}",
		"exec_type": "use http: {mode: ...}", "callback_method": "use http: {callback_method: ...}",
		"callback_timeout_sec": "use http: {callback_timeout: ...}", "timeout_seconds": "use http: {timeout: ...}",
		"body_template": "use http: {body: ...}", "headers_json": "use http: {headers: ...}",
	}
}

// DST says what becomes of ticks where clocks are set forward or back.
type DST struct {
	Gap  string `json:"gap,omitzero"`  // run_after, skip
	Fold string `json:"fold,omitzero"` // first, both
}

// CatchUp says what becomes of ticks that nobody decided in time; the mode alone will do.
type CatchUp struct {
	Mode   string    `json:"mode,omitzero"` // NONE, COMPACT, FULL
	Window *Duration `json:"window,omitzero"`
	Cap    int       `json:"cap,omitzero"`
}

func (CatchUp) short() string { return "mode" }

// HTTPTarget is what a rule calls at each tick.
type HTTPTarget struct {
	URL               string            `json:"url,omitzero"`
	Method            string            `json:"method,omitzero"`
	Headers           map[string]string `json:"headers,omitzero"`
	Body              Body              `json:"body,omitzero"`
	Timeout           *Duration         `json:"timeout,omitzero"`
	Expect            Statuses          `json:"expect,omitzero"`
	Mode              string            `json:"mode,omitzero"` // SYNC, ASYNC
	CompletionTimeout *Duration         `json:"callback_timeout,omitzero"`
	CompletionMethod  string            `json:"callback_method,omitzero"` // POST, PUT
	Keys              []CallbackKey     `json:"keys,omitzero"`            // sign the call
}

// Statuses are those of an answer that is a success: 200, 2xx, 200-204, or a list of such.
type Statuses []httpcall.StatusRange

func (s *Statuses) read(n *node) error {
	if n.kind != list {
		n = &node{kind: list, items: []*node{n}}
	}
	data, err := n.json()
	if err == nil && json.Unmarshal(data, s) != nil {
		err = errors.New("is " + clip(string(data)) + `; want statuses from 100 to 599, such as 200, 2xx or [200, "202-204"]`)
	}
	return err
}

// Spec is the rule that the form says, not yet checked.
func (r *Rule) Spec() (out schedule.Spec, err error) {
	convert(&out, r)
	zone, err := calendar.Zone(r.Timezone)
	if err != nil {
		zone = time.UTC // the zone is refused by its own name
	}
	var errs [3]error
	out.StartAt, errs[0] = r.StartAt.at("start_at", zone, noNow)
	out.EndAt, errs[1] = r.EndAt.at("end_at", zone, noNow)
	if r.Options != nil {
		out.Options, errs[2] = r.Options.Model(zone, noNow)
	}
	return out, errors.Join(errs[:]...)
}

// RuleOf is a rule as a file says it, without its secrets, its version and whether it is enabled.
func RuleOf(s *schedule.Spec) *Rule {
	out := &Rule{}
	convert(out, s)
	if out.Options = OptionsOf(&s.Options); s.Options.IsZero() {
		out.Options = nil
	}
	out.Args = secret.HideArgsJSON(s.Type, out.Args)
	if s.HTTP != nil {
		out.HTTP.URL = safetext.URL(s.HTTP.URL)
		out.HTTP.Headers = secret.HideHeaders(s.HTTP.Headers)
		for i := range out.HTTP.Keys {
			out.HTTP.Keys[i].Secret = safetext.Hidden
		}
	}
	return out
}
