package producer

import (
	"fmt"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/model"
)

// String prints the option as it is written in Go. It is made when asked for, not with
// the option: most options are never printed.
func (o option) String() string {
	texts := make([]string, len(o.values))
	for i, v := range o.values {
		switch v := v.(type) {
		case string:
			texts[i] = fmt.Sprintf("%q", v)
		case time.Time:
			texts[i] = v.Format(time.RFC3339Nano)
		case model.Existing:
			texts[i] = existingText(v)
		case model.Retry:
			texts[i] = retryText(v)
		default:
			texts[i] = fmt.Sprintf("%v", v)
		}
	}
	return o.name + "(" + strings.Join(texts, ", ") + ")"
}

// flags are the known values of model.Existing.
var flags = []struct {
	flag model.Existing
	name string
}{
	{model.UpdateArgs, "UpdateArgs"},
	{model.UpdateIdle, "UpdateIdle"},
	{model.RestartFailed, "RestartFailed"},
	{model.RestartSucceeded, "RestartSucceeded"},
	{model.KeepArgs, "KeepArgs"},
}

const knownFlags = model.UpdateArgs | model.UpdateIdle | model.RestartFailed | model.RestartSucceeded | model.KeepArgs

func existingText(e model.Existing) string {
	var names []string
	for _, f := range flags {
		if e&f.flag != 0 {
			names = append(names, f.name)
		}
	}
	if rest := e &^ knownFlags; rest != 0 || e == 0 {
		names = append(names, fmt.Sprintf("%d", rest))
	}
	return strings.Join(names, "|")
}

// retryText names the fields that are set.
func retryText(r model.Retry) string {
	var parts []string
	add := func(set bool, format string, args ...any) {
		if set {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(r.Strategy != "", "%s", r.Strategy)
	add(r.Interval != 0, "interval %v", r.Interval)
	add(len(r.Sequence) > 0, "sequence %v", r.Sequence)
	add(r.Factor != 0, "factor %v", r.Factor)
	add(r.MaxInterval != 0, "max_interval %v", r.MaxInterval)
	add(r.Jitter != 0, "jitter %v", r.Jitter)
	if r.MaxErrors != nil {
		add(true, "max_errors %d", *r.MaxErrors)
	}
	if r.Local != nil {
		add(true, "local %d every %v", r.Local.Count, r.Local.Interval)
	}
	return strings.Join(parts, ", ")
}
