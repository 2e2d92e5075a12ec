package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSendStoresWhatTheFlagsSay(t *testing.T) {
	s := newSession(t)
	r := s.ok("send", "report", "--args", `{"n":1}`, "--key", "k1", "--tenant", "acme", "--creator", "ann", "--category", "daily",
		"--priority", "9", "--at", "2100-01-31T09:00:00Z", "--concurrent-worker-count", "2", "--specific-worker-ids", "w1,w2",
		"--ping-interval", "2s", "--worker-timeout", "10s", "--timeout", "1m", "--retry-strategy", "exponential", "--retry-interval", "2s",
		"--retry-factor", "3", "--retry-max-interval", "1m", "--retry-jitter", "0.5", "--max-errors", "4", "--local-retries", "2",
		"--local-retry-interval", "100ms", "--max-lapses", "5", "--max-errors-per-worker", "2", "--need-manual", "--retention", "2d")
	require.Equal(t, "acme/report/k1  New\n", r.stdout)
	var doc map[string]any
	s.ok("task", "show", "acme/report/k1", "-o", "json").json(&doc)
	require.Equal(t, "2100-01-31T09:00:00.000Z", doc["start_time"])
	require.Equal(t, map[string]any{"n": 1.0}, doc["args"])
	require.EqualValues(t, 9, doc["priority"])
	require.Equal(t, "ann", doc["creator"])
	require.Equal(t, "daily", doc["category"])
	options, err := json.Marshal(doc["options"])
	require.NoError(t, err)
	require.JSONEq(t, `{"concurrent_worker_count":2,"ping_interval_ms":2000,"worker_timeout_ms":10000,"execution_timeout_ms":60000,
		"specific_worker_ids":["w1","w2"],"retry":{"strategy":"exponential","interval_ms":2000,"factor":3,"max_interval_ms":60000,"jitter":0.5,
		"max_errors":4,"local":{"count":2,"interval_ms":100}},"max_lapses":5,"max_errors_per_worker":2,"need_manual":true,"retention_ms":172800000}`, string(options))
}

func TestSendOfAKeyThatExists(t *testing.T) {
	s := newSession(t)
	s.ok("send", "t", "--key", "k", "--args", "1")
	r := s.ok("send", "t", "--key", "k", "--args", "2")
	require.Contains(t, r.stderr, "the key already exists; nothing changed (see --existing)\n")
	require.Contains(t, s.ok("task", "show", "t/k").stdout, "arguments  1\n")
	r = s.ok("send", "t", "--key", "k", "--args", "2", "--existing", "update-args")
	require.Contains(t, r.stderr, "the key already exists; --existing update-args decided about its task\n")
	require.Contains(t, s.ok("task", "show", "t/k").stdout, "arguments  2\n")

	var sent struct {
		ID      string
		Created bool
		Status  string
	}
	s.ok("send", "t", "--key", "k", "-o", "json").json(&sent)
	require.Equal(t, "-/t/k", sent.ID)
	require.False(t, sent.Created)
	require.Equal(t, "New", sent.Status)

	s.ok("task", "cancel", "t/k")
	s.ok("send", "t", "--key", "k", "--args", "3", "--existing", "restart-failed,keep-args", "-o", "json").json(&sent)
	require.True(t, sent.Created)
	require.Contains(t, s.ok("task", "show", "t/k").stdout, "arguments  2\n")
	s.fails(ExitUsage, []string{"existing has keep-args without restart-failed or restart-succeeded"}, "send", "t", "--key", "k", "--existing", "keep-args")
}

func TestSendAndWaitPrintsTheResult(t *testing.T) {
	s := newSession(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "hello") }))
	defer server.Close()
	s.worker()
	r := s.ok("send", "http", "--args", `{"url":"`+server.URL+`"}`, "--wait")
	require.Contains(t, r.stdout, "Success")
	require.Contains(t, r.stdout, "hello")

	s.stdin = `{"argv":["sh","-c","echo oops; exit 7"]}`
	r = s.run("send", "exec", "--args", "@-", "--max-errors", "0", "--wait", "-o", "json")
	require.Equal(t, ExitFailed, r.code)
	var end endView
	r.json(&end)
	require.EqualValues(t, "Failure", end.Status)
	require.Equal(t, "sh: exit status 7: oops", end.Error)
}

func TestSendGivesUpWaitingAfterTheTimeoutAndTheTaskGoesOn(t *testing.T) {
	s := newSession(t)
	s.fails(ExitFailed, []string{"t/k", "the timeout passed before the task had ended", "task explain 't/k'"}, "send", "t", "--key", "k", "--wait", "--wait-timeout", "50ms")
	require.Contains(t, s.ok("task", "show", "t/k").stdout, "New")
	for _, none := range []string{"0s", "-1s"} {
		s.fails(ExitUsage, []string{"--wait-timeout is " + none}, "send", "t", "--key", "k", "--wait", "--wait-timeout", none)
	}
}

func TestDryRunNeedsNoDatabaseAndWritesNothing(t *testing.T) {
	s := newSession(t)
	s.uri = ""
	require.Contains(t, s.ok("send", "t", "--key", "k", "--dry-run").stderr, "nothing was sent")
	s.fails(ExitUsage, []string{"priority is 12"}, "send", "t", "--priority", "12", "--dry-run")
	s.stdin = "{\"type\":\"a\"}\n{\"type\":\"b\",\"priority\":11}\n"
	r := s.run("send", "--file", "-", "--dry-run")
	require.Equal(t, ExitUsage, r.code)
	require.Contains(t, r.stderr, "standard input:2:24: priority is 11")
	require.Equal(t, "2 tasks: 1 valid, 1 invalid; nothing was sent\n", r.stdout)
}

