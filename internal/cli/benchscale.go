package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/internal/scalemodel"
)

const benchScaleHelp = `Estimate what a fleet costs its MongoDB: sizes of documents and indexes, commands,
lost claims, and the load that fills one server. It is a model and connects to nothing;
docs/scale.md explains it.

Without flags it shows three fleets. With a flag it shows one: the flags replace values of
the first of the three.`

// benchScaleCommand estimates what is too large to measure.
func (a *app) benchScaleCommand() *cobra.Command {
	f := scalemodel.Sizes()[0]
	cmd := &cobra.Command{
		Use: "scale", Short: "Estimate the costs of large fleets and collections", Long: benchScaleHelp, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fleets := scalemodel.Sizes()
			cmd.LocalFlags().VisitAll(func(given *pflag.Flag) {
				if given.Changed {
					fleets = []scalemodel.Fleet{f}
				}
			})
			return a.benchScale(fleets)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&f.Workers, "workers", f.Workers, "worker processes, with 100 slots each")
	flags.IntVar(&f.Stored, "stored", f.Stored, "tasks in the collection, ended ones included")
	flags.IntVar(&f.Waiting, "waiting", f.Waiting, "of these: tasks that wait, due or later")
	flags.Float64Var(&f.PerSecond, "rate", f.PerSecond, "tasks a second that are sent and end")
	spanVar(flags, &f.Takes, "takes", f.Takes, "how long a handler runs")
	flags.IntVar(&f.ArgsBytes, "args-bytes", f.ArgsBytes, "size of each task's arguments")
	flags.IntVar(&f.Cores, "cores", f.Cores, "processor cores of the server")
	flags.IntVar(&f.Subscriptions, "subscriptions", f.Subscriptions, "change streams of dashboards and subscriptions, at most four")
	return cmd
}

func (a *app) benchScale(fleets []scalemodel.Fleet) error {
	all := make([]scalemodel.Estimate, len(fleets))
	for i, f := range fleets {
		err := f.Validate()
		if err == nil {
			all[i], err = scalemodel.Of(f)
		}
		if err != nil {
			return err
		}
	}
	rows := scalemodel.Table(all)
	head := append([]string{strings.ToUpper(rows[0].Name)}, rows[0].Cells...)
	t := newTable(head...)
	for _, r := range rows[1:] {
		t.add(append([]string{r.Name}, r.Cells...)...)
	}
	return a.result(all, t.flush())
}
