package periodic

import (
	"encoding/json"
	"errors"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// HTTPTarget is an HTTP call that a rule makes at each tick, as a task of type mscheduler.http.
// Workers of the built-in types run it (mscheduler work). Options.Retry of the rule says how a run
// is retried; without it the first error fails the run, unless the definition of that type says
// otherwise. OnFailure says what follows a failed run.
type HTTPTarget = httptarget.Target

// HTTPMode says what decides whether a run of an [HTTPTarget] succeeded.
type HTTPMode = httptarget.Mode

// The modes; "" is SYNC.
const (
	HTTPSync  = httptarget.Sync  // the answer: RunFailed, or RunTimeout where none came
	HTTPAsync = httptarget.Async // a completion: RunFailedTimeout if none came
)

// HTTPKey is an access key with its secret, which signs the calls of a target.
type HTTPKey = model.CallbackKey

// StatusRange is a range of HTTP statuses, both ends included.
type StatusRange = httpcall.StatusRange

// target puts what is called into the task's template, and returns the task's arguments.
func (s *Spec) target(t *schedule.TaskTemplate) (args any, err error) {
	switch {
	case s.HTTP == nil && s.Type == httptarget.TaskType:
		return s.Args, input.Invalid("type", "is %s, which is what an HTTP target makes of itself: say http instead", s.Type)
	case s.HTTP == nil:
		return s.Args, nil
	case s.Type != "":
		return nil, errors.Join(input.Invalid("type", "is %q, but the rule calls a URL: say one of type and http", s.Type), s.HTTP.Check("http"))
	case s.Args != nil:
		return nil, input.Invalid("args", "are given, but the rule calls a URL: its body says what is sent")
	}
	t.Type = httptarget.TaskType
	if err := s.HTTP.Check("http"); err != nil {
		return nil, err
	}
	var ext json.RawMessage
	if s.Ext != nil {
		if ext, err = json.Marshal(s.Ext); err != nil {
			return nil, input.Invalid("ext", "cannot be written as JSON: %v", err)
		}
	}
	if err := s.HTTP.CheckExt("http", ext); err != nil {
		return nil, err
	}
	data, err := json.Marshal(s.HTTP)
	return json.RawMessage(data), err
}

// targetOf is what the task's template calls; nil for another type.
func targetOf(t *schedule.TaskTemplate) *HTTPTarget {
	var target HTTPTarget
	if t.Type != httptarget.TaskType || json.Unmarshal(codec.ValueJSON(t.Args), &target) != nil {
		return nil
	}
	return &target
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
		target := *s.HTTP
		if old.HTTP != nil {
			target.Keys = secret.KeepKeys(target.Keys, old.HTTP.Keys)
			target.Headers = secret.KeepHeaders(target.Headers, old.HTTP.Headers)
		}
		if errs[2] = target.CheckHeaders("http"); errs[2] == nil { // sealed ones cannot be judged
			target.Headers, errs[2] = p.secrets.SealHeaders("http.headers", target.Headers)
		}
		target.Keys, errs[1] = p.secrets.SealKeys("http.keys", target.Keys)
		s.HTTP = &target
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
