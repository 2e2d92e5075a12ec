package periodic

import (
	"encoding/json"
	"errors"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// target puts what is called into the task's template, and returns the task's arguments.
func (s *Spec) target(t *schedule.TaskTemplate) (args any, err error) {
	called := (*httptarget.Target)(s.HTTP)
	switch {
	case s.HTTP == nil && s.Type == httptarget.TaskType:
		return s.Args, input.Invalid("type", "is %s, which is what an HTTP target makes of itself: say http instead", s.Type)
	case s.HTTP == nil:
		return s.Args, nil
	case s.Type != "":
		return nil, errors.Join(input.Invalid("type", "is %q, but the rule calls a URL: say one of type and http", s.Type), called.Check("http"))
	case s.Args != nil:
		return nil, input.Invalid("args", "are given, but the rule calls a URL: its body says what is sent")
	}
	t.Type = httptarget.TaskType
	if err := called.Check("http"); err != nil {
		return nil, err
	}
	var ext json.RawMessage
	if s.Ext != nil {
		if ext, err = json.Marshal(s.Ext); err != nil {
			return nil, input.Invalid("ext", "cannot be written as JSON: %v", err)
		}
	}
	if err := called.CheckExt("http", ext); err != nil {
		return nil, err
	}
	data, err := json.Marshal(called)
	return json.RawMessage(data), err
}

// targetOf is what the task's template calls; nil for another type.
func targetOf(t *schedule.TaskTemplate) *schedule.HTTPTarget {
	var target httptarget.Target
	if t.Type != httptarget.TaskType || json.Unmarshal(codec.ValueJSON(t.Args), &target) != nil {
		return nil
	}
	return (*schedule.HTTPTarget)(&target)
}

// Sealed returns the spec with its secrets sealed, as [Periodic.Create] would store them, or
// [Periodic.Update] if stored is not nil. Secrets that are [model.HiddenSecret] are taken from the
// stored rule. Nothing is written. Errors are model.ErrInvalid and name the fields.
func (p *Periodic) Sealed(s Spec, stored *schedule.Rule) (Spec, error) {
	var old Spec
	if stored != nil {
		old = specOf(stored)
	}
	var errs [3]error
	s.Options.Callback, errs[0] = p.secrets.SealCallback("callback", secret.Keep(s.Options.Callback, old.Options.Callback))
	if s.HTTP != nil {
		target := httptarget.Target(*s.HTTP)
		if old.HTTP != nil {
			target.Keys = secret.KeepKeys(target.Keys, old.HTTP.Keys)
			target.Headers = secret.KeepHeaders(target.Headers, old.HTTP.Headers)
		}
		if errs[2] = target.CheckHeaders("http"); errs[2] == nil { // sealed ones cannot be judged
			target.Headers, errs[2] = p.secrets.SealHeaders("http.headers", target.Headers)
		}
		target.Keys, errs[1] = p.secrets.SealKeys("http.keys", target.Keys)
		s.HTTP = (*schedule.HTTPTarget)(&target)
	}
	return s, errors.Join(errs[:]...)
}

// hideSecrets puts "***" in the place of the spec's secrets.
func (s *Spec) hideSecrets() {
	s.Options.Callback = secret.HideCallback(s.Options.Callback)
	if s.HTTP != nil {
		target := *s.HTTP
		target.Keys, target.Headers = secret.HideKeys(target.Keys), secret.HideHeaders(target.Headers)
		s.HTTP = &target
	}
}
