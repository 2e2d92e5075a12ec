package cli

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// argumentsLast puts the arguments of a command behind its flags and "--". So an id without a tenant, such as
// -/http/order-17, is not read as a flag.
func argumentsLast(root *cobra.Command, args []string) []string {
	isID := func(arg string) bool { return strings.HasPrefix(arg, model.NoTenant+"/") }
	cmd, rest, err := root.Find(args)
	if err != nil || !slices.ContainsFunc(rest, isID) {
		return args
	}
	flags, arguments := strings.Fields(cmd.CommandPath())[1:], []string{"--"}
	for i := 0; i < len(rest); i++ {
		switch arg := rest[i]; {
		case arg == "--":
			return slices.Concat(flags, arguments, rest[i+1:])
		case isID(arg) || arg == "-" || !strings.HasPrefix(arg, "-"):
			arguments = append(arguments, arg)
		default:
			flags = append(flags, arg)
			if i+1 < len(rest) && takesNext(cmd, arg) {
				i++
				flags = append(flags, rest[i])
			}
		}
	}
	return slices.Concat(flags, arguments)
}

// takesNext reports whether the argument is a flag whose value is the next argument.
func takesNext(cmd *cobra.Command, arg string) bool {
	var f *pflag.Flag
	if name, long := strings.CutPrefix(arg, "--"); long {
		f = cmd.Flag(name)
	} else if name, short := strings.CutPrefix(arg, "-"); short && len(name) == 1 {
		cmd.InheritedFlags() // adds them to the command's own
		f = cmd.Flags().ShorthandLookup(name)
	}
	return f != nil && f.NoOptDefVal == ""
}

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
