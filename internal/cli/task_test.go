package cli

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/bulk"
	"github.com/mscheduler/mscheduler/internal/explain"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestTasksAreSearchedByErrorAndArguments(t *testing.T) {
	s := newSession(t)
	listed := func(args ...string) int {
		var list struct{ Tasks []struct{ ID string } }
		s.ok(append([]string{"task", "list", "-o", "json"}, args...)...).json(&list)
		return len(list.Tasks)
	}
	s.ok("send", "c", "--key", "other", "--args", `{"order": {"id": 18}}`)
	s.ok("send", "c", "--key", "found", "--args", `{"order": {"id": 17}, "to": "ann, bob"}`)
	_, err := database(t, s).Collection("tasks").UpdateByID(t.Context(), "-/c/found", bson.D{{Key: "$set", Value: bson.D{{Key: "error_info", Value: "costs $5 (or more)"}}}})
	require.NoError(t, err)
	require.Equal(t, 1, listed("--key", "fo"))
	require.Zero(t, listed("--key", "fo", "--type", "d"))
	require.Equal(t, 1, listed("--error", "COSTS $5 ("))
	require.Zero(t, listed("--error", "costs .*"))
	require.Equal(t, 1, listed("--arg", "order.id=17", "--arg", "to=ann, bob"))
	require.Zero(t, listed("--arg", "order.id=17", "--arg", "to=ann"))
	s.fails(ExitUsage, []string{"--key must"}, "task", "list", "--key", "a\x00b")
	s.fails(ExitUsage, []string{"--arg is", "want PATH=VALUE"}, "task", "list", "--arg", "order")
	require.Contains(t, s.ok("task", "cancel", "--error", "costs $5", "--arg", "order.id=17", "--yes").stdout, "1 task cancelled")
	s.fails(ExitUsage, []string{"either ids or a filter"}, "task", "cancel", "c/found", "--error", "costs")
}

func TestListIsFilteredAndPaged(t *testing.T) {
	s := newSession(t)
	for i := range 5 {
		s.ok("send", "a", "--key", fmt.Sprint("k", i), "--tenant", "acme", "--category", "c")
	}
	s.ok("send", "b", "--key", "held", "--held")
	ids := func(args ...string) []string {
		var list struct {
			Tasks []struct{ ID string }
			Next  string
		}
		s.ok(append([]string{"task", "list", "-o", "json"}, args...)...).json(&list)
		var out []string
		for _, task := range list.Tasks {
			out = append(out, task.ID)
		}
		if list.Next != "" {
			out = append(out, "next "+list.Next)
		}
		return out
	}
	require.Len(t, ids(), 6)
	require.Equal(t, []string{"-/b/held"}, ids("--status", "wait"))
	require.Equal(t, []string{"-/b/held"}, ids("--tenant", "-"))
	require.Len(t, ids("--category", "c", "--type", "a"), 5)
	require.Empty(t, ids("--creator", "nobody"))
	require.Empty(t, ids("--created-before", "-1h"))
	require.Len(t, ids("--created-after", "-1h"), 6)
	require.Equal(t, []string{"-/b/held", "acme/a/k0", "next acme/a/k0"}, ids("--limit", "2"))
	require.Equal(t, []string{"acme/a/k0", "acme/a/k1", "next acme/a/k1"}, ids("--limit", "2", "--after", "b/held"))
	require.Equal(t, []string{"acme/a/k4"}, ids("--limit", "2", "--after", "acme/a/k3"))
	require.Equal(t, []string{"acme/a/k4", "acme/a/k3", "next acme/a/k3"}, ids("--limit", "2", "--sort", "-id"))
	require.Equal(t, []string{"acme/a/k0", "-/b/held"}, ids("--sort", "-id", "--after", "acme/a/k1", "--history"))
	s.fails(ExitUsage, []string{`--sort is "due_at"; want id or -id`}, "task", "list", "--sort", "due_at")

	r := s.ok("task", "list", "--limit", "2")
	require.Contains(t, r.stderr, "the next page: --after 'acme/a/k0'")
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	require.Len(t, lines, 3)
	require.True(t, strings.HasPrefix(lines[0], "TASK "))
	require.Contains(t, lines[1], "held")
	require.Equal(t, strings.Index(lines[0], "STATUS"), strings.Index(lines[1], "Wait"), "columns are aligned")
	require.Contains(t, s.ok("task", "list", "--type", "none").stderr, "no task")
}

