package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// ruleSpec is a periodic rule as a file of `periodic apply` says it. Its names are those of
// the stored document. What is absent was not said.
type ruleSpec struct {
	Name        string `yaml:"name"`
	Tenant      string `yaml:"tenant,omitempty"`
	Creator     string `yaml:"creator,omitempty"`
	Category    string `yaml:"category,omitempty"`
	Description string `yaml:"description,omitempty"`
	Version     int64  `yaml:"version,omitempty"` // of the stored rule; 0 = whichever
	Enabled     *bool  `yaml:"enabled,omitempty"` // nil = as it is; a new one does not fire

	Cron     string   `yaml:"cron"`
	Timezone string   `yaml:"timezone,omitempty"`
	DST      *dstYAML `yaml:"dst,omitempty"`
	StartAt  moment   `yaml:"start_at,omitempty"`
	EndAt    moment   `yaml:"end_at,omitempty"`
	MaxRuns  int64    `yaml:"max_runs,omitempty"`
	Jitter   duration `yaml:"jitter,omitempty"`

	Type     string          `yaml:"type,omitempty"`
	Args     jsonValue       `yaml:"args,omitempty"`
	HTTP     *httpTargetYAML `yaml:"http,omitempty"` // what is called, instead of type and args
	Priority *int            `yaml:"priority,omitempty"`
	Options  *optionsYAML    `yaml:"options,omitempty"`

	Overlap        string       `yaml:"overlap,omitempty"`
	OnFailure      string       `yaml:"on_failure,omitempty"`
	MaxConcurrency int          `yaml:"max_concurrency,omitempty"`
	Concurrency    string       `yaml:"concurrency,omitempty"`
	QueueLimit     int          `yaml:"queue_limit,omitempty"`
	CatchUp        *catchUpYAML `yaml:"catch_up,omitempty"`
	Log            string       `yaml:"log,omitempty"`
	RunRetention   duration     `yaml:"run_retention,omitempty"`

	Ext jsonValue `yaml:"ext,omitempty"`
}

// ruleFile reads them. The fields of seed 003 and 000 that are called otherwise here are
// named in the refusal; no field has two names.
var ruleFile = fileOf[ruleSpec]{thing: "a periodic rule", things: "periodic rules", spec: "ruleSpec", instead: map[string]string{
	"cron_expr": "cron", "cron_expressions": "cron", "overlap_action": "overlap", "failure_action": "on_failure",
	"concurrency_policy": "concurrency", "status": "enabled", "tenant_id": "tenant", "catch_up_mode": "catch_up: {mode: ...}",
	"timeout": "options: {timeout: ...}", "retry": "options: {retry: ...}", "callback": "options: {callback: ...}",
	"target_url": "http: {url: ...}", "http_method": "http: {method: ...}",
	"exec_type": "http: {mode: ...}", "callback_method": "http: {callback_method: ...}",
	"callback_timeout_sec": "http: {callback_timeout: ...}", "timeout_seconds": "http: {timeout: ...}", "body_template": "http: {body: ...}", "headers_json": "http: {headers: ...}",
}}

type dstYAML struct {
	Gap  string `yaml:"gap,omitempty"`  // run_after, skip
	Fold string `yaml:"fold,omitempty"` // first, both
}

type catchUpYAML struct {
	Mode   string   `yaml:"mode,omitempty"` // NONE, COMPACT, FULL
	Window duration `yaml:"window,omitempty"`
	Cap    int      `yaml:"cap,omitempty"`
}

// UnmarshalYAML takes the mode alone, too. (Of the reader's two kinds of unmarshaler it is the
// one that goes on refusing fields that it does not know.)
func (c *catchUpYAML) UnmarshalYAML(unmarshal func(any) error) error {
	if unmarshal(&c.Mode) == nil {
		return nil
	}
	type fields catchUpYAML
	return unmarshal((*fields)(c))
}

// optionsYAML are options of the tasks that a rule sends, named as in the files of types.
type optionsYAML struct {
	layeredYAML       `yaml:",inline"`
	ConcurrentWorkers int      `yaml:"concurrent_workers,omitempty"`
	Workers           []string `yaml:"workers,omitempty,flow"`
	LimitKey          string   `yaml:"limit_key,omitempty"`
}

func (o *optionsYAML) options() model.Options {
	if o == nil {
		return model.Options{}
	}
	out := o.layeredYAML.options()
	out.ConcurrentWorkerCount, out.SpecificWorkerIDs, out.LimitKey = o.ConcurrentWorkers, o.Workers, o.LimitKey
	return out
}

func optionsOf(o *model.Options) *optionsYAML {
	out := optionsYAML{
		layeredYAML:       layeredOf(o),
		ConcurrentWorkers: o.ConcurrentWorkerCount, Workers: o.SpecificWorkerIDs, LimitKey: o.LimitKey,
	}
	var n yaml.Node
	if err := n.Encode(&out); err == nil && len(n.Content) == 0 {
		return nil // nothing is said
	}
	return &out
}

