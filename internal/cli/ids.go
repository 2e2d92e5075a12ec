package cli

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
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
		if _, _, _, err := input.ParseTaskID(id); err != nil {
			return usage("task %w", err)
		}
	}
	return nil
}

// lifeName names one life of a task.
func lifeName(id string, generation int64) string {
	return id + "@" + strconv.FormatInt(generation, 10)
}

// lifeOf reads what lifeName made; generation 0 when it names no life. A key may end like
// that, too: where a task can be meant, look for that first.
func lifeOf(name string) (id string, generation int64) {
	at := strings.LastIndexByte(name, '@')
	if at < 0 {
		return name, 0
	}
	generation, err := strconv.ParseInt(name[at+1:], 10, 64)
	if err != nil || generation <= 0 || lifeName(name[:at], generation) != name {
		return name, 0
	}
	return name[:at], generation
}

// life reads the document of a task, also when it has moved to the history, or of one of
// its lives, named ID@GENERATION.
func (c *connection) life(ctx context.Context, name string) (bson.Raw, error) {
	raw, err := c.store.History.LifeRaw(ctx, name, 0)
	if id, generation := lifeOf(name); generation != 0 && errors.Is(err, store.ErrNotFound) {
		return c.store.History.LifeRaw(ctx, id, generation)
	}
	return raw, err
}
