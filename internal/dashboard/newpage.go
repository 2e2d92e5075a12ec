package dashboard

import (
	"strconv"

	"github.com/mscheduler/mscheduler/internal/form"
)

var newRoutes = routes{
	"/tasks/new": (*visit).newTask, "/periodics/new": (*visit).newRule, "/plans/new": (*visit).newPlan, "/flows/new": (*visit).newFlow,
	"/periodics/{tenant}/{name}/edit": (*visit).editRule,
}

func (v *visit) newTask() error {
	text := ""
	if typ := v.r.URL.Query().Get("type"); typ != "" {
		text = "type: " + strconv.Quote(typ) + "\n"
	}
	return v.edit("Send a task", "Tasks", editor{
		Call: "POST /tasks", Then: "/tasks/{id}", Label: "Send", Idempotent: true, Text: text,
		Fields: []field{
			{Name: "type", Label: "Type", Help: "which handler runs it", Required: true},
			{Name: "key", Label: "Key", Help: "at most one task per key; generated if empty"},
			{Name: "args", Label: "Arguments", Help: "JSON", As: "json"},
			{Name: "in", Label: "Delay", Help: "such as 5m or 2h; now if empty"},
			{Name: "tenant", Label: "Tenant"},
			{Name: "priority", Label: "Priority", Help: "0 to 9; 9 runs first; 5 if empty", As: "number"},
			{Name: "options.timeout", Label: "Timeout of an execution", Help: "such as 90s"},
			{Name: "options.retry.strategy", Label: "Retry", Options: []string{"none", "fixed", "exponential", "sequence"}},
			{Name: "options.retry.interval", Label: "Interval of retries", Help: "such as 30s"},
			{Name: "options.retry.max_errors", Label: "Errors until it fails for good", As: "number"},
			{Name: "options.need_manual", Label: "A person decides when it has failed", As: "bool"},
		},
	})
}

// dryRun says what storing a rule would do, with a forecast of a week.
const dryRun = "POST /periodics/preview?forecast_days=7"

var ruleFields = []field{
	{Name: "cron", Label: "Cron", Help: "minute, hour, day of month, month, day of week: 0 3 * * *", Required: true},
	{Name: "timezone", Label: "Time zone", Help: "such as Europe/Berlin"},
	{Name: "type", Label: "Type of its tasks"},
	{Name: "args", Label: "Arguments of its tasks", Help: "JSON", As: "json"},
	{Name: "description", Label: "Description"},
	{Name: "enabled", Label: "It fires", As: "bool"},
}

func (v *visit) newRule() error {
	return v.edit("Make a periodic rule", "Periodic", editor{
		Call: "POST /periodics", Then: "/periodics/{living}", Label: "Make the rule", Preview: dryRun, Idempotent: true, Text: "cron: 0 3 * * *\ntimezone: UTC\nenabled: true\n",
		Fields: append([]field{{Name: "name", Label: "Name", Required: true}, {Name: "tenant", Label: "Tenant"}}, ruleFields...),
	})
}

func (v *visit) editRule() error {
	name := v.r.PathValue("name")
	path := "/periodics" + pathOf(v.r.PathValue("tenant"), name)
	out, err := v.ask(path+"/definition", nil)
	if err != nil {
		return err
	}
	text, err := form.YAMLOfJSON(out.body.Bytes())
	if err != nil {
		return err
	}
	return v.edit("Edit "+name, "Periodic", editor{
		Call: "PUT " + path, Match: out.header.Get("ETag"), Then: path, Label: "Save", Preview: dryRun, Text: text, Fields: ruleFields,
		Help: "*** stands for a secret that stays as it is.",
	})
}

// firstFlow is what the page of a new flow begins with.
const firstFlow = `args: {order: {id: 7}}
nodes:
  - id: pay
    type: payment
    args: {order: {$arg: order.id}}
  - id: stock
    type: stock
    after: [pay]
  - id: approve
    after: [pay]
    ask: Is the amount correct?
  - id: done
    type: mail
    after: [stock, approve]
    args: {receipt: {$output: pay.receipt}}
`

// newFlow checks and draws a definition for everybody; operators start it.
func (v *visit) newFlow() error {
	label := ""
	if v.who.May("operator") {
		label = "Start"
	}
	return v.edit("New flow", "Flows", editor{
		Call: "POST /flows", Then: "/flows/{id}", Label: label, Preview: "POST /flows/validate?picture=svg", Draws: true, Idempotent: true, Text: firstFlow,
		Fields: []field{
			{Name: "key", Label: "Key", Help: "at most one flow per key; generated if empty"},
			{Name: "args", Label: "Arguments", Help: "JSON; nodes refer to them by $arg", As: "json"},
			{Name: "tenant", Label: "Tenant"},
		},
	})
}

func (v *visit) newPlan() error {
	return v.edit("Publish a plan", "Plans", editor{
		Call: "POST /plans", Then: "/plans/{id}", Label: "Publish", Idempotent: true,
		Fields: []field{
			{Name: "plan_id", Label: "Plan id", Help: "generated if empty"},
			{Name: "station", Label: "Station", Help: "the type of the tasks of its steps", Required: true},
			{Name: "plan_type", Label: "Steps run", Options: []string{"none", "time", "second", "minute", "hour", "day", "week", "month"}},
			{Name: "plan_value", Label: "Interval or day", Help: "week: 0 (Sunday) to 6; month: 1 to 31, or 0 for the last day", As: "number"},
			{Name: "plan_repet", Label: "Number of steps", Help: "-1 for no end", As: "number"},
			{Name: "plan_time", Label: "Time", Help: "such as 2026-12-01 02:30"},
			{Name: "timezone", Label: "Time zone", Help: "such as Europe/Berlin; UTC if empty"},
			{Name: "messages", Label: "Messages", Help: "JSON: a list of 1 to 1000 arguments of each step", As: "json"},
		},
	})
}