func TestFileIsSentAndWrongLinesAreNamed(t *testing.T) {
	s := newSession(t)
	path := filepath.Join(s.dir, "tasks.jsonl")
	lines := []string{
		`{"type": "t", "key": "a", "args": {"n": 1}, "priority": 7, "options": {"worker_timeout_ms": 5000, "retry": {"max_errors": 2}}}`,
		``,
		`{"key": "b", "in_ms": 60000}`, // the type comes from the command line
		`not json`,
		`{"key": "c", "prio": 1}`,
		`{"key": "d", "priority": 10, "options": {"max_lapses": -1}}`,
		`{"type": "http", "key": "e", "args": {}}`,
		`{"key": "f", "priority": "high"}`,
		`["g"]`,
		`{"key": "h", "in_ms": 1, "start_time": "2030-01-01T00:00:00Z"}`,
		`{"key": "i"} {"key": "j"}`,
		`{"key": "k", "args": {"a": {"$b": 1}}}`,
		`{"key": "l", "args": "` + strings.Repeat("x", maxLineBytes) + `"}`,
		`{"key": "n", "start_time": "yesterday"}`,
		`{"key": "n", "in_ms": "5s"}`,
		`{"key": "n", "options": {"retry": {"local": {"interval_ms": 99999999999999999}}}}`,
		`{"key": "n", "options": {"expires_at": 17}}`,
		`{"type": "foo", "type": "bar"}`,
		`{"key": "n", "options": {"max_lapses": 1, "MAX_LAPSES": 2}}`,
		`{"key": "n"} ]`,
		`{"key": "n"`,
		`{"key": "m", "held": true, "start_time": "2030-01-01T00:00:00Z", "existing": ["keep"]}`, // no line end
	}
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600))
	r := s.run("send", "dflt", "--file", path, "--creator", "import", "--priority", "3")
	require.Equal(t, ExitUsage, r.code)
	require.Equal(t, "3 tasks sent: 3 new, 0 with an existing key; 18 lines refused\n", r.stdout)
	for _, want := range []string{
		"tasks.jsonl:4:2: not JSON", "tasks.jsonl:5:14: prio is not known in a task", "tasks.jsonl:6:26: priority is 10", "tasks.jsonl:6:56: max_lapses is -1",
		"tasks.jsonl:7:38: args.url is missing", `tasks.jsonl:8:26: priority is "high"; want a whole number`, "tasks.jsonl:9:1: has a list; want fields",
		"tasks.jsonl:10:23: in and start_time are both given", "tasks.jsonl:11:14: there is more than one JSON value", "tasks.jsonl:12:", "args.a.$b",
		fmt.Sprintf("tasks.jsonl:13: more than %d bytes", maxLineBytes),
		`tasks.jsonl:14:28: start_time is "yesterday"; want a time such as`, `tasks.jsonl:15:23: in_ms is "5s"; want a whole number of milliseconds`,
		"tasks.jsonl:16:61: options.retry.local.interval_ms is 99999999999999999; want a whole number of milliseconds", `tasks.jsonl:17:40: options.expires_at is 17`,
		"tasks.jsonl:18:17: type is given twice", "tasks.jsonl:19:43: options.MAX_LAPSES is not known", "tasks.jsonl:20:14: there is more than one JSON value",
		"tasks.jsonl:21:12: not JSON: it ends too early",
	} {
		require.Contains(t, r.stderr, want)
	}
	var list struct{ Tasks []map[string]any }
	s.ok("task", "list", "-o", "json").json(&list)
	require.Len(t, list.Tasks, 3)
	require.Equal(t, "-/dflt/b", list.Tasks[0]["id"])
	require.EqualValues(t, 3, list.Tasks[0]["priority"], "flags are the defaults of every line")
	require.Equal(t, "import", list.Tasks[0]["creator"])
	require.Equal(t, "Wait", list.Tasks[1]["status"])
	require.EqualValues(t, 7, list.Tasks[2]["priority"], "a line wins over a flag")

	var counts fileResult
	r = s.run("send", "dflt", "--file", path, "-o", "json")
	r.json(&counts)
	require.Equal(t, fileResult{Lines: 21, Created: 0, Existed: 3, Refused: 18}, counts)
}

func TestLargeFileGoesOutInBatches(t *testing.T) {
	s := newSession(t)
	const n = 3*batchLines + 17
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"key\":\"k%d\",\"args\":{\"i\":%d}}\r\n", i, i)
	}
	s.stdin = b.String()
	require.Equal(t, fmt.Sprintf("%d tasks sent: %d new, 0 with an existing key; 0 lines refused\n", n, n), s.ok("send", "many", "-f", "-").stdout)
	s.stdin = "\n\n"
	s.fails(ExitUsage, []string{"standard input contains no task"}, "send", "many", "-f", "-")
}

func TestManyWrongLinesAreCounted(t *testing.T) {
	s := newSession(t)
	s.stdin = strings.Repeat("{}\n", 50)
	r := s.run("send", "-f", "-")
	require.Equal(t, ExitUsage, r.code)
	require.Contains(t, r.stderr, "standard input:20:1: type is empty")
	require.NotContains(t, r.stderr, "standard input:21:")
	require.Contains(t, r.stderr, "only counted")
	require.Equal(t, "0 tasks sent: 0 new, 0 with an existing key; 50 lines refused\n", r.stdout)
}
