package stepplan

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// Bounds of the texts of a plan, in bytes.
const (
	maxPlanID      = 128
	maxRequestID   = 256
	maxDescription = 4 << 10
)

// Validate checks the definition of a plan. The error joins everything that is wrong, each a
// [model.InvalidError].
func Validate(s *repeat.Spec) error {
	_, err := Build(s, cmp.Or(s.PlanID, "generated"), time.UnixMilli(0))
	return err
}

// Build checks the definition and returns the document of a running plan with that plan_id, which s.PlanID
// is not asked for. It has no step yet: see [NextPlanTime]. Secrets of the definition are stored unchanged.
// The error joins everything that is wrong, each a [model.InvalidError].
func Build(s *repeat.Spec, id string, now time.Time) (*repeat.Plan, error) {
	now = clock.Millis(now)
	p := &repeat.Plan{
		PlanID: id, Tenant: s.Tenant, RequestID: s.RequestID, Station: s.Station, Caller: s.Caller, Description: s.Description,
		PlanType: s.PlanType, PlanValue: s.PlanValue, PlanRepet: s.PlanRepet, NoKeep: s.NoKeep, Timezone: s.Timezone,
		PlanExecTimeout: s.PlanExecTimeout, Priority: s.Priority, Options: s.Options, Callback: s.Callback,
		Start: start(s, now), Status: repeat.StatusRunning, Rev: 1, CreatedAt: now, UpdatedAt: now,
	}
	if p.Tenant == model.NoTenant {
		p.Tenant = ""
	}
	p.ID = input.RuleName(p.Tenant, id)

	var e problems
	e.add(CheckID(id))
	e.add(input.InAddress("plan_id", id))
	if p.Tenant != "" {
		e.add(input.Name("tenant", p.Tenant))
		e.add(input.InAddress("tenant", p.Tenant))
	}
	for _, t := range []struct {
		field, text string
		most        int
	}{{"request_id", s.RequestID, maxRequestID}, {"description", s.Description, maxDescription}} {
		e.text(t.field, t.text, t.most)
	}
	e.add(input.Label("caller", s.Caller)) // the creator of the tasks
	e.station(s.Station)
	e.times(p)
	p.Messages = e.messages(s.Messages)
	e.task(s)
	if c := s.Callback; c != nil {
		e.add(input.Callback(c))
		if c.OnPending {
			e.bad("callback.on_pending", "is for tasks; that of a plan calls error when the plan has a plan error")
		}
	}
	if len(e) > 0 {
		return nil, e.joined()
	}
	return p, nil
}

// Unpublished is [Build] for a preview of a plan that is not published, whose id may not be known yet.
func Unpublished(s *repeat.Spec, now time.Time) (*repeat.Plan, error) {
	return Build(s, cmp.Or(s.PlanID, "(generated)"), now)
}

// Of returns the definition of a stored plan, with its secrets as they are stored.
func Of(p *repeat.Plan) repeat.Spec {
	s := repeat.Spec{
		PlanID: p.PlanID, Tenant: p.Tenant, RequestID: p.RequestID, Station: p.Station, Caller: p.Caller, Description: p.Description,
		PlanType: p.PlanType, PlanValue: p.PlanValue, PlanRepet: p.PlanRepet, NoKeep: p.NoKeep, Timezone: p.Timezone,
		PlanExecTimeout: p.PlanExecTimeout, Priority: p.Priority, Options: p.Options, Callback: p.Callback,
	}
	if p.PlanType != repeat.None {
		s.PlanTime = p.Start
	}
	if list, isArray := p.Messages.ArrayOK(); isArray {
		values, _ := list.Values() // those of a damaged list that can be read
		for _, v := range values {
			s.Messages = append(s.Messages, json.RawMessage(codec.ValueJSON(v)))
		}
	}
	return s
}

// start is what the times of a plan count from. Of week and month it may be zero, for midnight.
func start(s *repeat.Spec, now time.Time) time.Time {
	switch s.PlanType {
	case repeat.None:
		return now
	case repeat.Second, repeat.Minute, repeat.Hour, repeat.Day:
		if s.PlanTime.IsZero() {
			return now
		}
	}
	return clock.Millis(s.PlanTime)
}

// CheckID checks the plan_id of a plan, which is shown to people and is part of other ids: that of the
// document, tenant/plan_id, those of results, and the keys of tasks, plan_id@step.
func CheckID(id string) error {
	if id == "" {
		return input.Invalid("plan_id", "is empty; want 1 to %d bytes", maxPlanID)
	}
	var e problems
	e.text("plan_id", id, maxPlanID)
	e.add(input.Line("plan_id", id))
	if strings.ContainsAny(id, "/@") {
		e.bad("plan_id", "is %q; / and @ are not allowed", safetext.Clip(id, maxPlanID))
	}
	return e.joined()
}

func (e *problems) text(field, text string, most int) {
	switch n := len(text); {
	case n > most:
		e.bad(field, "has %d bytes; at most %d are allowed", n, most)
	case !safetext.IsText(text):
		e.bad(field, "must be valid UTF-8 without a NUL byte")
	}
}

func (e *problems) messages(messages []any) bson.RawValue {
	if n := len(messages); n < 1 || n > MaxMessages {
		e.bad("messages", "are %d; want 1 to %d", n, MaxMessages)
		return bson.RawValue{}
	}
	list, err := codec.EncodeValue("messages", messages, MaxMessageBytes)
	e.add(err)
	return list
}

// task checks what the tasks of the steps have.
func (e *problems) task(s *repeat.Spec) {
	e.add(input.Priority(s.Priority))
	o := s.Options
	if s.PlanExecTimeout != 0 {
		if o.WorkerTimeout != 0 {
			e.bad("plan_exec_timeout", "is given, and so is options.worker_timeout, which means the same; want one of them")
		} else {
			o.WorkerTimeout = s.PlanExecTimeout
		}
	}
	err := input.Under("options", input.Options(&o))
	if s.Options.WorkerTimeout == 0 {
		err = input.Renamed(err, func(field string) string {
			if field == "options.worker_timeout" {
				return "plan_exec_timeout"
			}
			return field
		})
	}
	e.add(err)
	e.add(input.Under("options", input.OptionsFor(&o, s.Station)))
	if !o.ExpiresAt.IsZero() && repeats(s.PlanType) {
		e.bad("options.expires_at", "is %v, one time for all steps: those after it would be cancelled", o.ExpiresAt)
	}
}
