package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

const runHelp = `Show one run of a rule by its id: when it was due, when its task was sent, when a worker began it
and when it ended. ` + "`mscheduler periodic runs`" + ` lists the ids. For an HTTP target the command shows the
last request and its response. Credentials, query values and the completion URL appear as ***, and
long bodies are cut. A rule with log: none keeps no records; its runs are read from their tasks.`

func (r *rulesCommand) run() *cobra.Command {
	return &cobra.Command{
		Use: "run ID", Short: "Show one run, with request and response", Args: one("the id of a run"), Long: runHelp,
		Example: "  mscheduler periodic run '0k3v9m2x@2026-01-31T02:30:00Z'",
		RunE: r.onDatabase(func(ctx context.Context, d *connection, args []string) error {
			run, err := d.rules.GetRun(ctx, args[0])
			if err != nil {
				return err
			}
			if r.asJSON() {
				return r.printJSON(view.RunOf(run))
			}
			rule, err := d.store.Rules.Get(ctx, run.RuleID)
			if errors.Is(err, store.ErrNoRule) {
				rule, err = &schedule.Rule{}, nil // removed by hand; times in UTC
			}
			if err != nil {
				return err
			}
			return r.print(runFields(run, rule, d.at))
		}),
	}
}

func runFields(x *schedule.Run, rule *schedule.Rule, now time.Time) string {
	var f fields
	f.add("run", x.ID)
	f.add("rule", ruleName(&schedule.Rule{Name: x.RuleName, Tenant: x.Tenant}))
	f.add("tick", inZone(x.Nominal, rule))
	f.add("status", string(x.Status))
	f.add("why", whyText(x, rule))
	if x.Status != schedule.RunSkipped {
		f.add("attempt", fmt.Sprint(x.Attempt))
	}
	f.add("task", human.TaskID(x.TaskID))
	f.add("task sent", stampOrNone(x.StartedAt, rule))
	f.add("execution began", stampOrNone(x.ExecutedAt, rule))
	f.add("ended", stampOrNone(x.EndedAt, rule))
	f.add("took", tookText(x, now))
	if c := x.Call; c != nil {
		f.add("called", fmt.Sprintf("%s, took %s, attempt %d", inZone(c.At, rule), human.Rough(time.Duration(c.Took)*time.Millisecond), c.Attempt))
		f.add("request", messageText(c.Request.Method+" "+c.Request.URL, c.Request.Headers, c.Request.Body, c.Request.Truncated))
		switch {
		case c.Response != nil:
			body := c.Response.Body
			if c.Response.Encoding != "" {
				body = "(" + c.Response.Encoding + ") " + body
			}
			f.add("response", messageText(fmt.Sprint(c.Response.Status), c.Response.Headers, body, c.Response.Truncated))
		case c.Error != "":
			f.add("response", "none: "+c.Error)
		default:
			f.add("response", "none yet, or it arrived after the end of the run")
		}
	}
	return f.String()
}

func stampOrNone(t time.Time, rule *schedule.Rule) string {
	if t.IsZero() {
		return ""
	}
	return inZone(t, rule)
}

// messageText is a request or a response: its first line, headers and body.
func messageText(first string, headers []string, body string, truncated bool) string {
	lines := append([]string{first}, headers...)
	if body != "" {
		lines = append(lines, "", body)
	}
	if truncated {
		lines = append(lines, "(cut)")
	}
	return strings.Join(lines, "\n")
}
