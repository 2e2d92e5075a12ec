package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/doctor"
	"github.com/mscheduler/mscheduler/internal/human"
)

const doctorHelp = `Check the deployment: the connection, the server, the user's privileges, the schema,
sharding, the clocks, pauses, the workers, worker ids that several processes use, callbacks,
rules, flows and plans without an engine, tasks that wait too long and lapsed leases.

Each line is ok, warn or fail; warn and fail suggest a repair. The exit code is 1 if a line
is fail, and 4 if the database does not answer. To test the user's privileges, the command
creates a small collection, <prefix>doctor_probe, and drops it.`

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Check the deployment and suggest repairs", Long: doctorHelp, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := a.target(cmd.Context())
			if exitCode(cmd.Context(), err) == ExitUnreachable {
				return a.printDoctor(a.from("uri"), doctor.Unreached(errorText(err)))
			}
			if err != nil {
				return err
			}
			c, err := a.dial(t)
			if err != nil {
				return err
			}
			return a.printDoctor(t.String(), doctor.Examine(cmd.Context(), doctor.Config{
				Store: c.store, Database: t.String(), Server: t.hosts, Machine: "this machine", Writes: true, Text: errorText,
			}))
		},
	}
}

func (a *app) printDoctor(database string, r *doctor.Report) error {
	fails, warns := r.Count()
	err := a.result(map[string]any{"database": database, "ok": fails == 0, "checks": r.Findings}, doctorText(r.Findings))
	if !a.asJSON() {
		a.say("%s, %s", human.Plural(fails, "failure", "failures"), human.Plural(warns, "warning", "warnings"))
	}
	switch {
	case err != nil:
		return err
	case r.Unreachable:
		return quiet(ExitUnreachable)
	case fails > 0:
		return quiet(ExitFailed)
	}
	return nil
}

func doctorText(findings []doctor.Finding) string {
	w := 0
	for _, f := range findings {
		w = max(w, len(f.Check))
	}
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%-4s  %-*s  %s\n", f.State, w, f.Check, f.Detail)
		if f.Advice != "" {
			fmt.Fprintf(&b, "%*s  -> %s\n", w+6, "", f.Advice)
		}
	}
	return b.String()
}
