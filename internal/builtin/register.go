package builtin

import (
	"encoding/json"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/model"
)

// Options say what the built-in types may do in this process.
type Options struct {
	HTTP HTTPOptions
	// Targets are the calls of periodic rules.
	Targets TargetOptions
	// Exec allows exec tasks; nil, and the type is not registered: its tasks wait for
	// a worker that runs them.
	Exec *ExecOptions
}

// HTTPOptions of the type http.
type HTTPOptions struct {
	// BodyLimit is how many bytes of an answer its result keeps. Defaults to 64 KiB.
	BodyLimit int
	// Reach says where tasks and the targets of rules may call.
	Reach httpcall.Reach
}

// TargetOptions of the type mscheduler.http. What HTTPOptions say holds for it, too.
type TargetOptions struct {
	// CompletionURL is the public URL that accepts the completions of ASYNC targets, such as
	// https://tasks.example.org/api/v1/callbacks. "" leaves their calls to other workers.
	CompletionURL string
	// Secrets open the keys that calls are signed with; nil = a call that is to be signed is
	// left to other workers.
	Secrets *secret.Box
}

// orDefault is a limit of kept bytes, 64 KiB if none is set.
func orDefault(limit int) int {
	if limit <= 0 {
		return 64 << 10
	}
	return limit
}

// ExecOptions of the type exec.
type ExecOptions struct {
	// OutputLimit is how many bytes of a program's output its result keeps, from the
	// end. Defaults to 64 KiB.
	OutputLimit int
	// Env is the environment of programs, as KEY=value. nil = an empty one.
	Env []string
}

// Register adds the built-in types to a consumer.
func Register(c *consumer.Consumer, o Options) error {
	h := newHTTPHandler(o.HTTP, o.Targets.Secrets)
	h.workerID = c.WorkerID()
	if err := consumer.Handle(c, raw[HTTPResult](HTTP.Name()), h.handle); err != nil {
		return err
	}
	targets := &targetHandler{httpHandler: h, completionURL: o.Targets.CompletionURL}
	if err := consumer.Handle(c, raw[HTTPResult](httptarget.TaskType), targets.handle); err != nil {
		return err
	}
	if o.Exec == nil {
		return nil
	}
	if err := shield(); err != nil {
		return err
	}
	e := &execHandler{workerID: c.WorkerID(), limit: orDefault(o.Exec.OutputLimit), env: o.Exec.Env}
	return consumer.Handle(c, raw[ExecResult](Exec.Name()), e.handle)
}

// raw is the type as its handler sees it, which decodes the arguments itself.
func raw[R any](name string) model.Type[json.RawMessage, R] {
	return model.NewType[json.RawMessage, R](name)
}
