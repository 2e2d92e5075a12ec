package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is wrong with a command is said with the field's name, exit code 2, and nothing
// is written.
func TestBadUsageNamesWhatIsWrong(t *testing.T) {
	s := newSession(t)
	file := filepath.Join(s.dir, "dir")
	require.NoError(t, os.Mkdir(file, 0o700))
	for _, c := range []struct {
		args []string
		say  string
	}{
		{[]string{"bogus"}, `no command "bogus"`},
		{[]string{"tsk"}, `mscheduler: mscheduler has no command "tsk" (did you mean task?); see: mscheduler --help`},
		{[]string{"task", "lst"}, `no command "lst"`},
		{[]string{"version", "x"}, `takes no argument "x"`},
		{[]string{"version", "--bogus"}, "unknown flag: --bogus"},
		{[]string{"version", "-o", "xml"}, `--output is "xml"; want table, json or yaml`},
		{[]string{"version", "--log-level", "loud"}, `--log-level is "loud"`},
		{[]string{"db", "status", "--uri", "http://x"}, "--uri is not a MongoDB URI"},
		{[]string{"db", "status", "--uri", ""}, ""},
		{[]string{"db", "status", "--database", "a b"}, `--database is "a b"`},
		{[]string{"db", "status", "--prefix", "a/b"}, "prefix"},
		{[]string{"send"}, "requires a TYPE or --file"},
		{[]string{"send", ""}, "type is empty"},
		{[]string{"send", "a/b"}, `type is "a/b"`},
		{[]string{"send", "a", "b"}, "takes one TYPE"},
		{[]string{"send", "http"}, "args.url is missing"},
		{[]string{"send", "http", "--args", "{"}, "--args is not JSON"},
		{[]string{"send", "http", "--args", "@/no/such"}, "there is no file /no/such"},
		{[]string{"send", "http", "--args", `{"url":5}`}, "args.url is a JSON number"},
		{[]string{"send", "t", "--args", `{"$a":1}`}, "args.$a"},
		{[]string{"send", "t", "--args", `123456789012345678901`}, "does not fit 64 bits"},
		{[]string{"send", "t", "--key", ""}, "key is empty"},
		{[]string{"send", "t", "--tenant", "a/b"}, `tenant is "a/b"`},
		{[]string{"send", "t", "--priority", "10"}, "priority is 10"},
		{[]string{"send", "t", "--priority", "x"}, `--priority is "x"; want a whole number`},
		{[]string{"send", "t", "--at", "tomorrow"}, `mscheduler: --at is "tomorrow"; want a time`},
		{[]string{"send", "t", "--in", "soon"}, `mscheduler: --in is "soon"; want a duration`},
		{[]string{"send", "t", "--in", "-5s"}, "in is -5s"},
		{[]string{"send", "t", "--in", "5s", "--at", "2030-01-01"}, "mscheduler: --in and --at are both given; want one"},
		{[]string{"send", "t", "--expires-in", "5s", "--expires-at", "2030-01-01"}, "mscheduler: --expires-in and --expires-at are both given; want one"},
		{[]string{"send", "t", "--worker-timeout", "10ms"}, "worker_timeout is 10ms"},
		{[]string{"send", "t", "--ping-interval", "1m", "--worker-timeout", "1m"}, "ping_interval"},
		{[]string{"send", "t", "--concurrent-worker-count", "65"}, "concurrent_worker_count is 65; want 1 to 64"},
		{[]string{"send", "t", "--concurrent-worker-count", "0"}, "is 0; want at least 1"},
		{[]string{"send", "t", "--specific-worker-ids", "*"}, "specific_worker_ids[0]"},
		{[]string{"send", "t", "--retry-strategy", "hope"}, `retry.strategy is "hope"`},
		{[]string{"send", "t", "--retry-strategy", "sequence"}, "retry.sequence is empty"},
		{[]string{"send", "t", "--retry-sequence", "1s,x"}, `--retry-sequence is "x"; want a duration`},
		{[]string{"send", "t", "--retry-factor", "0.5"}, "retry.factor"},
		{[]string{"send", "t", "--max-errors", "-1"}, "retry.max_errors is -1"},
		{[]string{"send", "t", "--local-retries", "1001"}, "retry.local.count"},
		{[]string{"send", "t", "--max-lapses", "-1"}, "max_lapses is -1"},
		{[]string{"send", "t", "--max-errors-per-worker", "11"}, "max_errors_per_worker is 11"},
		{[]string{"send", "t", "--timeout", "-1s"}, "timeout is -1s"},
		{[]string{"send", "t", "--retention", "99999d"}, "retention"},
		{[]string{"send", "t", "--existing", "destroy"}, `existing has "destroy"`},
		{[]string{"send", "t", "--existing", "keep,update-args"}, "existing has keep beside others"},
		{[]string{"task", "show", "a/b", "c/d"}, "task show takes one argument, not 2; see: mscheduler task show --help"},
		{[]string{"send", "--file", "x", "--key", "k"}, "--key works with a single task"},
		{[]string{"send", "--file", "x", "--wait"}, "--wait works with a single task"},
		{[]string{"send", "t", "--wait-timeout", "1s"}, "--wait-timeout requires --wait"},
		{[]string{"send", "--file", "/no/such"}, "there is no file /no/such"},
		{[]string{"send", "--file", file}, "is a directory"},
		{[]string{"task", "show"}, "mscheduler: task show requires the id of a task; see: mscheduler task show --help"},
		{[]string{"task", "show", "17"}, `mscheduler: task id is "17"; want type/key or tenant/type/key`},
		{[]string{"task", "explain", "a b/k"}, `task id is "a b/k"`},
		{[]string{"task", "wait"}, "requires the ids of tasks"},
		{[]string{"task", "wait", "t/k", "--timeout", "x"}, `--timeout is "x"; want a duration`},
		{[]string{"task", "list", "--status", "Done"}, `--status is "Done"; want one of Wait, New`},
		{[]string{"task", "list", "--type", "a/b"}, `--type is "a/b"`},
		{[]string{"task", "list", "--tenant", "a/b"}, `--tenant is "a/b"`},
		{[]string{"task", "list", "--limit", "0"}, "--limit is 0"},
		{[]string{"task", "list", "--created-after", "then"}, `--created-after is "then"`},
		{[]string{"task", "cancel"}, "requires ids of tasks, or a filter"},
		{[]string{"task", "cancel", "t/k", "--type", "t"}, "ids or a filter, not both"},
		{[]string{"task", "cancel", "--status", "Success"}, "only Wait, New, Executing, Error can be cancelled"},
		{[]string{"task", "retry", "--status", "New"}, "can be retried"},
		{[]string{"task", "resolve", "--status", "Failure"}, "only Pending can be resolved"},
		{[]string{"task", "release", "--status", "New"}, "only Wait can be released"},
		{[]string{"pause"}, "requires the names of types, or --all"},
		{[]string{"pause", "t", "--all"}, "types or --all, not both"},
		{[]string{"resume", "a/b"}, `type is "a/b"`},
		{[]string{"work", "--worker-id", "*"}, `worker_id is "*"`},
		{[]string{"work", "--concurrency", "-1"}, "concurrency is -1; want 1 to 1000000"},
		{[]string{"work", "--concurrency", "0"}, "concurrency is 0; want 1 to 1000000"},
		{[]string{"dev", "--concurrency", "0"}, "concurrency is 0; want 1 to 1000000"},
		{[]string{"bench", "paced", "--rate", "NaN"}, "--rate is NaN"},
		{[]string{"work", "--shutdown-timeout", "x"}, `--shutdown-timeout is "x"; want a duration`},
		{[]string{"work", "--poll-interval", "1ms"}, "poll_interval is 1ms"},
		{[]string{"work", "--http-body-limit", "0"}, "--http-body-limit is 0"},
		{[]string{"periodic", "aply"}, `no command "aply"`},
		{[]string{"periodic", "show"}, "requires the name of a rule"},
		{[]string{"periodic", "enable"}, "requires the names of rules"},
		{[]string{"periodic", "apply", "-f", "/no/such"}, "there is no file /no/such"},
		{[]string{"flow", "shw"}, `no command "shw"`},
		{[]string{"flow", "show"}, "requires the id of a flow"},
		{[]string{"flow", "show", "a b of more than thirty characters/k"}, `flow id is "a b of more than thirty characters/k"; want key or tenant/key`},
		{[]string{"flow", "show", "k", "--graph", "png"}, `--graph is "png"; want text, dot, mermaid, svg, gantt`},
		{[]string{"flow", "show", "k", "--graph", "dot", "-o", "json"}, "--graph prints no json"},
		{[]string{"flow", "start", "-f", "/no/such"}, "there is no file /no/such"},
		{[]string{"flow", "start", "-f", "x", "--args", "{"}, "--args is not JSON"},
		{[]string{"flow", "start", "-f", "x", "--key", ""}, "key is empty"},
		{[]string{"flow", "list", "--status", "DONE"}, `--status is "DONE"; want one of RUNNING, PENDING, FINISH`},
		{[]string{"flow", "list", "--limit", "0"}, "--limit is 0; want 1 to 1000"},
		{[]string{"flow", "list", "--tenant", "a/b"}, `--tenant is "a/b"`},
		{[]string{"flow", "retry", "k"}, "requires the id of a flow and the id of a node"},
		{[]string{"flow", "resolve", "k", "n"}, "requires the id of a flow, the id of a node, and SUCCESS or ERROR"},
		{[]string{"plan", "shw"}, `no command "shw"`},
		{[]string{"plan", "show"}, "requires the id of a plan"},
		{[]string{"plan", "show", "a b/p"}, `plan id is "a b/p"; want plan_id or tenant/plan_id`},
		{[]string{"plan", "cancel", "a/b/c"}, `plan id is "a/b/c"; want plan_id or tenant/plan_id`},
		{[]string{"plan", "publish"}, "want -f FILE"},
		{[]string{"plan", "publish", "-f", "/no/such"}, "there is no file /no/such"},
		{[]string{"plan", "publish", "-f", "x", "-n", "3"}, "--count requires --dry-run"},
		{[]string{"plan", "preview", "p", "-n", "0"}, "--count is 0; want 1 to 10000"},
		{[]string{"plan", "list", "--status", "DONE"}, `--status is "DONE"; want one of RUNNING, ERROR, FINISH, CANCELLED`},
		{[]string{"plan", "list", "--over", "--status", "RUNNING"}, "--over lists plans that are over; RUNNING is none of them"},
		{[]string{"plan", "list", "--limit", "0"}, "--limit is 0; want 1 to 1000"},
		{[]string{"plan", "list", "--after", "x"}, `--after is "x"; want the value that the previous page printed`},
		{[]string{"plan", "list", "--station", "a/b"}, `--station is "a/b"`},
		{[]string{"plan", "results", "p", "--limit", "1001"}, "--limit is 1001; want 1 to 1000"},
		{[]string{"plan", "results", "p", "--after", "x"}, `--after is "x"; want the value that the previous page printed`},
		{[]string{"task", "cancel", "--type", "", "--yes"}, "--type is empty"},
		{[]string{"task", "retry", "--type", "mail", "--status=", "--yes"}, "--status is empty"},
		{[]string{"task", "redeliver", "--tenant", "", "--background", "--yes"}, "--tenant is empty"},
		{[]string{"task", "resolve", "--created-before", "", "--yes"}, "--created-before is empty"},
		{[]string{"task", "list", "--key", ""}, "--key is empty"},
		{[]string{"token", "crate"}, `no command "crate"`},
		{[]string{"token", "create", "--role", "viewer"}, "requires the name of the token"},
		{[]string{"token", "create", "n"}, `role is ""; want one of viewer, operator, admin, worker`},
		{[]string{"token", "create", "n", "--role", "root"}, `role is "root"; want one of viewer, operator, admin, worker`},
		{[]string{"token", "create", "", "--role", "viewer"}, "name is empty; want 1 to 100"},
		{[]string{"token", "create", "a b", "--role", "viewer"}, `name is "a b"; want 1 to 100`},
		{[]string{"token", "create", strings.Repeat("n", 101), "--role", "viewer"}, "name is"},
		{[]string{"token", "create", "n", "--role", "viewer", "--tenant", "a/b"}, `tenants is "a/b"`},
		{[]string{"token", "create", "n", "--role", "viewer", "--tenant", ""}, "--tenant names no tenant"},
		{[]string{"token", "create", "n", "--role", "viewer", "--expires-in", "0s"}, "--expires-in is 0s; must be positive"},
		{[]string{"token", "create", "n", "--role", "viewer", "--expires-in", "-1h"}, "--expires-in is -1h; must be positive"},
		{[]string{"token", "create", "n", "--role", "viewer", "--expires-in", "soon"}, `--expires-in is "soon"; want a duration`},
		{[]string{"token", "create", "n", "--role", "viewer", "--expires-at", "90d"}, `--expires-at is "90d"; want a time such as`},
		{[]string{"token", "create", "n", "--role", "viewer", "--expires-at", ""}, `--expires-at is ""; want a time such as`},
		{[]string{"token", "create", "n", "--role", "viewer", "--expires-in", "1h", "--expires-at", "2999-01-01"}, "--expires-in and --expires-at are both given"},
		{[]string{"token", "revoke"}, "requires the id of a token"},
		{[]string{"token", "revoke", "17"}, "id is not that of a token"},
		{[]string{"dev", "--uri", "mongodb://x"}, "dev starts its own server"},
		{[]string{"demo", "--tasks", "1"}, "--tasks is 1"},
		{[]string{"demo", "--workers", "2"}, "--workers is 2"},
		{[]string{"help", "nope"}, `mscheduler has no command "nope"`},
		{[]string{"help", "task", "lst"}, `task has no command "lst" (did you mean list?)`},
		{[]string{"completion", "nope"}, `completion has no command "nope"`},
	} {
		if c.say == "" {
			continue
		}
		r := s.fails(ExitUsage, []string{c.say}, c.args...)
		require.Empty(t, r.stdout, "%v", c.args)
	}
	s.fails(ExitRefused, []string{"is not set up"}, "task", "list")
}

