package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// layer is one place that may say something about a task's options.
type layer struct {
	name string
	said *model.Options
}

// optionsText is what applies to a task and who said so: the task, what type and handler
// said to its newest execution (or, before the first, its type), else the default.
func optionsText(t *model.Task, typ model.Options) string {
	own, _ := lifecycle.OptionsAtClaim(t)
	layers := []layer{{"task", &own}, {"type", &typ}}
	if t.Applied != nil {
		layers[1] = layer{"type or handler", t.Applied}
	}
	eff := lifecycle.EffectiveOf(t, typ)
	retry := func(said func(*model.Retry) bool) func(*model.Options) bool {
		return func(o *model.Options) bool { return o.Retry != nil && said(o.Retry) }
	}
	var out []string
	add := func(name, value string, said func(*model.Options) bool) {
		from := "default"
		for i := len(layers) - 1; i >= 0; i-- {
			if said(layers[i].said) {
				from = layers[i].name
			}
		}
		out = append(out, fmt.Sprintf("%s %s (%s)", name, value, from))
	}
	undone := func(r *model.Retry) bool {
		return r.Strategy == model.RetryNone && eff.Retry.Strategy != model.RetryNone
	}
	add("retries", retriesInWords(&eff), retry(func(r *model.Retry) bool { return r.Strategy != "" && !undone(r) }))
	add("at most", fmt.Sprintf("%d errors", *eff.Retry.MaxErrors), retry(func(r *model.Retry) bool {
		return (r.MaxErrors != nil || r.Strategy == model.RetryNone) && !undone(r)
	}))
	add("and", fmt.Sprintf("%d lapses", eff.MaxLapses), func(o *model.Options) bool { return o.MaxLapses != nil })
	if eff.MaxErrorsPerWorker > 0 {
		add("of each worker", fmt.Sprintf("%d errors", eff.MaxErrorsPerWorker), func(o *model.Options) bool { return o.MaxErrorsPerWorker != 0 })
	}
	add("lease", span(eff.Lease), func(o *model.Options) bool { return o.WorkerTimeout != 0 })
	add("ping every", span(eff.PingInterval), func(o *model.Options) bool { return o.PingInterval != 0 })
	add("timeout", spanOr(eff.ExecutionTimeout, "none"), func(o *model.Options) bool { return o.ExecutionTimeout != 0 })
	end := model.StatusFailure
	if eff.NeedManual {
		end = model.StatusPending
	}
	add("budget spent:", string(end), func(o *model.Options) bool { return o.NeedManual != nil })
	if least := leastRetention(t); eff.Retention < least {
		out = append(out, "stays for "+span(least)+" (the least)")
	} else {
		add("stays for", span(eff.Retention), func(o *model.Options) bool { return o.Retention != 0 })
	}
	told := callbackText(eff.Callback)
	if told == "" {
		told = "none"
	}
	add("callback", told, func(o *model.Options) bool { return o.Callback != nil })
	return strings.Join(out, "\n")
}

// nextOptionsText is what applies from the next claim on, where the task's options were
// changed while it ran; else "".
func nextOptionsText(t *model.Task, typ model.Options) string {
	if _, changed := lifecycle.OptionsAtClaim(t); !changed {
		return ""
	}
	next := *t
	next.WorkerStates = nil // which keep what holds until then
	return optionsText(&next, typ)
}

// leastRetention is what no retention of the task goes below.
func leastRetention(t *model.Task) time.Duration {
	if t.Origin != nil && t.Origin.Tick != nil {
		return lifecycle.MinTickRetention
	}
	return lifecycle.MinRetention
}

func spanOr(d time.Duration, none string) string {
	if d == 0 {
		return none
	}
	return span(d)
}

func retriesInWords(eff *lifecycle.Effective) string {
	switch r := eff.Retry; r.Strategy {
	case model.RetryNone:
		return "none"
	case model.RetryFixed:
		return "every " + span(r.Interval)
	case model.RetrySequence:
		delays := make([]string, len(r.Sequence))
		for i, d := range r.Sequence {
			delays[i] = span(d)
		}
		return "after " + strings.Join(delays, ", ")
	default:
		return fmt.Sprintf("after %s times %g each time up to %s", span(r.Interval), r.Factor, span(r.MaxInterval))
	}
}
