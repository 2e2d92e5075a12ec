package cli

import (
	"crypto/rand"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/demo"
)

const demoHelp = `Show the main job in under a minute, on real processes.

It starts an embedded server, a small HTTP target and some workers, each a process of its
own, and sends a file of http tasks. Then it kills one worker (SIGKILL) while calls of it
are in flight, and freezes another (SIGSTOP) past its lease. The others take their tasks
over; when the frozen one wakes up, its late results are refused.

At the end it looks at the target and at every task: each must have had its effect, and be
Success by exactly one execution. It ends with 0 only when nothing was lost.

With --uri it runs on MongoDB, in a database that it makes and drops.`

func (a *app) demoCommand() *cobra.Command {
	c := demo.Config{}
	cmd := &cobra.Command{
		Use: "demo", Short: "Watch workers being killed and frozen, and nothing lost", Long: demoHelp, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.Validate(); err != nil {
				return err
			}
			if a.Executable == "" {
				return coded(ExitFailed, "the demo starts this binary again, and the system does not say where it is")
			}
			c.Database = "mscheduler_demo_" + strings.ToLower(rand.Text()[:10])
			if a.flags.uri != "" { // never the environment's: a demo is not started on production by accident
				t, err := a.targetOf(a.flags.uri, "--uri")
				if err != nil {
					return err
				}
				c.URI = t.uri
			}
			c.Executable, c.Environ, c.Watch, c.Terminal = a.Executable, a.Environ, a.Stderr, a.StderrTerminal
			s, err := demo.Run(cmd.Context(), c)
			if err != nil {
				return err
			}
			if a.asJSON() {
				err = a.printJSON(s)
				a.say("%s", strings.TrimRight(s.Text(), "\n"))
			} else {
				err = a.print(s.Text())
			}
			if err == nil && !s.OK() {
				return quiet(ExitFailed)
			}
			return err
		},
	}
	cmd.Flags().IntVar(&c.Tasks, "tasks", demo.DefaultTasks, "how many tasks")
	cmd.Flags().IntVar(&c.Workers, "workers", demo.DefaultWorkers, "how many workers, at least 3")
	return cmd
}
