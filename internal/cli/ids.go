package cli

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// fullID is the id that an argument names: tenant/type/key, or type/key of a task without a
// tenant.
func fullID(arg string) string {
	if strings.Count(arg, "/") == 1 {
		return model.NoTenant + "/" + arg
	}
	return arg
}

// taskIDs makes arguments full ids of tasks, or says which is none.
func taskIDs(args []string) error {
	for i, arg := range args {
		args[i] = fullID(arg)
		if _, _, _, err := input.ParseTaskID(args[i]); err != nil {
			return usage("task id is %q; want type/key or tenant/type/key", safetext.Clip(arg, 120))
		}
	}
	return nil
}

// wrongAfter is the error about an --after that no page printed.
func wrongAfter(after string) error {
	return usage("--after is %q; want the value that the previous page printed", human.OneLine(after, 200))
}

// taskArgs wants ids of tasks, which it makes full ones.
func taskArgs(number cobra.PositionalArgs) cobra.PositionalArgs {
	return cobra.MatchAll(number, func(_ *cobra.Command, args []string) error { return taskIDs(args) })
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
