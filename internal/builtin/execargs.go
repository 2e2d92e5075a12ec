package builtin

import (
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// Exec is the task type "exec": one run of a program.
var Exec = model.NewType[ExecArgs, ExecResult]("exec")

// ExecArgs are the arguments of [Exec]. Only Argv is required.
type ExecArgs struct {
	// Argv is the program and its arguments. There is no shell between: for one, say
	// ["sh", "-c", "..."].
	Argv []string `json:"argv"`
	// Env is added to the environment that the worker gives to programs.
	Env map[string]string `json:"env,omitempty"`
	// Dir is the working directory, an absolute path. Defaults to the worker's.
	Dir string `json:"dir,omitempty"`
	// Stdin: a string is given as it is, any other JSON value as JSON.
	Stdin json.RawMessage `json:"stdin,omitempty"`
	// TimeoutMS ends the program. Defaults to none. In milliseconds.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
}

// ExecResult is the result of [Exec].
type ExecResult struct {
	ExitCode int `json:"exit_code"`
	// Output is the end of what the program wrote to stdout and stderr, in the order
	// in which it came.
	Output string `json:"output,omitempty"`
	// Encoding is "base64" when the output is not text; else "".
	Encoding string `json:"encoding,omitempty"`
	// Truncated says that there was more before.
	Truncated bool `json:"truncated,omitempty"`
}

const maxExecTimeout = 30 * 24 * time.Hour

func (a *ExecArgs) validate(given bool) error {
	var errs []error
	add := func(field, format string, args ...any) { errs = append(errs, input.Invalid(field, format, args...)) }
	if len(a.Argv) == 0 || a.Argv[0] == "" {
		add("args.argv", `%s; want the program and its arguments, such as ["ls", "-l"]`, none(given))
	}
	for i, s := range a.Argv {
		if strings.ContainsRune(s, 0) {
			add("args.argv["+strconv.Itoa(i)+"]", "has a NUL byte")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Env)) {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			add("args.env", "has the name %q; a name is not empty and has no = in it", name)
		case strings.HasPrefix(name, "MSCHEDULER_"):
			add("args.env."+name, "is set by the worker; choose another name")
		case strings.ContainsRune(a.Env[name], 0):
			add("args.env."+name, "has a NUL byte")
		}
	}
	if a.Dir != "" && !filepath.IsAbs(a.Dir) {
		add("args.dir", "is %q; want an absolute path", a.Dir)
	}
	if a.TimeoutMS < 0 || a.TimeoutMS > maxExecTimeout.Milliseconds() {
		add("args.timeout_ms", "is %d; want 1 to %d (30 days), or 0 for none", a.TimeoutMS, maxExecTimeout.Milliseconds())
	}
	return errors.Join(errs...)
}
