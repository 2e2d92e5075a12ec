package rulespec

import (
	"cmp"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Seal returns the spec with its secrets sealed, as a rule stores them: see [Keep]. Errors are
// model.ErrInvalid and name the fields.
func Seal(box *secret.Box, s schedule.Spec, stored *schedule.Rule) (schedule.Spec, error) {
	s, kept := Keep(box, s, stored)
	var errs [4]error
	s.Options.Callback, errs[0] = box.SealCallback("callback", s.Options.Callback)
	if s.HTTP != nil {
		target := httptarget.Target(*s.HTTP)
		errs[3] = secret.WholeURL("http.url", target.URL)
		if errs[2] = target.CheckHeaders("http"); errs[2] == nil && kept == nil { // sealed ones cannot be judged
			target.Headers, errs[2] = box.SealHeaders("http.headers", target.Headers)
		}
		target.Keys, errs[1] = box.SealKeys("http.keys", target.Keys)
		s.HTTP = (*schedule.HTTPTarget)(&target)
	}
	return s, errors.Join(append(errs[:], kept)...)
}

// Keep returns the spec with the secrets of the stored rule (nil = none) where they are
// [safetext.Hidden] or given as they are. Errors are model.ErrInvalid and name the fields.
func Keep(box *secret.Box, s schedule.Spec, stored *schedule.Rule) (schedule.Spec, error) {
	var old schedule.Spec
	if stored != nil {
		old = Of(stored)
	}
	s.Options.Callback = box.Keep(s.Options.Callback, old.Options.Callback)
	var err error
	switch {
	case s.HTTP == nil:
		s.Args, err = keptArgs(&s, stored)
	case old.HTTP != nil:
		target := *s.HTTP
		was := secret.CalleeOf(old.HTTP.URL, old.HTTP.Headers)
		target.URL = secret.CalleeOf(target.URL, target.Headers).KeepURL(was)
		target.Keys = box.KeepKeys(target.Keys, old.HTTP.Keys)
		target.Headers, err = box.KeepHeaders("http.headers", target.Headers, old.HTTP.Headers, secret.CalleeOf(target.URL, target.Headers).Elsewhere(was))
		s.HTTP = &target
	}
	return s, err
}

// keptArgs returns the arguments with what is hidden of their headers and their URL as it is stored.
func keptArgs(s *schedule.Spec, stored *schedule.Rule) (any, error) {
	args, err := codec.EncodeValue("args", s.Args, maxArgsBytes)
	if err != nil {
		return nil, err
	}
	var old bson.RawValue
	if stored != nil && stored.Task.Type == s.Type {
		old = stored.Task.Args
	}
	kept, err := secret.KeepArgs(s.Type, args, old)
	return plain(kept), err
}

// GivenHeaders names the headers whose credentials are not those of the stored rule, nil for none, and
// the field that has them. The spec is one of [Keep].
func GivenHeaders(kept *schedule.Spec, stored *schedule.Rule) (field string, names []string) {
	if kept.HTTP != nil {
		var old schedule.HTTPTarget
		if stored != nil {
			old = *cmp.Or(TargetOf(stored.Task), &old)
		}
		return "http.headers", secret.GivenHeaders(kept.HTTP.Headers, old.Headers)
	}
	args, err := codec.EncodeValue("args", kept.Args, maxArgsBytes)
	if err != nil {
		return "", nil // Build says what is wrong with them
	}
	var old bson.RawValue
	if stored != nil {
		old = stored.Task.Args
	}
	return "args.headers", secret.GivenInArgs(args, old)
}

// calledURL returns the URL that the rule's tasks call, and the field that has it.
func calledURL(s *schedule.Spec) (field, url string) {
	if s.HTTP != nil {
		return "http.url", s.HTTP.URL
	}
	args, err := codec.EncodeValue("args", s.Args, maxArgsBytes)
	if err != nil {
		return "", "" // Build says what is wrong with them
	}
	return "args.url", secret.CalledURL(s.Type, args)
}

// HiddenURL names the field of a URL that an edit changes only in what is not shown of it; "" = none. The
// spec is one of [Keep].
func HiddenURL(kept, old *schedule.Spec) string {
	field, url := calledURL(kept)
	if at, was := calledURL(old); at != field || was == url || safetext.URL(was) != safetext.URL(url) {
		return ""
	}
	return field
}

// HideSecrets puts "***" in the place of the spec's secrets.
func HideSecrets(s *schedule.Spec) {
	s.Options.Callback = secret.HideCallback(s.Options.Callback)
	if s.HTTP != nil {
		target := *s.HTTP
		target.URL, target.Keys, target.Headers = safetext.URL(target.URL), secret.HideKeys(target.Keys), secret.HideHeaders(target.Headers)
		s.HTTP = &target
	}
	if args, err := codec.EncodeValue("args", s.Args, maxArgsBytes); err == nil {
		s.Args = plain(secret.HideArgs(s.Type, args))
	}
}
