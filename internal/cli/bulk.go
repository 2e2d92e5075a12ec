package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/audit"
	"github.com/mscheduler/mscheduler/internal/bulk"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const bulkHelp = `Inspect and stop bulk jobs, which change many tasks in the background. The commands task cancel,
retry, update, resolve, release and redeliver start one with a filter and --background.

A job is a task of type mscheduler.bulk. Any worker of mscheduler work or mscheduler serve runs
it, page by page, and another one continues where it stopped if the worker dies. It changes only
tasks that were created before its start.`

func (a *app) bulkCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "bulk", Short: "Inspect and stop bulk jobs", Long: bulkHelp, Args: noArgs, RunE: group}
	cmd.AddCommand(a.bulkList(), a.bulkShow(), a.bulkStop())
	return cmd
}

// startJob has a job change the tasks of a filter.
func (r *changing) startJob(ctx context.Context, f store.Filter) error {
	j := &bulk.Job{Action: r.Name, Filter: bulk.FilterOf(f, r.where), Remark: r.remarkText}
	if r.job != nil {
		r.job(j)
	}
	v, err := r.c.jobs().Start(ctx, j, "", whoami())
	if err != nil {
		return err
	}
	r.made(audit.Thing{Kind: audit.Bulk, ID: input.RuleName(v.Tenant, v.ID)})
	return r.result(v, jobName(v)+"\n")
}

func (c *connection) jobs() *bulk.Jobs { return bulk.New(c.producer, c.admin, c.store) }

// jobName names a job, without the tenant that most have not.
func jobName(v *bulk.JobState) string {
	if v.Tenant == model.NoTenant {
		return v.ID
	}
	return v.Tenant + "/" + v.ID
}

// jobOf reads what jobName made. A key of a job has no slash, unless a client of the API chose one.
func jobOf(name string) (tenant, id string) {
	if tenant, id, ok := strings.Cut(name, "/"); ok {
		return tenant, id
	}
	return model.NoTenant, name
}

func (a *app) bulkList() *cobra.Command {
	var tenant string
	var page pageFlags
	cmd := &cobra.Command{
		Use: "list", Short: "List jobs, sorted by id", Args: noArgs,
		Long: "List the jobs of a tenant, sorted by id: the oldest first. Without --tenant, list the\njobs that belong to no tenant: their filters name no tenant, or - for tasks without one.",
		RunE: a.onDatabase(func(ctx context.Context, c *connection, _ []string) error {
			jobs, next, err := c.jobs().List(ctx, tenant, page.limit, page.after)
			if page.after != "" && errors.Is(err, model.ErrInvalid) {
				return wrongAfter(page.after)
			}
			if err != nil {
				return err
			}
			t := newTable("JOB", "ACTION", "STATUS", "MATCHED", "CHANGED", "SKIPPED", "FAILED", "CREATED", "BY")
			for _, v := range jobs {
				t.add(jobName(v), v.Action, jobStatus(v), matchedText(v), fmt.Sprint(v.Changed), fmt.Sprint(v.Skipped), fmt.Sprint(v.Failed), jobTime(v.Created, c.at), v.Creator)
			}
			return a.printPage("jobs", jobs, next, t, "no jobs")
		}),
	}
	cmd.Flags().StringVar(&tenant, "tenant", model.NoTenant, "tenant whose jobs to list")
	page.register(cmd, "jobs")
	return cmd
}

func (a *app) bulkShow() *cobra.Command {
	return &cobra.Command{
		Use: "show JOB", Short: "Show what a job does and how far it is", Args: one("the name of a job"),
		RunE: a.onDatabase(func(ctx context.Context, c *connection, args []string) error {
			tenant, id := jobOf(args[0])
			v, err := c.jobs().Get(ctx, tenant, id)
			if err != nil {
				return err
			}
			return a.printJob(v, c.at)
		}),
	}
}

func (a *app) bulkStop() *cobra.Command {
	var remark string
	cmd := &cobra.Command{
		Use: "stop JOB", Short: "Stop a job", Args: one("the name of a job"),
		Long: "Stop a job within seconds. What it has changed stays as it is.",
		RunE: a.onDatabase(func(ctx context.Context, c *connection, args []string) error {
			tenant, id := jobOf(args[0])
			v, err := c.jobs().Stop(ctx, tenant, id, remark)
			if err != nil {
				return err
			}
			return a.result(v, jobName(v)+"  "+jobStatus(v)+"\n")
		}),
	}
	cmd.Flags().StringVar(&remark, "remark", "", "the reason, stored with the job")
	return cmd
}

func jobStatus(v *bulk.JobState) string {
	if v.Stopping {
		return string(v.Status) + ", stopping"
	}
	return string(v.Status)
}

func matchedText(v *bulk.JobState) string {
	switch {
	case v.Counted:
		return fmt.Sprint(v.Matched)
	case v.Changed+v.Skipped+v.Failed > 0 || v.Status.Ended(): // it counts before it begins, or never
		return "not counted"
	default:
		return "not counted yet"
	}
}

// jobTime is a time of a job as other lists show times.
func jobTime(text string, now time.Time) string {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return text
	}
	return human.When(at, now)
}

func (a *app) printJob(v *bulk.JobState, now time.Time) error {
	var f fields
	f.add("job", jobName(v))
	f.add("action", v.Action)
	f.add("filter", string(v.Filter))
	f.add("change", string(v.Change))
	f.add("step", v.Step)
	f.add("remark", v.Remark)
	f.add("status", jobStatus(v))
	f.add("created", jobTime(v.Created, now)+behindText(" by ", v.Creator))
	f.add("finished", jobTime(v.Finished, now))
	f.add("matched", matchedText(v))
	f.add("changed", fmt.Sprint(v.Changed))
	if v.Skipped > 0 {
		f.add("skipped", strings.TrimPrefix(strings.Replace(skippedText(&v.Counts), " skipped:", "", 1), ", "))
	}
	if v.Failed > 0 {
		f.add("failed", fmt.Sprint(v.Failed))
	}
	for _, e := range v.Errors {
		f.add("", human.TaskID(e.TaskID)+": "+human.OneLine(e.Error, 200))
	}
	f.add("error", human.OneLine(v.ErrorInfo, 200))
	return a.result(v, f.String())
}

// behindText joins a lead and a text; it is "" if the text is empty.
func behindText(lead, text string) string {
	if text == "" {
		return ""
	}
	return lead + text
}