func TestAnIDWithoutATenantIsShortAndInFullIsNoFlag(t *testing.T) {
	s := newSession(t)
	require.Equal(t, "t/k  New\n", s.ok("send", "t", "--key", "k").stdout)
	require.Equal(t, "-/t/a/b  New\n", s.ok("send", "t", "--key", "a/b").stdout, "t/a/b would be of the tenant t")
	for _, id := range [][]string{{"t/k"}, {"-/t/k"}, {"-/t/a/b"}, {"--", "-/t/a/b"}, {"--log-level", "error", "-/t/k"}} {
		require.Contains(t, s.ok(append([]string{"task", "show"}, id...)...).stdout, "New")
	}
	require.Contains(t, s.ok("task", "show", "-/t/k", "-o", "json").stdout, `"id":"-/t/k"`)
	require.Contains(t, s.ok("-o", "json", "task", "show", "-/t/k").stdout, `"id":"-/t/k"`)
	require.Equal(t, "t/k  Cancelled\n-/t/a/b  Cancelled\n", s.ok("task", "cancel", "-/t/k", "-/t/a/b", "--remark", "-/x").stdout)
	require.Contains(t, s.ok("task", "show", "t/k").stdout, "-/x", "the value of a flag")
	s.ok("flow", "start", "-f", s.file("key: f\nnodes: [{id: a, type: t}]\n"))
	require.Contains(t, s.ok("flow", "explain", "-/f", "a").stdout, "a of f is")
	s.fails(ExitNotFound, []string{"no such plan"}, "plan", "show", "-/none")
	s.fails(ExitUsage, []string{"unknown shorthand flag"}, "task", "show", "-/t/k", "-x")
	require.Contains(t, s.ok("task", "list", "--limit", "1").stderr, "--after '-/t/a/b'")
	require.Contains(t, s.ok("task", "list", "--after", "-/t/a/b").stdout, "t/k ")
	require.Contains(t, s.ok("task", "list", "--after", "t/a").stdout, "t/k ")
}

func TestTaskThatDoesNotExistIsExit3(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	for _, args := range [][]string{
		{"task", "show", "t/k"}, {"task", "explain", "t/k"}, {"task", "wait", "t/k"}, {"task", "cancel", "t/k"},
		{"task", "retry", "t/k"}, {"task", "resolve", "t/k"}, {"task", "release", "t/k"},
	} {
		s.fails(ExitNotFound, []string{"no such task", "t/k"}, args...)
	}
}

func TestCommandsChangeTasksById(t *testing.T) {
	s := newSession(t)
	s.ok("send", "t", "--key", "a", "--held")
	s.ok("send", "t", "--key", "b")
	require.Equal(t, "t/a  New\n", s.ok("task", "release", "t/a").stdout)
	require.Equal(t, "t/a  Cancelled\nt/b  Cancelled\n", s.ok("task", "cancel", "t/a", "t/b", "--remark", "not needed").stdout)
	require.Regexp(t, `(?m)^remark +not needed$`, s.ok("task", "show", "t/a").stdout)
	s.ok("send", "t", "--key", "c")
	require.Equal(t, "t/c is New; nothing changed\n", s.ok("task", "release", "t/c").stderr)
	require.Equal(t, "t/a is Cancelled; nothing changed\n", s.ok("task", "cancel", "t/a").stderr)
	require.Empty(t, s.ok("task", "cancel", "t/c").stderr)
	require.Contains(t, s.ok("task", "retry", "--type", "tt").stderr, `unknown type "tt": no definition, no tasks and no live worker; check the spelling`)
	require.Empty(t, s.ok("task", "resolve", "--type", "t").stderr)
	r := s.fails(ExitRefused, []string{"only Pending can be resolved"}, "task", "resolve", "t/a")
	require.Empty(t, r.stdout)

	// What one forbids does not stop the others, and the first decides the code.
	r = s.fails(ExitNotFound, []string{"mscheduler: no such task: t/none\n"}, "task", "retry", "t/none", "t/b")
	require.Equal(t, "t/b  New\n", r.stdout)

	var changed struct{ Tasks []changedView }
	s.ok("task", "cancel", "t/b", "-o", "json").json(&changed)
	require.Len(t, changed.Tasks, 1)
	require.EqualValues(t, "Cancelled", changed.Tasks[0].Status)
}

