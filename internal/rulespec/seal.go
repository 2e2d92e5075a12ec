package rulespec

import (
	"errors"

	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Seal returns the spec with its secrets sealed, as a rule stores them. Secrets that are
// [safetext.Hidden] are taken from the stored rule; nil = none. Errors are model.ErrInvalid and
// name the fields.
func Seal(box *secret.Box, s schedule.Spec, stored *schedule.Rule) (schedule.Spec, error) {
	var old schedule.Spec
	if stored != nil {
		old = Of(stored)
	}
	var errs [3]error
	s.Options.Callback, errs[0] = box.SealCallback("callback", secret.Keep(s.Options.Callback, old.Options.Callback))
	if s.HTTP != nil {
		target := httptarget.Target(*s.HTTP)
		if old.HTTP != nil {
			target.Keys = secret.KeepKeys(target.Keys, old.HTTP.Keys)
			target.Headers = secret.KeepHeaders(target.Headers, old.HTTP.Headers)
		}
		if errs[2] = target.CheckHeaders("http"); errs[2] == nil { // sealed ones cannot be judged
			target.Headers, errs[2] = box.SealHeaders("http.headers", target.Headers)
		}
		target.Keys, errs[1] = box.SealKeys("http.keys", target.Keys)
		s.HTTP = (*schedule.HTTPTarget)(&target)
	}
	return s, errors.Join(errs[:]...)
}

// HideSecrets puts "***" in the place of the spec's secrets.
func HideSecrets(s *schedule.Spec) {
	s.Options.Callback = secret.HideCallback(s.Options.Callback)
	if s.HTTP != nil {
		target := *s.HTTP
		target.Keys, target.Headers = secret.HideKeys(target.Keys), secret.HideHeaders(target.Headers)
		s.HTTP = &target
	}
}