func TestEverythingWrongIsSaidAtOnce(t *testing.T) {
	s := newSession(t)
	s.fails(ExitUsage, []string{"priority is 10", "max_lapses is -1", "worker_timeout is 10ms"},
		"send", "t", "--priority", "10", "--max-lapses", "-1", "--worker-timeout", "10ms")
}

func TestHelpTellsExitCodesAndEveryCommandHasHelp(t *testing.T) {
	s := newSession(t)
	r := s.ok("--help")
	for _, want := range []string{"Exit codes:", "130  interrupted", "MSCHEDULER_MONGODB_URI", "doctor", "demo", "completion"} {
		require.Contains(t, r.stdout, want)
	}
	require.Contains(t, s.ok("help", "task", "list").stdout, "mscheduler task list")
	require.Equal(t, r.stdout, s.ok("help").stdout)
	require.Contains(t, s.ok("completion").stdout, "powershell")
	a := &app{Process: s.process(nil, &lockedBuffer{}, &lockedBuffer{})}
	for _, c := range a.root().Commands() {
		require.NotEmpty(t, c.Short, c.Name())
		for _, sub := range c.Commands() {
			require.NotEmpty(t, sub.Short, sub.CommandPath())
		}
	}
}

func TestVersion(t *testing.T) {
	s := newSession(t)
	require.Regexp(t, `^mscheduler .*time zones 20\d\d[a-z]`, s.ok("version").stdout)
	var v struct {
		Version string
		Schema  int
	}
	s.ok("version", "-o", "json").json(&v)
	require.NotEmpty(t, v.Version)
	require.Equal(t, 10, v.Schema)
}

func TestCompletionForTheUsualShells(t *testing.T) {
	s := newSession(t)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		require.Contains(t, s.ok("completion", shell).stdout, "mscheduler", shell)
	}
	require.Contains(t, s.ok("__complete", "task", "list", "--status", "").stdout, "ManuallyProcessed")
}
