package cli

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/human"
)

// sendFlags are a task as flags. A flag that was not given says nothing.
type sendFlags struct {
	task           form.Task
	args, callback string
}

// register registers a flag for each field of a task but for those that are left out.
func (s *sendFlags) register(f *pflag.FlagSet, without ...string) {
	for _, v := range form.Flags(&s.task, without...) {
		if flag := f.VarPF(v, v.Name, "", v.Help); v.IsBool {
			flag.NoOptDefVal = "true"
		}
	}
	f.StringVar(&s.args, "args", "", "arguments as JSON; @FILE reads them from a file, @- from stdin")
	f.StringVar(&s.callback, "callback", "", "callback receivers as JSON; @FILE reads them from a file; none = no callback; defaults to those of its type")
}

func (s *sendFlags) completions(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("existing", fixed(form.ExistingNames()...))
	_ = cmd.RegisterFlagCompletionFunc("retry-strategy", fixed("none", "fixed", "sequence", "exponential"))
}

// read reads the JSON of the flags that have some.
func (a *app) readSendFlags(s *sendFlags, f *pflag.FlagSet) error {
	var errs [4]error
	for i, pair := range [][2]string{{"in", "at"}, {"expires-in", "expires-at"}} {
		if f.Changed(pair[0]) && f.Changed(pair[1]) {
			errs[2+i] = usage("--%s and --%s are both given; want one", pair[0], pair[1])
		}
	}
	if f.Changed("args") {
		var args []byte
		args, errs[0] = a.jsonArgument("args", s.args)
		s.task.Args = args
	}
	if s.callback == "none" {
		s.task.Options.Callback = &form.Callback{}
	} else if f.Changed("callback") {
		data, err := a.argument("callback", s.callback)
		if err == nil {
			var doc form.Doc[form.Callback]
			doc, err = form.ReadJSON[form.Callback]("--callback", 1, data, "a callback")
			s.task.Options.Callback = doc.Form
		}
		errs[1] = err
	}
	return errors.Join(errs[:]...)
}

// argument is a flag's value, or the content of the file it names with an @.
func (a *app) argument(flag, v string) ([]byte, error) {
	name, isFile := strings.CutPrefix(v, "@")
	if !isFile {
		return []byte(v), nil
	}
	data, err := a.readFile(name)
	if err != nil {
		return nil, usage("--%s: %w", flag, err)
	}
	return data, nil
}

// jsonArgument is [app.argument] of a flag whose value is JSON.
func (a *app) jsonArgument(flag, v string) (json.RawMessage, error) {
	data, err := a.argument(flag, v)
	if err == nil && !json.Valid(data) {
		err = usage("--%s is not JSON: %s", flag, human.OneLine(string(data), 80))
	}
	return data, err
}

// readFile is the content of a file; - is stdin.
func (a *app) readFile(name string) ([]byte, error) {
	in, _, err := a.openInput(name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(in)
	if err = errors.Join(err, in.Close()); err != nil {
		return nil, usage("reading %s: %w", name, err)
	}
	return data, nil
}

// fileName is what messages call a file.
func fileName(name string) string {
	if name == "-" {
		return "standard input"
	}
	return name
}

// openInput opens a file; - is stdin. size is -1 where it is not known.
func (a *app) openInput(name string) (in io.ReadCloser, size int64, err error) {
	if name == "-" {
		return io.NopCloser(a.Stdin), -1, nil
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, usage("there is no file %s", name)
	}
	if err != nil {
		return nil, 0, usage("%w", err)
	}
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, 0, errors.Join(usage("%w", err), f.Close())
	case st.IsDir():
		return nil, 0, errors.Join(usage("%s is a directory", name), f.Close())
	case !st.Mode().IsRegular():
		return f, -1, nil
	}
	return f, st.Size(), nil
}
