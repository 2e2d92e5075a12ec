package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

func (r *rulesCommand) list() *cobra.Command {
	name := ""
	cmd := &cobra.Command{
		Use: "list", Short: "List the rules", Args: noArgs,
		Long: "List the rules, sorted by tenant and name. -o yaml prints a file for `periodic apply`. If this\nrelease cannot read a rule, the command names it and exits with code 1. With --name and no --tenant,\nthe rules without a tenant are searched.",
		RunE: r.onDatabase(func(ctx context.Context, d *connection, _ []string) error {
			find := d.all
			if name != "" {
				find = func(ctx context.Context, tenant string) ([]*schedule.Rule, store.Unread, error) {
					return d.named(ctx, tenant, name)
				}
			}
			rules, unread, err := find(ctx, r.tenant)
			if err != nil {
				return err
			}
			if len(rules) > 0 || len(unread) == 0 {
				err = r.printRules(ctx, d, rules)
			}
			return allBut(unread, err)
		}),
	}
	cmd.Flags().StringVar(&name, "name", "", "only rules whose name begins with this text")
	return cmd
}

// named reads all rules of a tenant ("" = those without one) whose names begin so, and names those that cannot be
// read.
func (d *connection) named(ctx context.Context, tenant, prefix string) (rules []*schedule.Rule, broken store.Unread, err error) {
	broken = store.Unread{}
	for after := ""; ; {
		page, some, next, err := store.NamedPage(after, 1000, func(after string, limit int) ([]*schedule.Rule, []store.Unreadable, error) {
			return d.store.Rules.Named(ctx, tenant, prefix, after, limit)
		}, func(r *schedule.Rule) string { return r.Living })
		if err != nil {
			return nil, nil, err
		}
		rules = append(rules, page...)
		broken.Note("rule", some)
		if after = next; next == "" {
			return rules, broken, nil
		}
	}
}

// all reads all rules of a tenant ("" = of all), and names those that cannot be read.
func (d *connection) all(ctx context.Context, tenant string) (rules []*schedule.Rule, broken store.Unread, err error) {
	broken = store.Unread{}
	const size = 1000
	for after := ""; ; {
		page, err := d.rules.List(ctx, tenant, after, size)
		some := store.Unread{}
		if err := some.Add(err); err != nil {
			return nil, nil, err
		}
		n := len(page)
		if rules = append(rules, page...); n > 0 {
			after = page[n-1].Living
		}
		for living := range some {
			n, after = n+1, max(after, living)
		}
		maps.Copy(broken, some)
		if n < size {
			return rules, broken, nil
		}
	}
}

func (r *rulesCommand) printRules(ctx context.Context, d *connection, rules []*schedule.Rule) error {
	if done, err := printStored(r.app, "rules", rules, ruleForm, ruleJSON); done {
		return err
	}
	if len(rules) == 0 {
		r.say("no rules; see: mscheduler periodic apply --help")
		return nil
	}
	status, err := d.lastStatuses(ctx, rules)
	if err != nil {
		return err
	}
	t := newTable("RULE", "CRON", "ZONE", "SENDS", "STATE", "NEXT", "LAST RUN", "RUNS NOW", "WAIT")
	for _, x := range rules {
		last := ""
		if x.Last != nil {
			last = string(status[x.Last.ID]) + " " + human.Relative(x.Last.Nominal, d.at)
		}
		t.add(ruleName(x), x.Cron, cmp.Or(x.Timezone, "UTC"), x.Task.Type, stateText(x), nextText(x, d.at), last, fmt.Sprint(len(x.Active)), fmt.Sprint(len(x.Queued)))
	}
	if err := r.print(t.flush()); err != nil {
		return err
	}
	return r.sayIdle(ctx, d)
}

// lastStatuses are those of the rules' last runs by the runs' ids. To the rule a run is RUNNING
// from its decision until its end is told: whether a worker has taken it, and what became of it
// there, its task says.
func (d *connection) lastStatuses(ctx context.Context, rules []*schedule.Rule) (map[string]schedule.RunStatus, error) {
	out := map[string]schedule.RunStatus{}
	runs := map[string]string{} // by their tasks
	for _, r := range rules {
		if r.Last == nil {
			continue
		}
		out[r.Last.ID] = r.Last.Status
		i := slices.IndexFunc(r.Active, func(x schedule.RunRef) bool { return x.ID == r.Last.ID })
		if i >= 0 && r.Last.Status == schedule.RunRunning {
			out[r.Last.ID] = schedule.RunScheduled // unless its task, which may not be sent yet, says more
			runs[model.TaskID(r.Tenant, r.Active[i].TaskType, r.Last.ID)] = r.Last.ID
		}
	}
	for ids := range slices.Chunk(slices.Collect(maps.Keys(runs)), 1000) {
		tasks, err := d.store.Tasks.Ends(ctx, ids)
		if err != nil {
			return nil, err
		}
		for id, t := range tasks {
			if t == nil { // it cannot be read
				continue
			}
			out[runs[id]], _ = tickplan.RunStatusOf(t)
		}
	}
	return out, nil
}
