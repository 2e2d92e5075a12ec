package form

import (
	"errors"
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// Plan is a plan: messages for a station, again and again.
type Plan struct {
	PlanID      string `json:"plan_id,omitzero"`
	Tenant      string `json:"tenant,omitzero"`
	RequestID   string `json:"request_id,omitzero"`
	Station     string `json:"station,omitzero"` // the type of the steps' tasks
	Caller      string `json:"caller,omitzero"`
	Description string `json:"description,omitzero"`

	PlanType  string `json:"plan_type,omitzero"` // none, time, second, minute, hour, day, week, month
	PlanValue int    `json:"plan_value,omitzero"`
	PlanRepet int    `json:"plan_repet,omitzero"`
	NoKeep    bool   `json:"no_keep,omitzero"`
	PlanTime  *Time  `json:"plan_time,omitzero"` // without an offset it is in the zone; of week and month a time of day will do
	Timezone  string `json:"timezone,omitzero"`

	Messages []Value `json:"messages,omitzero"`

	PlanExecTimeout Duration  `json:"plan_exec_timeout,omitzero"`
	Priority        *int      `json:"priority,omitzero"`
	Options         *Options  `json:"options,omitzero"`
	Callback        *Callback `json:"callback,omitzero"` // success: the plan is FINISH; error: it is ERROR
}

// renamed are fields of other documents that have other names here.
func (Plan) renamed() map[string]string {
	return map[string]string{
		"id": "use plan_id", "key": "use plan_id", "name": "use plan_id", "type": "use station for the type of the tasks, plan_type for the repetition",
		"plan_repeat": "use plan_repet", "repeat": "use plan_repet", "args": "use messages", "cron": "use mscheduler periodic",
		"timeout": "use plan_exec_timeout", "worker_timeout": "use plan_exec_timeout", "retry": "use options: {retry: ...}",
	}
}

// Spec is the plan that the form says, not yet checked.
func (p *Plan) Spec() (out repeat.Spec, err error) {
	convert(&out, p)
	own := Options{Callback: p.Callback} // which may have its key in short
	about, _ := own.Model(noZone, noNow) // of times alone there are errors
	out.Callback = about.Callback
	zone, err := calendar.Zone(p.Timezone)
	if err != nil {
		zone = time.UTC // the zone is refused by its own name
	}
	var errs [2]error
	if out.PlanTime, errs[0] = p.time(zone); errs[0] != nil {
		out.PlanTime = time.UnixMilli(0) // it is wrong, and not missing
	}
	if p.Options != nil {
		out.Options, errs[1] = p.Options.Model(zone, noNow)
	}
	return out, errors.Join(errs[0], input.Under("options", errs[1]))
}

// time is the plan_time. Of week and month only the time of day counts, so that will do.
func (p *Plan) time(zone *time.Location) (time.Time, error) {
	if p.PlanTime != nil && (p.PlanType == string(repeat.Week) || p.PlanType == string(repeat.Month)) {
		for _, layout := range []string{"15:04", "15:04:05"} {
			if clock, err := time.Parse(layout, string(*p.PlanTime)); err == nil {
				return calendar.InstantOf(clock.AddDate(2000, 0, 0), zone), nil
			}
		}
	}
	return p.PlanTime.at("plan_time", zone, noNow)
}

// PlanOf is a plan as a file says it, without its secrets.
func PlanOf(s *repeat.Spec) *Plan {
	out := &Plan{}
	convert(out, s)
	for i := range out.Messages {
		if len(out.Messages[i]) == 0 {
			out.Messages[i] = Value("null")
		}
	}
	if out.PlanTime != nil && s.PlanTime.IsZero() {
		out.PlanTime = nil
	}
	if out.Options = OptionsOf(&s.Options); s.Options.IsZero() {
		out.Options = nil
	}
	out.Callback = OptionsOf(&model.Options{Callback: s.Callback}).Callback
	return out
}
