package rulespec

import (
	"encoding/json"
	"errors"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// targetArgs puts what is called into the task's template, and returns the task's arguments.
func targetArgs(s *schedule.Spec, t *schedule.TaskTemplate) (args any, err error) {
	called := (*httptarget.Target)(s.HTTP)
	switch {
	case s.HTTP == nil && s.Type == httptarget.TaskType:
		return s.Args, input.Invalid("type", "is %s, which is reserved for HTTP targets; set http instead", s.Type)
	case s.HTTP == nil:
		return s.Args, nil
	case s.Type != "":
		return nil, errors.Join(input.Invalid("type", "is %q, but http is set, too; say one of type and http", s.Type), called.Check("http"))
	case s.Args != nil:
		return nil, input.Invalid("args", "are given, but a URL target sends its body; put the content into http.body")
	}
	t.Type = httptarget.TaskType
	if err := called.Check("http"); err != nil {
		return nil, err
	}
	var ext json.RawMessage
	if s.Ext != nil {
		if ext, err = json.Marshal(s.Ext); err != nil {
			return nil, input.Invalid("ext", "cannot be encoded as JSON: %v", err)
		}
	}
	if err := called.CheckExt("http", ext); err != nil {
		return nil, err
	}
	data, err := json.Marshal(called)
	return json.RawMessage(data), err
}

// TargetOf is what the task's template calls; nil for another type.
func TargetOf(t *schedule.TaskTemplate) *schedule.HTTPTarget {
	var target httptarget.Target
	if t.Type != httptarget.TaskType || json.Unmarshal(codec.ValueJSON(t.Args), &target) != nil {
		return nil
	}
	return (*schedule.HTTPTarget)(&target)
}
