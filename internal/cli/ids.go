package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/model"
)

// The id of a task without a tenant begins with "-/", which the flag parser would take
// for a flag. So such arguments of the task commands get a mark that it does not know,
// and lose it again before anybody looks at them.
const idMark = "\x00"

func maskIDs(args []string) []string {
	out := make([]string, len(args))
	tasks := false
	for i, arg := range args {
		tasks = tasks || arg == "task"
		if out[i] = arg; tasks && strings.HasPrefix(arg, model.NoTenant+"/") {
			out[i] = idMark + arg
		}
	}
	return out
}

func unmask(args []string) {
	for i := range args {
		args[i] = strings.TrimPrefix(args[i], idMark)
	}
}

// unmaskFlags does the same for values of flags.
func unmaskFlags(cmd *cobra.Command) error {
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if v, marked := strings.CutPrefix(f.Value.String(), idMark); marked && err == nil {
			err = f.Value.Set(v)
		}
	})
	return err
}

// taskIDs checks arguments that are ids of tasks.
func taskIDs(args []string) error {
	unmask(args)
	for _, id := range args {
		if _, _, _, err := model.ParseTaskID(id); err != nil {
			return usage("task %w", err)
		}
	}
	return nil
}
