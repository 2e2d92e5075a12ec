package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/rulespec"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tickplan"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

func (r *rulesCommand) preview() *cobra.Command {
	var s schedule.Spec
	var n int
	var from string
	cmd := &cobra.Command{
		Use: "preview RULE | --cron CRON", Short: "Show the next ticks of a rule or a cron expression", Args: cobra.ArbitraryArgs,
		Long:    "Show the next ticks of a rule or a cron expression, in its time zone and in UTC, and the effect\nof clock changes on them. The command writes nothing. --cron needs no database.",
		Example: "  mscheduler periodic preview nightly\n  mscheduler periodic preview --cron '0 30 2 * * *' --timezone America/New_York --from 2026-03-07 -n 3",
		RunE: func(cmd *cobra.Command, args []string) error {
			f := cmd.Flags()
			given := f.Changed("cron") || f.Changed("timezone") || f.Changed("gap") || f.Changed("fold")
			if given == (len(args) > 0) || len(args) > 1 || given && s.Cron == "" {
				return usage("periodic preview requires the name of a rule, or --cron (with --timezone, --gap and --fold); see: mscheduler periodic preview --help")
			}
			now := r.clock().Now()
			var rule *schedule.Rule
			if !given {
				c, err := r.connectReady(cmd.Context())
				if err != nil {
					return err
				}
				if rule, err = r.find(cmd.Context(), c, args[0]); err != nil {
					if errors.Is(err, store.ErrNoRule) && strings.Contains(args[0], " ") {
						err = fmt.Errorf("%w; for a cron expression: periodic preview --cron %q", err, args[0])
					}
					return err
				}
				now = c.at
			}
			begin, err := parseTime("from", from, now)
			if err != nil {
				return err
			}
			if given {
				s.Name, s.Type = "preview", "preview"
				if rule, _, err = rulespec.Build(&s, begin); err != nil {
					return err
				}
			}
			ticks, err := tickplan.Preview(rule, begin, n)
			if err != nil {
				return err
			}
			return r.printTicks(ticks, now)
		},
	}
	cmd.Flags().StringVar(&s.Cron, "cron", "", "cron expression: second minute hour day month weekday; five fields have second 0; @daily; @every 90s")
	cmd.Flags().StringVar(&s.Timezone, "timezone", "", "time zone of --cron, such as Europe/Berlin; defaults to UTC")
	cmd.Flags().StringVar(&s.DST.Gap, "gap", "", "times that do not exist: run_after or skip; defaults to run_after, or to skip if the hour is *")
	cmd.Flags().StringVar(&s.DST.Fold, "fold", "", "times that occur twice: first or both; defaults to first, or to both if the hour is *")
	cmd.Flags().IntVarP(&n, "count", "n", 10, "number of ticks")
	cmd.Flags().StringVar(&from, "from", "0s", "show ticks after this time; defaults to now")
	return cmd
}

func (r *rulesCommand) printTicks(ticks []tickplan.PreviewTick, now time.Time) error {
	views := make([]view.NextTick, len(ticks))
	t := newTable("LOCAL", "", "UTC", "FROM NOW", "FIRES", "CLOCK CHANGE")
	for i, x := range ticks {
		views[i] = view.NextTickOf(x)
		fires := "yes"
		if !x.Fires {
			fires = "no"
		}
		t.add(x.Local.Format(localLayout), x.Local.Format("Mon"), human.Stamp(x.UTC), human.Relative(x.UTC, now), fires, x.Note)
	}
	return r.resultTable(map[string]any{"ticks": views}, t, "no tick")
}