func TestCommandsByFilterAskFirst(t *testing.T) {
	s := newSession(t)
	for i := range 3 {
		s.ok("send", "t", "--key", fmt.Sprint("k", i))
	}
	s.ok("send", "other", "--key", "k")

	s.fails(ExitUsage, []string{"Cancel 3 tasks (Wait, New, Executing, Error)?", "--yes"}, "task", "cancel", "--type", "t")
	s.terminal = true
	for _, answer := range []string{"n\n", "\n", ""} {
		s.stdin = answer
		s.fails(ExitFailed, []string{"Cancel 3 tasks", "[y/N]", "nothing was changed"}, "task", "cancel", "--type", "t")
	}
	s.stdin = "y\n"
	require.Equal(t, "3 tasks cancelled\n", s.ok("task", "cancel", "--type", "t").stdout)
	s.terminal = false

	require.Equal(t, "0 tasks cancelled\n", s.ok("task", "cancel", "--type", "t").stdout, "nothing is left, and nothing to ask")
	require.Equal(t, "0 tasks retried\n", s.ok("task", "retry", "--type", "t", "--yes").stdout, "Cancelled only when it is said")
	var counts bulk.Counts
	s.ok("task", "retry", "--type", "t", "--status", "Cancelled", "--yes", "-o", "json").json(&counts)
	require.Equal(t, bulk.Counts{Matched: 3, Changed: 3}, counts)
	require.Regexp(t, `(?m)^status +New$`, s.ok("task", "show", "other/k").stdout)
}

func TestFilterCoversManyPages(t *testing.T) {
	s := newSession(t)
	const n = 2*bulk.PageSize + 3
	s.stdin = strings.Repeat("{\"held\":true}\n", n)
	s.ok("send", "t", "-f", "-")
	require.Equal(t, fmt.Sprintf("%d tasks released\n", n), s.ok("task", "release", "--type", "t", "--yes").stdout)
	var list struct{ Tasks []struct{ Status string } }
	s.ok("task", "list", "-o", "json", "--limit", "5000", "--status", "New").json(&list)
	require.Len(t, list.Tasks, n)
}

func TestPendingTaskIsResolvedOrRetried(t *testing.T) {
	s := newSession(t)
	for _, key := range []string{"a", "b"} {
		s.ok("send", "exec", "--key", key, "--args", `{"argv":["false"]}`, "--need-manual", "--max-errors", "0")
	}
	s.worker()
	r := s.run("task", "wait", "exec/a", "exec/b")
	require.Equal(t, ExitFailed, r.code)
	require.Contains(t, r.stdout, "exec/a  Pending")
	require.Contains(t, r.stdout, "exec/b  Pending")
	explained := s.ok("task", "explain", "exec/a").stdout
	require.Contains(t, explained, "An operator must decide")
	require.Contains(t, explained, "mscheduler task resolve 'exec/a'")
	require.Equal(t, "exec/a  ManuallyProcessed\n", s.ok("task", "resolve", "exec/a", "--remark", "done by hand").stdout)
	require.Equal(t, "1 task retried\n", s.ok("task", "retry", "--type", "exec", "--yes").stdout)
	require.Equal(t, ExitFailed, s.run("task", "wait", "exec/b").code)
}

func TestWaitHasATimeout(t *testing.T) {
	s := newSession(t)
	s.ok("send", "t", "--key", "k")
	s.fails(ExitFailed, []string{"t/k", "the timeout passed", "task explain 't/k'"}, "task", "wait", "t/k", "--timeout", "50ms")
	for _, none := range []string{"0s", "-1s"} {
		s.fails(ExitUsage, []string{"--timeout is " + none}, "task", "wait", "t/k", "--timeout", none)
	}
}

