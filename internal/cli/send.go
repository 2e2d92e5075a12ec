package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscheduler/mscheduler/internal/audit"
	"github.com/mscheduler/mscheduler/internal/builtin"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/human"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

const sendHelp = `Send one task, or many from a file.

One task: give its type and arguments.

Many tasks: --file names a file with a JSON object on each line, or - for stdin. Its fields are
those of a task's document:

  {"type": "http", "key": "order-17", "args": {"url": "https://example.org"},
   "priority": 9, "start_time": "2026-01-31T09:00:00Z", "in": "5s", "held": false,
   "tenant": "acme", "creator": "", "category": "", "existing": ["restart-failed"],
   "options": {"concurrent_worker_count": 1, "ping_interval": "10s",
     "worker_timeout": "30s", "timeout": "5m", "specific_worker_ids": ["w1"],
     "retry": {"strategy": "exponential", "interval": "1s", "factor": 2,
       "max_interval": "1h", "jitter": 0.1, "max_errors": 10,
       "local": {"count": 0, "interval": "0s"}},
     "max_lapses": 3, "max_errors_per_worker": 0, "need_manual": false,
     "retention": "7d", "callback": {"success": {"url": "https://example.org/done",
       "method": "POST"}, "error": {"url": ...}, "on_pending": false,
       "security": {"type": "aksk", "keys": [{"ak": "...", "sk": "..."}]}}}}

Durations may also be numbers of milliseconds, under their stored names: in_ms,
execution_timeout_ms, ping_interval_ms, ...

Flags, and the type if it is given, are the defaults of every line. A wrong line is reported
with its place and not sent; the other lines are sent, and the exit code is 2. A key that
already exists is left alone unless --existing says otherwise. --dry-run only checks.

With on_pending the error receiver of a callback is also called when the task becomes Pending.
With --wait the exit code is 1 if the task ended without success or --wait-timeout passed. A task
that has not ended goes on: mscheduler task wait. --timeout is a limit of the task's executions.

A type without a definition and without a live worker gets a warning; the task is stored.

The built-in types:
  http   {"url": ..., "method": ..., "headers": {...}, "body": ..., "timeout_ms": ...,
          "expect": [200, "2xx", "200-204"], "max_redirects": ...}
  exec   {"argv": [...], "env": {...}, "dir": ..., "stdin": ..., "timeout_ms": ...}`

func (a *app) sendCommand() *cobra.Command {
	var s sendFlags
	var file string
	var limit waitLimit
	var wait, dryRun, unchecked bool
	cmd := &cobra.Command{
		Use: "send [TYPE]", Short: "Send one task, or many from a file", Long: sendHelp,
		Example: `  mscheduler send http --args '{"url": "https://example.org"}' --key hello --wait
  mscheduler send exec --args '{"argv": ["date"]}' --in 5m --priority 9
  mscheduler send --file tasks.jsonl`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return usage("send takes one TYPE, not %d arguments; the task's arguments go into --args", len(args))
			case len(args) == 0 && file == "":
				return usage("send requires a TYPE or --file; see: mscheduler send --help")
			case file != "" && wait:
				return usage("--wait works with a single task, not with --file")
			case !wait && cmd.Flags().Changed("wait-timeout"):
				return usage("--wait-timeout requires --wait")
			case file != "" && cmd.Flags().Changed("key"):
				return usage("--key works with a single task; in a file each line has its own key")
			default:
				return nil
			}
		},
		ValidArgsFunction: fixed(builtin.HTTP.Name(), builtin.Exec.Name()),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(a.readSendFlags(&s, cmd.Flags()), limit.check()); err != nil {
				return err
			}
			if len(args) == 1 {
				if err := input.Name("type", args[0]); err != nil {
					return err
				}
				s.task.Type = &args[0]
			}
			if file != "" {
				return a.sendFile(cmd.Context(), fileSend{file: file, defaults: &s.task, check: !unchecked, dryRun: dryRun})
			}
			it, err := a.item(&s.task, !unchecked)
			if err != nil || dryRun {
				return a.checked(err)
			}
			if wait {
				return a.sendAndWait(cmd.Context(), it, limit)
			}
			return a.sendOne(cmd.Context(), it, s.task.Existing)
		},
	}
	s.register(cmd.Flags())
	s.completions(cmd)
	cmd.Flags().StringVarP(&file, "file", "f", "", "JSONL file with tasks; - for stdin")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the task's end and print its result; see also --wait-timeout")
	limit.register(cmd.Flags(), "wait-timeout", "with --wait: give up after this time, such as 30s; defaults to never")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check the input and send nothing")
	cmd.Flags().BoolVar(&unchecked, "unchecked", false, "do not check arguments of the types http and exec, if they are your own types")
	return cmd
}

// sentView is a send as JSON.
type sentView struct {
	ID         string       `json:"id"`
	Generation int64        `json:"generation"`
	Created    bool         `json:"created"`
	Status     model.Status `json:"status"`
}

// item is a task as the producer takes it, checked as the producer would, and more: the
// arguments of built-in types.
func (a *app) item(t *form.Task, checkArgs bool) (producer.JSONItem, error) {
	it, err := t.Item(a.clock().Now())
	if checkArgs {
		err = errors.Join(err, builtin.CheckArgs(it.Type, it.Args))
	}
	return it, errors.Join(err, producer.Config{SecretKey: a.Env.SecretKey}.Check(it.Type, it.Args, it.Options...))
}

// checked ends a dry run.
func (a *app) checked(err error) error {
	if err != nil {
		return err
	}
	if a.asJSON() {
		return a.result(map[string]bool{"valid": true}, "")
	}
	a.say("the task is valid; nothing was sent")
	return nil
}

// send stores a task, and warns if nobody takes it.
func (a *app) send(ctx context.Context, it producer.JSONItem) (*connection, producer.Sent, error) {
	c, err := a.connect(ctx)
	if err != nil {
		return nil, producer.Sent{}, err
	}
	sent, err := c.producer.SendJSON(ctx, it.Type, it.Args, it.Options...)
	if err != nil {
		return nil, sent, err
	}
	a.made(audit.Thing{Kind: audit.Task, ID: sent.ID})
	if sent.Created {
		a.warnUntaken(ctx, c, it.Type, sent.ID)
	}
	return c, sent, nil
}

func (a *app) sendAndWait(ctx context.Context, it producer.JSONItem, limit waitLimit) error {
	c, sent, err := a.send(ctx, it)
	if err != nil {
		return err
	}
	a.ended(ctx, ExitOK, "") // what becomes of the task is no change of this command
	ctx, cancel := limit.bound(ctx)
	defer cancel()
	succeeded, err := a.await(ctx, c, sent)
	if err == nil && !succeeded {
		return quiet(ExitFailed)
	}
	return err
}

func (a *app) sendOne(ctx context.Context, it producer.JSONItem, existing []string) error {
	_, sent, err := a.send(ctx, it)
	if err != nil {
		return err
	}
	switch {
	case sent.Created || a.asJSON():
	case len(existing) == 0:
		a.say("the key already exists; nothing changed (see --existing)")
	default:
		a.say("the key already exists; --existing %s decided about its task", strings.Join(existing, ","))
	}
	return a.result(sentView(sent), fmt.Sprintf("%s  %s\n", human.TaskID(sent.ID), sent.Status))
}
