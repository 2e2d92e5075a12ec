package lifecycle

import (
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/scenario"
	"github.com/mscheduler/mscheduler/model"
)

// scenarioCommand is a command that says something of tasks.
type scenarioCommand struct{ scenario.Command }

func (a scenarioCommand) json(key string) bson.RawValue {
	v, err := codec.EncodeJSON(key, []byte(a.Value(key)), input.MaxArgsBytes)
	require.NoError(a.T, err, a.Pos())
	return v
}

var optionWords = []string{"n", "retry", "max-errors", "max-lapses", "per-worker", "manual", "timeout", "lease", "workers", "retention", "claim-by", "callback", "expires"}

func (a scenarioCommand) hasOptions() bool { return slices.ContainsFunc(optionWords, a.Has) }

func (a scenarioCommand) options(o model.Options) model.Options {
	for _, word := range optionWords {
		if !a.Has(word) {
			continue
		}
		if word == "retry" || word == "max-errors" {
			r := ptrCopy(o.Retry)
			if r == nil {
				r = &model.Retry{}
			}
			o.Retry = r
		}
		switch word {
		case "n":
			o.ConcurrentWorkerCount = a.Number(word)
		case "retry":
			o.Retry = a.retry(*o.Retry)
		case "max-errors":
			o.Retry.MaxErrors = new(a.Number(word))
		case "max-lapses":
			o.MaxLapses = new(a.Number(word))
		case "per-worker":
			o.MaxErrorsPerWorker = a.Number(word)
		case "manual":
			o.NeedManual = new(true)
		case "timeout":
			o.ExecutionTimeout = a.Duration(a.Value(word))
		case "lease":
			o.WorkerTimeout = a.Duration(a.Value(word))
		case "workers":
			o.SpecificWorkerIDs = a.Values(word)
		case "retention":
			o.Retention = a.Duration(a.Value(word))
		case "claim-by":
			o.ClaimBy = model.ClaimBy(a.Value(word))
		case "callback":
			o.Callback = a.callback()
		case "expires": // counted from the start of the file
			o.ExpiresAt = epoch.Add(a.Duration(a.Value(word)))
		}
	}
	return o
}

func (a scenarioCommand) callback() *model.Callback {
	c, which := &model.Callback{}, a.Value("callback")
	if which == "success" || which == "both" {
		c.Success = &model.CallbackTarget{URL: "http://receiver/success"}
	}
	if which == "error" || which == "both" {
		c.Error = &model.CallbackTarget{URL: "http://receiver/error"}
	}
	if which == "pending" {
		c.Error, c.OnPending = &model.CallbackTarget{URL: "http://receiver/error"}, true
	}
	return c // "none" is one that tells nobody
}

func (a scenarioCommand) retry(r model.Retry) *model.Retry {
	strategy, rest, _ := strings.Cut(a.Value("retry"), ":")
	switch strategy {
	case "none":
		r.Strategy = model.RetryNone
	case "fixed":
		r.Strategy, r.Interval = model.RetryFixed, a.Duration(rest)
	case "seq":
		r.Strategy = model.RetrySequence
		for _, d := range strings.Split(rest, ",") {
			r.Sequence = append(r.Sequence, a.Duration(d))
		}
	default:
		r.Strategy, r.Jitter = model.RetryExponential, -1
	}
	return &r
}

func (a scenarioCommand) draft(now time.Time) Draft {
	d := Draft{Type: "t", Key: "k", Held: a.Has("held"), Options: a.options(model.Options{})}
	if a.Has("key") {
		d.Key = a.Value("key")
	}
	d.Tenant, d.Creator, d.Category = a.Value("tenant"), a.Value("creator"), a.Value("category")
	if a.Has("origin") {
		d.Origin = &model.Origin{Kind: a.Value("origin"), ID: "rule"}
	}
	if a.Has("args") {
		d.Args = a.json("args")
	}
	if a.Has("start") {
		d.Start = now.Add(a.Duration(a.Value("start")))
	}
	if a.Has("priority") {
		d.Priority = new(a.Number("priority"))
	}
	return d
}

func (a scenarioCommand) patch(o model.Options, now time.Time) Patch {
	d := a.draft(now)
	p := Patch{Priority: d.Priority}
	if a.Has("category") {
		p.Category = &d.Category
	}
	if a.Has("creator") {
		p.Creator = &d.Creator
	}
	if a.Has("args") {
		p.Args = &d.Args
	}
	if a.Has("start") {
		p.Start = &d.Start
	}
	if a.hasOptions() {
		p.Options = new(a.options(o))
	}
	return p
}

func (a scenarioCommand) policy() model.Existing {
	var p model.Existing
	for word, flag := range map[string]model.Existing{"update-args": model.UpdateArgs, "update-idle": model.UpdateIdle, "restart-failed": model.RestartFailed, "restart-succeeded": model.RestartSucceeded, "keep-args": model.KeepArgs} {
		if a.Has(word) {
			p |= flag
		}
	}
	return p
}

func (a scenarioCommand) outcome(t *model.Task, now time.Time) Outcome {
	kind := a.Word(1)
	switch kind {
	case "ok":
		out := Success(a.json("result"))
		out.NoCallback = a.Has("quiet")
		return out
	case "error", "fatal", "panic", "timeout":
		return Failed(kind, kind)
	case "snooze":
		return Failed(failkind.Released, "snoozed").After(a.Duration(a.Word(2)))
	case "retry-after":
		return Failed(failkind.Error, "later").After(a.Duration(a.Word(2)))
	case "not-before":
		out := Failed(failkind.Error, "later")
		out.AtLeast = a.Duration(a.Word(2))
		return out
	case "unstarted":
		return NotStarted("given back")
	case "release":
		return Failed(failkind.Released, "released")
	case "cancel":
		return Outcome{Kind: failkind.Cancelled, Reason: "not wanted", CancelTask: true}
	case "undecodable":
		return Undecodable(t, "a field is missing", time.Hour, now)
	default:
		require.Failf(a.T, "unknown outcome", "%s: %s", a.Pos(), kind)
		return Outcome{}
	}
}
