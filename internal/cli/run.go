package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"syscall"

	"github.com/mscheduler/mscheduler/internal/failure"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/model"
)

// Exit codes of the binary; the help of every command lists them.
const (
	ExitOK          = 0
	ExitFailed      = 1   // it was tried and failed
	ExitUsage       = 2   // wrong arguments or input; nothing was written for what was wrong
	ExitNotFound    = 3   // no such thing; exitCodesHelp lists which
	ExitUnreachable = 4   // the database does not answer
	ExitRefused     = 5   // the state of the task or the database forbids it
	ExitInterrupted = 130 // stopped by a signal before it was done
)

const exitCodesHelp = `Exit codes:
  0    done
  1    failed: a task that was waited for failed, or a check did
  2    wrong usage or input, or no database was named
  3    no such task, type, rule, run, flow, stream, node, plan, job, worker or token
  4    the database does not answer
  5    refused: the state of the task, flow or plan, the schema or a permission forbids it
  130  interrupted`

// Environment are the settings that a process takes from its environment. A flag wins
// over its variable, and a variable over the configuration file.
type Environment struct {
	Config      string `envconfig:"CONFIG"`      // --config
	URI         string `envconfig:"MONGODB_URI"` // --uri
	Database    string `envconfig:"DATABASE"`    // --database
	Prefix      string `envconfig:"PREFIX"`      // --prefix
	Output      string `envconfig:"OUTPUT"`      // --output
	LogLevel    string `envconfig:"LOG_LEVEL"`   // --log-level
	WorkerID    string `envconfig:"WORKER_ID"`   // --worker-id of work
	Concurrency string `envconfig:"CONCURRENCY"` // --concurrency of work
	SecretKey   string `envconfig:"SECRET_KEY"`  // no flag: a command line is seen by others

	// Of serve: --oidc-issuer and so on.
	OIDCIssuer       string `envconfig:"OIDC_ISSUER"`
	OIDCJWKS         string `envconfig:"OIDC_JWKS"`
	OIDCAudience     string `envconfig:"OIDC_AUDIENCE"`
	OIDCRoles        string `envconfig:"OIDC_ROLES"`
	OIDCRoleClaim    string `envconfig:"OIDC_ROLE_CLAIM"`
	OIDCTenantsClaim string `envconfig:"OIDC_TENANTS_CLAIM"`
}

// Process is what the commands see of the process they run in.
type Process struct {
	Args   []string // without the program's name
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// StdinTerminal and StderrTerminal say whether a person is there to be asked, and
	// to watch a line that is drawn again.
	StdinTerminal, StdoutTerminal, StderrTerminal bool

	Env Environment
	// Environ is what programs of exec tasks get, and the demo's workers.
	Environ []string
	// Hangups has the hangups (SIGHUP) of the process from now on, until stop is called; nil = none.
	Hangups func() (signals <-chan os.Signal, stop func())
	// Dir is where the address file of a dev server is looked for; "" = the current one.
	Dir string
	// Executable is this binary, which the demo starts again; "" = none.
	Executable string
}

// codedError is an error with the exit code it asks for. An empty text prints nothing:
// the command has said everything.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}
func (e *codedError) Unwrap() error { return e.err }

func coded(code int, format string, args ...any) error {
	return &codedError{code, fmt.Errorf(format, args...)}
}

func usage(format string, args ...any) error { return coded(ExitUsage, format, args...) }

// quiet ends with a code and says nothing more.
func quiet(code int) error { return &codedError{code, nil} }

// Run runs one command to its end and returns the exit code. The end of ctx is the
// wish to stop, which every command obeys in its own way.
func Run(ctx context.Context, p Process) int {
	p.Stdin = &stdin{ctx: ctx, from: p.Stdin}
	a := &app{Process: p}
	defer a.close()
	root := a.root()
	root.SetArgs(argumentsLast(root, p.Args))
	err := root.ExecuteContext(ctx)
	if err == nil {
		a.ended(ctx, ExitOK, "")
		return ExitOK
	}
	code, text := exitCode(ctx, err), errorText(err)
	if code == ExitInterrupted && codeOf(err) != ExitInterrupted {
		text = "interrupted"
	}
	if text != "" && !unread(err) {
		a.say("mscheduler: %s", text)
	}
	a.ended(ctx, code, text)
	return code
}

// unread reports whether the error is that nobody reads the output any more, as in: mscheduler task list | head -1.
// Such an error needs no message.
func unread(err error) bool {
	var write *fs.PathError
	return errors.As(err, &write) && errors.Is(write, syscall.EPIPE)
}

// exitCode is the code for an error of a command with the context. What its end cut off is no failure.
func exitCode(ctx context.Context, err error) int {
	code := codeOf(err)
	if ctx.Err() != nil && (code == ExitUnreachable || errors.Is(err, context.Canceled)) {
		return ExitInterrupted
	}
	return code
}

func codeOf(err error) int {
	var c *codedError
	if errors.As(err, &c) {
		return c.code
	}
	switch failure.Of(err) {
	case failure.NotFound:
		return ExitNotFound
	case failure.Invalid:
		return ExitUsage
	case failure.Changed, failure.Refused, failure.Forbidden:
		return ExitRefused
	case failure.Unreachable:
		return ExitUnreachable
	default:
		return ExitFailed
	}
}

// errorText is the error for a person: one mistake on a line, without the program's
// internals.
func errorText(err error) string {
	text := strings.TrimSpace(err.Error())
	if failure.NoServer(err) {
		text = firstSentence(text)
	}
	return strings.ReplaceAll(shortIDs(text), "\n", "\n  ")
}

// idInText is an id without a tenant in the text of an error.
var idInText = regexp.MustCompile(`\b(task|flow|plan):? -/\S*`)

// shortIDs writes the ids of a text as people write them.
func shortIDs(text string) string {
	return idInText.ReplaceAllStringFunc(text, func(found string) string {
		at := strings.Index(found, model.NoTenant+"/")
		short := map[byte]func(string) string{'t': human.TaskID, 'f': human.FlowID, 'p': human.PlanID}[found[0]]
		return found[:at] + short(found[at:])
	})
}

// say prints a line for a person.
func (a *app) say(format string, args ...any) {
	_, _ = fmt.Fprintln(a.Stderr, linesOnTerminal(fmt.Sprintf(format, args...))) // nobody is left to hear that stderr is closed
}
