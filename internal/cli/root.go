package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/secret"
)

// app is one run of the command line.
type app struct {
	Process
	flags   sharedFlags
	closers []func(context.Context)
	saidDev bool
	monitor *event.CommandMonitor // of the connection's commands; nil = none
	traces  trace.TracerProvider  // nil = spans are not recorded

	auditing *auditing // nil = the command changes nothing

	command  string            // its path, without the program's name
	origins  map[string]string // of settings: --FLAG, MSCHEDULER_VARIABLE or file:line:column; none = the default
	settings *settingsFile
	level    sharedLevel
}

type sharedFlags struct {
	config                string
	uri, database, prefix string
	output                string
	logLevel              string
}

// clock is this machine's; what is stored goes by the database's.
func (a *app) clock() clock.Clock { return clock.System() }

func (a *app) onClose(f func(context.Context)) { a.closers = append(a.closers, f) }

func (a *app) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, f := range slices.Backward(a.closers) {
		f(ctx)
	}
	a.closers = nil
}

const rootHelp = `mscheduler runs tasks on any number of workers that share a MongoDB database.
A worker holds each task by a lease. When a lease lapses, another worker takes the task
over, and a late result of the first worker is refused.

Start here:
  mscheduler demo                       kill and freeze workers, and lose no task
  mscheduler dev                        run a server and a worker in this directory
  mscheduler send http --args '{"url": "https://example.org"}'
  mscheduler task list

Commands connect to the database that --uri or MSCHEDULER_MONGODB_URI names, not to the REST
API. Without either, they use the dev server of the current directory.

` + exitCodesHelp

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "mscheduler",
		Short:         "A pre-emptive task scheduler on MongoDB",
		Long:          rootHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          group,
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			a.audited(cmd, args)
			if err := a.configure(cmd); err != nil {
				return err
			}
			return a.checkShared(cmd)
		},
	}
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%w; see: %s --help", flagError(err), cmd.CommandPath())
	})
	f := root.PersistentFlags()
	f.StringVar(&a.flags.config, "config", "", "configuration file, YAML or JSON")
	f.StringVar(&a.flags.uri, "uri", "", "MongoDB connection string")
	f.StringVar(&a.flags.database, "database", "", "database; defaults to the one in the URI's path, else "+defaultDatabase)
	f.StringVar(&a.flags.prefix, "prefix", "", "prefix of the collections' names")
	f.StringVarP(&a.flags.output, "output", "o", "table", "table, json or yaml")
	f.StringVar(&a.flags.logLevel, "log-level", defaultLevel, "debug, info, warn, error or off")
	for _, name := range []string{"config", "database", "prefix", "output", "log-level"} {
		withVariable(f, name, "MSCHEDULER_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
	}
	withVariable(f, "uri", "MSCHEDULER_MONGODB_URI")
	f.Lookup("config").Annotations[notInFiles] = []string{""}
	_ = root.RegisterFlagCompletionFunc("output", fixed("table", "json", "yaml"))
	_ = root.RegisterFlagCompletionFunc("log-level", fixed("debug", "info", "warn", "error", "off"))
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Running:"},
		&cobra.Group{ID: "tasks", Title: "Tasks:"},
		&cobra.Group{ID: "operate", Title: "Operating:"},
	)
	add := func(id string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	add("run", a.demoCommand(), a.devCommand(), a.workCommand(), a.serveCommand(), a.embeddedCommand())
	add("tasks", a.sendCommand(), a.taskCommand(), a.typeCommand(), a.periodicCommand(), a.planCommand(), a.flowCommand(), a.bulkCommand())
	add("operate", a.statsCommand(), a.workerCommand(), a.pauseCommand(), a.resumeCommand(), a.archiveCommand(), a.tokenCommand(), a.auditCommand(), a.dbCommand(), a.doctorCommand(), a.healthCommand(), a.benchCommand())
	root.AddCommand(a.versionCommand())
	root.SetHelpTemplate(root.HelpTemplate())
	strict(root)
	return root
}

// strict makes the two commands that cobra brings refuse what they do not know, as ours do:
// theirs print their help and succeed.
func strict(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			c.Args, c.RunE = noArgs, group
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				about, rest, err := root.Find(args)
				if err != nil {
					return err
				}
				return noArgs(about, rest)
			}
		}
	}
}

// flagError says what is wrong with the value of a flag as other errors do.
func flagError(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	f, cause := bad.GetFlag(), bad.Unwrap()
	if strings.HasPrefix(cause.Error(), "is ") {
		return fmt.Errorf("--%s %w", f.Name, cause)
	}
	return fmt.Errorf("--%s is %q; %w", f.Name, bad.GetValue(), wantedOf(f, cause))
}

// group is the action of a command that only has others below it.
func group(cmd *cobra.Command, _ []string) error { return cmd.Help() }

func fixed(values ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// moreOutputs annotates a command with its own values of --output, separated by spaces.
const moreOutputs = "outputs"

func (a *app) checkShared(cmd *cobra.Command) error {
	if err := a.checkOutput(cmd); err != nil {
		return err
	}
	if _, err := secret.Parse(cmp.Or(a.origins[secretKey], "MSCHEDULER_SECRET_KEY"), a.Env.SecretKey); err != nil {
		return &codedError{ExitUsage, err}
	}
	level, err := parseLevel(a.from("log-level"), a.flags.logLevel)
	a.level.set(level)
	return err
}

func (a *app) checkOutput(cmd *cobra.Command) error {
	wanted := append([]string{"table", "json", "yaml"}, strings.Fields(cmd.Annotations[moreOutputs])...)
	if last := len(wanted) - 1; !slices.Contains(wanted, a.flags.output) {
		return usage("%s is %q; want %s or %s", a.from("output"), a.flags.output, strings.Join(wanted[:last], ", "), wanted[last])
	}
	return nil
}

// Checks of the number of arguments that say what is wanted.

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		cmd.SuggestionsMinimumDistance = 2 // typing errors as far off as that
		near := ""
		if some := cmd.SuggestionsFor(args[0]); len(some) > 0 {
			near = " (did you mean " + strings.Join(some, " or ") + "?)"
		}
		return usage("%s has no command %q%s; see: %s --help", commandName(cmd), args[0], near, cmd.CommandPath())
	}
	return usage("%s takes no argument %q; see: %s --help", commandName(cmd), args[0], cmd.CommandPath())
}

// commandName is what an error calls a command: the name of the program precedes the error.
func commandName(cmd *cobra.Command) string { return cmp.Or(commandPath(cmd), cmd.CommandPath()) }

// oneOrNone wants at most one argument.
func oneOrNone(what string) cobra.PositionalArgs { return wants(what, cobra.MaximumNArgs(1)) }

// one wants exactly one argument.
func one(what string) cobra.PositionalArgs {
	wanted := wants(what, cobra.ExactArgs(1))
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usage("%s takes one argument, not %d; see: %s --help", commandName(cmd), len(args), cmd.CommandPath())
		}
		return wanted(cmd, args)
	}
}

// some wants one or more arguments.
func some(what string) cobra.PositionalArgs { return wants(what, cobra.MinimumNArgs(1)) }

// wants says what is wanted where the number of arguments is wrong.
func wants(what string, number cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if number(cmd, args) != nil {
			return usage("%s requires %s; see: %s --help", commandName(cmd), what, cmd.CommandPath())
		}
		return nil
	}
}

// names are the names of statuses and the like.
func names[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}
