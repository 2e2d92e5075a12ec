package cli

import (
	"errors"
	"os"
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/internal/form"
)

// A setting is the value of a flag, or the secret key, which has none. It comes from the command line, from its
// variable, from the configuration file or from its default: the first of these that is there.

const (
	// secretKey is the setting without a flag: other users of a machine can read command lines.
	secretKey = "secret-key"
	// variableOf annotates a flag with its environment variable.
	variableOf = "variable"
	// notInFiles annotates a flag that is about one run of a command.
	notInFiles = "not in files"
)

// fileSections are the commands that have a section in configuration files.
var fileSections = []string{"serve", "work"}

// withVariable gives a flag an environment variable.
func withVariable(f *pflag.FlagSet, name, variable string) {
	flag := f.Lookup(name)
	flag.Usage += " (" + variable + ")"
	flag.Annotations = map[string][]string{variableOf: {variable}}
}

// variable is the environment variable of a flag, and its value; "" = none.
func (e *Environment) variable(f *pflag.Flag) (name, value string) {
	names := f.Annotations[variableOf]
	if len(names) == 0 {
		return "", ""
	}
	name = names[0]
	for field, of := range reflect.ValueOf(e).Elem().Fields() {
		if "MSCHEDULER_"+field.Tag.Get("envconfig") == name {
			value = of.String()
		}
	}
	return name, value
}

// configure gives the flags of a command their values, and notes where each comes from.
func (a *app) configure(cmd *cobra.Command) error {
	a.origins = map[string]string{}
	if err := a.settle(cmd.Flags().Lookup("config"), nil); err != nil {
		return err
	}
	file, err := readSettings(a.flags.config)
	if err != nil {
		return err
	}
	a.settings, a.command = file, commandPath(cmd)
	mine := file.of(a.command)
	var errs []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) { errs = append(errs, a.settle(f, mine)) })
	key, given := mine[secretKey]
	switch {
	case a.Env.SecretKey != "":
		a.origins[secretKey] = "MSCHEDULER_SECRET_KEY"
	case given:
		a.Env.SecretKey, a.origins[secretKey] = key.Values[0], key.Where()
	}
	if file.open && (given || withoutCredentials(a.flags.uri) != a.flags.uri && a.origins["uri"] == mine["uri"].Where()) {
		a.say("mscheduler: other users can read the secrets in %s; to change that: chmod o-r", a.flags.config)
	}
	return errors.Join(errs...)
}

// settle gives a flag its value. A flag with a variable that is given as "" is not given.
func (a *app) settle(f *pflag.Flag, file map[string]form.Setting) error {
	variable, text := a.Env.variable(f)
	setting, inFile := file[f.Name]
	switch {
	case f.Changed && (variable == "" || f.Value.String() != ""):
		a.origins[f.Name] = "--" + f.Name
	case text != "":
		a.origins[f.Name] = variable
		if err := f.Value.Set(text); err != nil {
			return usage("%s is %q; %w", variable, text, wantedOf(f, err))
		}
	case inFile:
		a.origins[f.Name] = setting.Where()
		return setFlag(f, setting)
	}
	return nil
}

// from names a setting as its origin does, for errors about its value.
func (a *app) from(name string) string {
	switch at := a.origins[name]; {
	case at == "":
		return "--" + name
	case a.byHand(name):
		return at
	default:
		return at + ": " + name
	}
}

// given says whether a setting comes from the command line.
func (a *app) given(name string) bool { return a.origins[name] == "--"+name }

// byHand says whether a setting comes from the command line or a variable, which win over the file.
func (a *app) byHand(name string) bool {
	at := a.origins[name]
	return a.given(name) || strings.HasPrefix(at, "MSCHEDULER_")
}

// settingsFile is a configuration file that was read, and that is right.
type settingsFile struct {
	name     string // "" = there is none
	stamp    fileStamp
	open     bool // every user of the machine may read it
	settings []form.Setting
}

// fileStamp differs when a file has changed.
type fileStamp struct {
	modified time.Time
	size     int64
}

// readSettings reads a configuration file and checks the values of all commands.
func readSettings(name string) (*settingsFile, error) {
	file := &settingsFile{name: name}
	if name == "" {
		return file, nil
	}
	info, err := os.Stat(name) // first: a change after it is seen later
	if err != nil {
		return nil, usage("--config: %v", err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, usage("--config: %v", err)
	}
	file.stamp = fileStamp{info.ModTime(), info.Size()}
	file.open = runtime.GOOS != "windows" && info.Mode().Perm()&0o004 != 0
	if file.settings, err = form.Settings(name, data, fileSections...); err != nil {
		return nil, err
	}
	root := (&app{}).root() // flags that nobody uses
	var errs []error
	for _, s := range file.settings {
		flags := root.PersistentFlags()
		if s.Section != "" {
			cmd, _, err := root.Find([]string{s.Section})
			if err != nil {
				return nil, err
			}
			flags = cmd.LocalNonPersistentFlags()
		}
		f := flags.Lookup(s.Name)
		switch {
		case s.Section == "" && s.Name == secretKey:
			if s.List {
				errs = append(errs, s.Wrong("has a list; want one value"))
			}
		case f == nil || !inFiles(f):
			errs = append(errs, s.Wrong("is not known here; want %s", strings.Join(settingNames(flags, s.Section == ""), ", ")))
		default:
			errs = append(errs, setFlag(f, s))
		}
	}
	return file, errors.Join(errs...)
}

// inFiles says whether a configuration file may have the flag.
func inFiles(f *pflag.Flag) bool {
	return !f.Hidden && f.Name != "help" && f.Annotations[notInFiles] == nil
}

// settingNames are what a section may have, or a file outside of sections.
func settingNames(flags *pflag.FlagSet, all bool) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if inFiles(f) {
			names = append(names, f.Name)
		}
	})
	if all {
		names = append(append(names, secretKey), fileSections...)
	}
	return names
}

// setFlag gives a flag the value of a file. It does not count as given on the command line.
func setFlag(f *pflag.Flag, s form.Setting) error {
	if s.List {
		list, ok := f.Value.(pflag.SliceValue)
		if !ok {
			return s.Wrong("has a list; want one value")
		}
		return list.Replace(s.Values)
	}
	err := f.Value.Set(s.Values[0])
	if err == nil {
		return nil
	}
	return s.Wrong("is %q; %v", s.Values[0], wantedOf(f, err))
}

// wantedOf says what values a flag takes, if cause is the error of a parser that does not.
func wantedOf(f *pflag.Flag, cause error) error {
	switch f.Value.Type() {
	case "bool":
		return errors.New("want true or false")
	case "int":
		return errors.New("want a whole number")
	case "stringSlice":
		return errors.New("want a list, or values separated by commas")
	default:
		return cause
	}
}

// of are the settings that a command reads, by name.
func (f *settingsFile) of(command string) map[string]form.Setting {
	out := map[string]form.Setting{}
	for _, s := range f.settings {
		if s.Section == "" || s.Section == command {
			out[s.Name] = s
		}
	}
	return out
}
