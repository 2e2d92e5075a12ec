package rulespec

import (
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
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
	var errs [4]error
	s.Options.Callback, errs[0] = box.SealCallback("callback", secret.Keep(s.Options.Callback, old.Options.Callback))
	if s.HTTP != nil {
		target := httptarget.Target(*s.HTTP)
		if old.HTTP != nil {
			target.Keys = secret.KeepKeys(target.Keys, old.HTTP.Keys)
			target.Headers, errs[3] = secret.KeepHeaders("http.headers", target.Headers, old.HTTP.Headers, secret.Elsewhere(s.HTTP.URL, old.HTTP.URL))
		}
		if errs[2] = target.CheckHeaders("http"); errs[2] == nil && errs[3] == nil { // sealed ones cannot be judged
			target.Headers, errs[2] = box.SealHeaders("http.headers", target.Headers)
		}
		target.Keys, errs[1] = box.SealKeys("http.keys", target.Keys)
		s.HTTP = (*schedule.HTTPTarget)(&target)
	} else {
		s.Args, errs[3] = keptArgs(&s, stored)
	}
	return s, errors.Join(errs[:]...)
}

// keptArgs returns the arguments with the hidden credentials of their headers as they are stored.
func keptArgs(s *schedule.Spec, stored *schedule.Rule) (any, error) {
	args, err := codec.EncodeValue("args", s.Args, maxArgsBytes)
	if err != nil {
		return nil, err
	}
	var old bson.RawValue
	if stored != nil && stored.Task.Type == s.Type {
		old = stored.Task.Args
	}
	kept, err := secret.KeepArgs(args, old)
	return plain(kept), err
}

// GivenInArgs names the headers whose credentials the spec's arguments give, if the stored rule has
// others.
func GivenInArgs(s *schedule.Spec, stored *schedule.Rule) []string {
	args, err := codec.EncodeValue("args", s.Args, maxArgsBytes)
	if err != nil {
		return nil // Build says what is wrong with them
	}
	var old bson.RawValue
	if stored != nil {
		old = stored.Task.Args
	}
	return secret.GivenInArgs(args, old)
}

// HideSecrets puts "***" in the place of the spec's secrets.
func HideSecrets(s *schedule.Spec) {
	s.Options.Callback = secret.HideCallback(s.Options.Callback)
	if s.HTTP != nil {
		target := *s.HTTP
		target.Keys, target.Headers = secret.HideKeys(target.Keys), secret.HideHeaders(target.Headers)
		s.HTTP = &target
	}
	if args, err := codec.EncodeValue("args", s.Args, maxArgsBytes); err == nil {
		s.Args = plain(secret.HideArgs(args))
	}
}
