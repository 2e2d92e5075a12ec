package cli

import (
	"crypto/rand"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/demo"
)

const demoHelp = `Run workers as real processes, kill one, freeze one, and check that nothing is lost.

The demo starts an embedded server, a small HTTP target and some workers, each in its own
process, and sends a file of http tasks. It kills one worker (SIGKILL) in the middle of its
calls, and freezes another (SIGSTOP) until its leases lapse. Other workers take over their
tasks. When the frozen worker wakes up, its late results are refused.

Then it starts a flow of four nodes, kills the worker that runs one of them, and waits for the end
of the flow.

At the end the demo checks the target and every task. Each task must have had its effect and
be Success by exactly one execution. The exit code is 0 only when nothing was lost.

With --uri the demo runs on MongoDB, in a database that it creates and drops.`

func (a *app) demoCommand() *cobra.Command {
	c := demo.Config{}
	cmd := &cobra.Command{
		Use: "demo", Short: "Kill and freeze workers, and check that no task is lost", Long: demoHelp, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.Validate(); err != nil {
				return err
			}
			if a.Executable == "" {
				return coded(ExitFailed, "the demo starts this binary again, and the system does not say where it is")
			}
			c.Database = "mscheduler_demo_" + strings.ToLower(rand.Text()[:10])
			if a.given("uri") { // never the environment's: a demo is not started on production by accident
				t, err := a.targetOf(a.flags.uri, "--uri")
				if err != nil {
					return err
				}
				c.URI = t.uri
			}
			c.Executable, c.Environ, c.Watch = a.Executable, a.Environ, a.Stderr
			s, err := demo.Run(cmd.Context(), c)
			if err != nil {
				return err
			}
			if a.asJSON() {
				a.say("%s", strings.TrimRight(s.Text(), "\n"))
			}
			if err = a.result(s, s.Text()); err == nil && !s.OK() {
				return quiet(ExitFailed)
			}
			return err
		},
	}
	cmd.Flags().IntVar(&c.Tasks, "tasks", demo.DefaultTasks, "number of tasks")
	cmd.Flags().IntVar(&c.Workers, "workers", demo.DefaultWorkers, "number of workers, at least 3")
	return cmd
}