// rule is the rule that the spec says, checked and normalised; not whether it still fires,
// which depends on the time.
func (s *ruleSpec) rule() (periodic.Spec, error) {
	out := periodic.Spec{
		Name: s.Name, Tenant: s.Tenant, Creator: s.Creator, Category: s.Category, Description: s.Description,
		Cron: s.Cron, Timezone: s.Timezone, MaxRuns: s.MaxRuns, Jitter: time.Duration(s.Jitter),
		Type: s.Type, Priority: s.Priority, Options: s.Options.options(),
		Overlap: schedule.OverlapPolicy(s.Overlap), OnFailure: schedule.FailurePolicy(s.OnFailure), MaxConcurrency: s.MaxConcurrency,
		Concurrency: schedule.ConcurrencyPolicy(s.Concurrency), QueueLimit: s.QueueLimit, Log: schedule.RunLog(s.Log),
		RunRetention: time.Duration(s.RunRetention), Ext: s.Ext.value(), Args: s.Args.value(),
	}
	if s.DST != nil {
		out.DST = schedule.DST{Gap: s.DST.Gap, Fold: s.DST.Fold}
	}
	if c := s.CatchUp; c != nil {
		out.CatchUp = schedule.CatchUp{Mode: schedule.CatchUpMode(c.Mode), Window: time.Duration(c.Window), Cap: c.Cap}
	}
	var errs []error
	var err error
	if out.StartAt, err = s.StartAt.in("start_at", s.Timezone); err != nil {
		errs = append(errs, err)
	}
	if out.EndAt, err = s.EndAt.in("end_at", s.Timezone); err != nil {
		errs = append(errs, err)
	}
	if out.HTTP, err = s.HTTP.target(); err != nil {
		errs = append(errs, err)
	}
	if err := builtin.CheckArgs(s.Type, json.RawMessage(s.Args)); err != nil {
		errs = append(errs, err)
	}
	checked, err := out.Checked(time.Unix(0, 0))
	return checked, errors.Join(append(errs, err)...)
}

// ruleSpecOf is a rule as a file would say it, without version and whether it is enabled.
func ruleSpecOf(s periodic.Spec) *ruleSpec {
	out := &ruleSpec{
		Name: s.Name, Tenant: s.Tenant, Creator: s.Creator, Category: s.Category, Description: s.Description,
		Cron: s.Cron, Timezone: s.Timezone, StartAt: momentOf(s.StartAt), EndAt: momentOf(s.EndAt), MaxRuns: s.MaxRuns, Jitter: duration(s.Jitter),
		Type: s.Type, Args: jsonValueOf(s.Args), Priority: s.Priority, Options: optionsOf(&s.Options),
		Overlap: string(s.Overlap), OnFailure: string(s.OnFailure), MaxConcurrency: s.MaxConcurrency, Concurrency: string(s.Concurrency),
		QueueLimit: s.QueueLimit, Log: string(s.Log), RunRetention: duration(s.RunRetention), Ext: jsonValueOf(s.Ext),
	}
	out.HTTP = httpTargetYAMLOf(s.HTTP)
	if s.DST != (schedule.DST{}) {
		out.DST = &dstYAML{Gap: s.DST.Gap, Fold: s.DST.Fold}
	}
	if c := s.CatchUp; c != (schedule.CatchUp{}) {
		out.CatchUp = &catchUpYAML{Mode: string(c.Mode), Window: duration(c.Window), Cap: c.Cap}
	}
	return out
}

// storedSpec is a stored rule as a file would say it.
func storedSpec(r *schedule.Rule) *ruleSpec {
	s := ruleSpecOf(periodic.SpecOf(r))
	s.Version, s.Enabled = r.Version, new(enabled(r))
	return s
}

// enabled says whether a person wants the rule to fire: it does, or rests because its end is
// reached.
func enabled(r *schedule.Rule) bool { return r.Status == schedule.StatusOnline || rests(r) }

func rests(r *schedule.Rule) bool { return r.Status == schedule.StatusOffline && r.PausedAt.IsZero() }

// moment is a time in a file: RFC 3339, or a date with or without a time, which is then
// meant in the rule's zone.
type moment string

// UnmarshalYAML takes the text, also where YAML sees a time in it.
func (m *moment) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: want a time such as 2026-01-31T09:00:00Z", n.Line)}}
	}
	*m = moment(n.Value)
	return nil
}

func momentOf(t time.Time) moment {
	if t.IsZero() {
		return ""
	}
	return moment(t.UTC().Format(time.RFC3339Nano))
}

func (m moment) in(field, timezone string) (time.Time, error) {
	if m == "" {
		return time.Time{}, nil
	}
	zone, err := calendar.Zone(timezone)
	if err != nil {
		zone = time.UTC // the zone is refused by its own name
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, string(m), zone); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, input.Invalid(field, "is %q; want a time such as 2026-01-31T09:00:00Z, or 2026-01-31 09:00 in the rule's zone", string(m))
}