func TestATimeoutIsOfTheWaitAndNotOfConnecting(t *testing.T) {
	s := newSession(t)
	s.ok("send", "t", "--key", "k")
	s.fails(ExitFailed, []string{"t/k", "the timeout passed"}, "task", "wait", "t/k", "--timeout", "1ns")
}

func TestCancelReachesARunningTask(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.worker()
	s.ok("send", "exec", "--key", "k", "--args", `{"argv":["sleep","600"]}`, "--ping-interval", "1h", "--worker-timeout", "3h") // no ping tells of the cancel
	s.eventually("the task to run", func() bool { return strings.Contains(s.ok("task", "show", "exec/k").stdout, "Executing") })
	explained := s.ok("task", "explain", "exec/k").stdout
	require.Contains(t, explained, "The worker w1 has been running it since")
	require.Contains(t, explained, "its lease runs until")
	require.Contains(t, s.ok("task", "cancel", "exec/k").stdout, "stop requested; its handler is still running")
	r := s.run("task", "wait", "exec/k", "--timeout", testdb.Patience.String())
	require.Equal(t, ExitFailed, r.code)
	require.Contains(t, r.stdout, "exec/k  Cancelled")
}

func TestShowTellsTheWholeStory(t *testing.T) {
	s := newSession(t)
	s.worker()
	s.ok("send", "exec", "--key", "k", "--args", `{"argv":["sh","-c","exit 3"]}`, "--retry-strategy", "fixed", "--retry-interval", "10ms", "--max-errors", "1")
	s.run("task", "wait", "exec/k")
	r := s.ok("task", "show", "exec/k").stdout
	for _, want := range []string{"status      Failure", "attempts    2 (2 errors, 0 lapses)", "last error  sh: exit status 3", "TRY  WORKER", "w1"} {
		require.Contains(t, r, want)
	}
	require.Regexp(t, `(just now|s ago)`, r)
	explained := s.ok("task", "explain", "exec/k").stdout
	require.Contains(t, explained, "It failed permanently at")
	require.Contains(t, explained, "It had 2 errors and 0 lapses.")
	var report struct {
		ID, Status, Summary    string
		Because, Next, Workers []any
	}
	s.ok("task", "explain", "exec/k", "-o", "json").json(&report)
	require.Equal(t, "Failure", report.Status)
	require.NotEmpty(t, report.Next)
}

// What applies to a task, and who said so.
func TestShowSaysWhichOptionsApplyAndWhoSaidSo(t *testing.T) {
	s := newSession(t)
	s.ok("type", "apply", "-f", s.file("{code: t, timeout: 5, need_manual: true, retry: {strategy: fixed, interval: 7s, max_errors: 2}}"))
	s.ok("send", "t", "--key", "k", "--max-errors", "4", "--max-lapses", "1")
	out := s.ok("task", "show", "t/k").stdout
	for _, line := range []string{
		"retries every 7s (type)", "at most 4 errors (task)", "and 1 lapses (task)", "lease 30s (default)", "ping every 10s (default)",
		"timeout 5m (type)", "budget spent: Pending (type)", "stays for 7d (default)", "callback none (default)",
	} {
		require.Regexp(t, `(?m)^(in effect)? +`+regexp.QuoteMeta(line)+`$`, out)
	}
	s.ok("send", "t", "--key", "short", "--retention", "1s")
	require.Contains(t, s.ok("task", "show", "t/short").stdout, "stays for 1m (the least)\n")
	require.Equal(t, 24*time.Hour, leastRetention(&model.Task{Origin: &model.Origin{Tick: &model.Tick{}}}))
}

