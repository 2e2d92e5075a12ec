package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/audit"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
)

const auditHelp = `List who changed what. Each change by the REST API and by the command line has an entry, which is
stored before the change is made. Work by workers has no entry; each task records its executions.`

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "List who changed what", Long: auditHelp, Args: noArgs, RunE: group}
	cmd.AddCommand(a.auditList(), a.retention(&cobra.Command{
		Short: "Show or set how long the audit is kept",
		Long: "Show or set how long the entries of the audit are kept: a duration such as 30d, or forever; 90 days\n" +
			"unless it was set. It holds for the whole database, for entries from now on.",
		Example: "  mscheduler audit retention\n  mscheduler audit retention 365d",
	}, "the audit", func(ctx context.Context, c *connection) (time.Duration, error) { return c.store.Audit.Retention(ctx) },
		func(ctx context.Context, c *connection, keep time.Duration) error {
			return c.store.Audit.SetRetention(ctx, keep)
		}))
	return cmd
}

const auditListHelp = `List changes, the newest first.

Outcomes: ok; refused, where nothing was changed; failed, where an error cut the change off, which
may be done in part; unknown, where the change has not ended, or its process was killed.

With -o json each entry also has the request, and the fields that have changed as they were and as
they became, without secrets.`

func (a *app) auditList() *cobra.Command {
	var f store.AuditFilter
	var outcome, after, before string
	var page pageFlags
	cmd := &cobra.Command{
		Use: "list", Short: "List changes, the newest first", Args: noArgs, Long: auditListHelp,
		Example: "  mscheduler audit list --resource -/mail/order-7\n  mscheduler audit list --who os/ann@build7 --since -1d\n  mscheduler audit list --outcome refused -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.Outcome = store.AuditOutcome(outcome); outcome != "" && !slices.Contains(store.AuditOutcomes, f.Outcome) {
				return usage("--outcome is %q; want one of %s", outcome, strings.Join(names(store.AuditOutcomes), ", "))
			}
			if f.Kind != "" && !slices.Contains(audit.Kinds, f.Kind) {
				return usage("--kind is %q; want one of %s", f.Kind, strings.Join(audit.Kinds, ", "))
			}
			if page.after != "" && !input.IsKey(page.after) {
				return wrongAfter(page.after)
			}
			return a.onDatabase(func(ctx context.Context, c *connection, _ []string) error {
				var err error
				for _, t := range []struct {
					flag, text, selects string
					into                *time.Time
				}{{"since", after, "no change", &f.After}, {"until", before, "every change", &f.Before}} {
					if *t.into, err = parsePastIfAny(t.flag, t.text, c.at, t.selects); err != nil {
						return err
					}
				}
				var entries []*store.AuditEntry
				for next := page.after; ; {
					found, more, err := c.store.Audit.List(ctx, f, next, page.limit-len(entries))
					if err != nil {
						return err
					}
					if entries, next = append(entries, found...), more; next == "" || len(entries) == page.limit {
						return a.printAudit(entries, next, noEntries(&f), c.at)
					}
				}
			})(cmd, nil)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.Who, "who", "", "token/ID, oidc/SUBJECT, os/USER@HOST or anybody")
	fs.StringVar(&f.Operation, "operation", "", "operationId of the API, or the command, such as 'task cancel'")
	fs.StringVar(&f.Kind, "kind", "", strings.Join(audit.Kinds, ", "))
	fs.StringVar(&f.Resource, "resource", "", "id of the thing, such as -/mail/order-7")
	fs.StringVar(&f.Tenant, "tenant", "", "tenant of the thing; - for things without one")
	fs.StringVar(&outcome, "outcome", "", strings.Join(names(store.AuditOutcomes), ", "))
	fs.StringVar(&after, "since", "", "from this time on: 2026-01-31T09:00:00Z, or -2h")
	fs.StringVar(&before, "until", "", "before this time")
	page.register(cmd, "entries")
	_ = cmd.RegisterFlagCompletionFunc("kind", fixed(audit.Kinds...))
	_ = cmd.RegisterFlagCompletionFunc("outcome", fixed(names(store.AuditOutcomes)...))
	return cmd
}

// noEntries says that there are none. Other commands name a thing without a tenant by less than its id.
func noEntries(f *store.AuditFilter) string {
	resource := f.Resource
	if _, command := changes[f.Operation]; f.Operation != "" && !command {
		return fmt.Sprintf("no entries; --operation is %q, which is no command that changes something: if it is not an operationId of the API, check the spelling", f.Operation)
	}
	if resource == "" || strings.HasPrefix(resource, "-/") {
		return "no entries"
	}
	return "no entries; if the thing is a task, rule, flow or plan without a tenant, write --resource -/" + resource
}

func (a *app) printAudit(entries []*store.AuditEntry, next, none string, now time.Time) error {
	views := []view.AuditEntry{}
	t := newTable("WHEN", "WHO", "FROM", "OPERATION", "RESOURCE", "OUTCOME", "WHY")
	for _, e := range entries {
		views = append(views, view.AuditEntryOf(e))
		what := e.Resource
		if e.Count > 0 {
			what = human.Plural(e.Count, "thing", "things")
		}
		who := e.Who
		if e.Name != "" {
			who += " (" + e.Name + ")"
		}
		outcome := string(e.Outcome)
		if e.Status != 0 {
			outcome += fmt.Sprintf(" (%d)", e.Status)
		}
		t.add(human.When(e.At, now), human.OneLine(who, 50), human.OneLine(e.From, 40), e.Operation, human.OneLine(cmp.Or(what, e.Kind), 60), outcome, human.OneLine(e.Reason, 60))
	}
	return a.printPage("entries", views, next, t, none)
}
