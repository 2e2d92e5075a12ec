package dashboard

import (
	"strconv"
	"strings"
)

// setting is one setting of a type: how the page shows it, and the field of the form that edits it.
type setting struct {
	Name    string // in the body of put-type
	Label   string
	As      string // how the page shows it: number, bool, duration, durations, json; "" = text
	Default string // in words
	Effect  string // of a change
	Choices []string
	stored  string // path in the stored type; "" = the name
}

// settingGroup is a part of the form.
type settingGroup struct {
	Title    string
	Settings []setting
}

// What a change of settings does, and when.
const (
	fromNextClaim = "Applies to executions that begin from now on; those that run keep what they began with."
	fromNextError = "Applies to errors of executions that begin from now on; retries that are scheduled keep their time."
	forPeople     = "Only shown to people."
)

// typeSettings are the settings of types in the order of the form.
var typeSettings = []settingGroup{
	{"About", []setting{
		{Name: "name", Label: "Name", Effect: forPeople},
		{Name: "description", Label: "Description", Effect: forPeople},
		{Name: "category", Label: "Category", Default: "none", Effect: "Applies to tasks that are sent from now on without a category of their own."},
	}},
	{"Limits", []setting{
		{Name: "max_running", Label: "Most running at once", As: "number", Default: "no limit", Effect: "Applies to claims from now on. Nothing that runs is stopped; a lower limit is reached as executions end."},
		{Name: "rate_limit.count", Label: "Rate: executions", As: "number", Default: "no limit", Effect: "Limits how many executions begin in each span, on all workers together, from now on."},
		{Name: "rate_limit.per", Label: "Rate: in each span of", As: "duration", Default: "no limit", Effect: "Limits how many executions begin in each span, on all workers together, from now on."},
		{Name: "key_limit.max_running", Label: "Most running at once of a limit key", As: "number", Default: "1", Effect: "Applies to claims of tasks with a limit key from now on."},
		{Name: "key_limit.rate_limit.count", Label: "Rate of a limit key: executions", As: "number", Default: "no limit", Effect: "Applies to claims of tasks with a limit key from now on."},
		{Name: "key_limit.rate_limit.per", Label: "Rate of a limit key: in each span of", As: "duration", Default: "no limit", Effect: "Applies to claims of tasks with a limit key from now on."},
		{Name: "claim_by", Label: "Restricted workers claim by", Default: "none", Choices: []string{"tenant", "creator", "category"}, Effect: "Workers that take only some tasks find them by this label."},
	}},
	{"Time", []setting{
		option("timeout", "Limit of one execution", "duration", "no limit", fromNextClaim).from("execution_timeout_ms"),
		option("worker_timeout", "Lease", "duration", "30s", fromNextClaim+" Another worker takes over when no ping arrives for this long."),
		option("ping_interval", "Ping every", "duration", "a third of the lease", fromNextClaim),
		option("retention", "Ended tasks are kept for", "duration", "7d", "Applies to tasks that end from now on. Until then nobody can send a task with the same key."),
	}},
	{"Errors", []setting{
		{Name: "retry.strategy", Label: "Delay between retries", Default: "exponential", Choices: []string{"none", "fixed", "sequence", "exponential"}, Effect: fromNextError, stored: "options.retry.strategy"},
		option("retry.max_errors", "Retries", "number", "10", fromNextError),
		option("retry.interval", "First delay", "duration", "1s", fromNextError),
		option("retry.max_interval", "Greatest delay", "duration", "1h", fromNextError),
		option("retry.factor", "Growth of the delay", "number", "2", fromNextError),
		option("retry.jitter", "Random share of the delay", "number", "0.1", fromNextError),
		option("retry.sequence", "Delays of a sequence", "durations", "none", fromNextError),
		option("retry.local.count", "Retries inside an execution", "number", "0", fromNextClaim),
		option("retry.local.interval", "Delay inside an execution", "duration", "none", fromNextClaim),
		option("max_lapses", "Lapsed leases that a task survives", "number", "3", fromNextClaim),
		option("max_errors_per_worker", "Errors of one worker until it leaves the task", "number", "no limit", fromNextError),
		option("need_manual", "Wait for a person when all retries are spent", "bool", "no", "A task with no retries left becomes Pending instead of Failure."),
	}},
	{"Ends", []setting{
		option("concurrent_worker_count", "Workers that must each succeed", "number", "1", fromNextClaim),
		option("callback", "Callback", "json", "none", "Tells another program of the end of each task. A secret that is shown as *** stays as it is."),
	}},
}

// option is a setting that tasks may have, too: stored under options, spans of time in milliseconds.
func option(name, label, as, otherwise, effect string) setting {
	s := setting{Name: name, Label: label, As: as, Default: otherwise, Effect: effect, stored: "options." + name}
	if as == "duration" || as == "durations" {
		s.stored += "_ms"
	}
	return s
}

// from is the setting with another name under options.
func (s setting) from(name string) setting {
	s.stored = "options." + name
	return s
}

// path is where the stored type has the setting.
func (s setting) path() string {
	switch {
	case s.stored != "":
		return s.stored
	case s.As == "duration":
		return s.Name + "_ms"
	default:
		return s.Name
	}
}

// field is the setting in the form.
func (s setting) field() field {
	f := field{Name: s.Name, Label: s.Label, As: s.As, Options: s.Choices, Default: s.Default, Effect: s.Effect}
	switch s.As {
	case "duration":
		f.As = ""
	case "durations":
		f.As, f.Help = "list", "one a line, such as 10s"
	case "json":
		f.Help = `JSON, such as {"success": {"url": "https://example.org"}}`
	}
	return f
}

// In is the value of the setting in a stored type, as the form takes it; "" where it is not set.
func (s setting) In(typ any) string {
	v := at(typ, s.path())
	switch {
	case v == nil:
		return ""
	case s.As == "duration":
		return spanText(v)
	case s.As == "durations":
		var out []string
		for _, one := range list(v) {
			out = append(out, spanText(one))
		}
		return strings.Join(out, "\n")
	case s.As == "json":
		return indented(v)
	case s.As == "bool" && v == true:
		return "yes"
	case s.As == "bool":
		return ""
	default:
		return text(v)
	}
}

// spanText is a number of milliseconds as the API reads it: 90s, 5m, 7d; none for no limit at all.
func spanText(ms any) string {
	n := integer(ms)
	if n < 0 {
		return "none"
	}
	for _, unit := range []struct {
		name string
		ms   int64
	}{{"d", 86_400_000}, {"h", 3_600_000}, {"m", 60_000}, {"s", 1000}} {
		if n > 0 && n%unit.ms == 0 {
			return strconv.FormatInt(n/unit.ms, 10) + unit.name
		}
	}
	return strconv.FormatInt(n, 10) + "ms"
}