func TestShowTellsOptionsThatWaitForTheNextClaim(t *testing.T) {
	now := time.Now().UTC()
	said := model.Options{NeedManual: new(true)}
	task := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "k", Options: model.Options{Retention: time.Hour}}, now)
	task, no := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: "w", ExecID: "x", Applied: &said}, lifecycle.EffectiveOf(task, said), now)
	require.Empty(t, no)
	require.Empty(t, nextOptionsText(task, said))
	task, err := lifecycle.Update(task, lifecycle.Patch{Options: &model.Options{Retention: 48 * time.Hour}}, said, now)
	require.NoError(t, err)
	require.Contains(t, optionsText(task, said), "stays for 1h (task)")
	require.Contains(t, nextOptionsText(task, said), "stays for 2d (task)")
	require.Contains(t, nextOptionsText(task, said), "budget spent: Pending (type or handler)")
	report := explain.Explain(explain.Facts{Task: task, Now: now})
	require.Contains(t, report.Because, "Its options changed while it was running. The change takes effect at its next claim.")
}

func TestShowAndExplainTellLocalRetries(t *testing.T) {
	now := time.Now().UTC()
	retry := &model.Retry{Local: &model.LocalRetry{Count: 3}}
	task := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "k", Options: model.Options{Retry: retry}}, now)
	task, no := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: "w", ExecID: "x"}, lifecycle.EffectiveOf(task, model.Options{}), now)
	require.Empty(t, no)
	task.WorkerStates[0].LocalRetries = 2
	require.Regexp(t, `(?m)^1 \+ 2 local +w `, executionsText(task, now))
	report := explain.Explain(explain.Facts{Task: task, Now: now})
	require.Contains(t, strings.Join(report.Because, "\n"), "attempt 1, local retry 2 of 3; its lease")
}

func TestAJobThatBeganWithoutACountHasNoTotal(t *testing.T) {
	for want, v := range map[string]*bulk.JobState{
		"not counted yet": {Status: model.StatusExecuting},
		"not counted":     {Status: model.StatusExecuting, Counts: bulk.Counts{Skipped: 1}},
		"7":               {Status: model.StatusExecuting, Counts: bulk.Counts{Matched: 7}, Counted: true},
	} {
		require.Equal(t, want, matchedText(v))
	}
}

func TestAFilterChangesTasksInTheBackground(t *testing.T) {
	s := newSession(t)
	for i := range 3 {
		s.ok("send", "t", "--key", fmt.Sprint("k", i), "--held")
	}
	s.fails(ExitUsage, []string{"--background requires a filter"}, "task", "cancel", "t/k0", "--background")
	require.Equal(t, "0 tasks released\n", s.ok("task", "release", "--type", "none", "--background").stdout, "no job for nothing")
	job := strings.TrimSpace(s.ok("task", "release", "--type", "t", "--background", "--yes").stdout)
	require.Regexp(t, `(?m)^matched +not counted yet$`, s.ok("bulk", "show", job).stdout)
	other := strings.TrimSpace(s.ok("task", "cancel", "--type", "t", "--remark", "no", "--background", "--yes").stdout)
	require.Equal(t, other+"  Cancelled\n", s.ok("bulk", "stop", other).stdout)
	s.fails(ExitNotFound, []string{"mscheduler: no such job: nope"}, "bulk", "show", "nope")
	s.fails(ExitNotFound, []string{"mscheduler: no such job: nope"}, "bulk", "stop", "nope")
	require.Regexp(t, `(?m)^\S+ +cancel +Cancelled .* 20\S+ \S+Z \((just now|\S+ ago)\) `, s.ok("bulk", "list").stdout)
	s.worker()
	s.eventually("the job", func() bool { return strings.Contains(s.ok("bulk", "show", job).stdout, "Success") })
	shown := s.ok("bulk", "show", job).stdout
	require.Regexp(t, `(?m)^action +release$`, shown)
	require.Regexp(t, `(?m)^matched +3\nchanged +3$`, shown)
	require.Equal(t, 3, strings.Count(s.ok("task", "list", "--type", "t", "--status", "New").stdout, "\nt/"))
	var list struct{ Jobs []struct{ ID, Status string } }
	s.ok("bulk", "list", "-o", "json").json(&list)
	require.Len(t, list.Jobs, 2)
	require.Regexp(t, `(?m)^`+job+` +release +Success +3 +3 +0 +0 `, s.ok("bulk", "list").stdout)
	s.fails(ExitNotFound, nil, "bulk", "show", "none")
}
