package cli

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// options of a task as its document has them.
func (s *session) options(id string) string {
	s.t.Helper()
	var doc struct{ Options json.RawMessage }
	s.ok("task", "show", id, "-o", "json").json(&doc)
	return string(doc.Options)
}

func TestTaskUpdateChangesWhatIsNamedAndNothingElse(t *testing.T) {
	s := newSession(t)
	s.ok("send", "t", "--key", "k", "--args", "1", "--priority", "3", "--specific-worker-ids", "w1", "--worker-timeout", "40s",
		"--retry-strategy", "fixed", "--retry-interval", "2s", "--local-retries", "2", "--local-retry-interval", "1s")
	r := s.ok("task", "update", "t/k", "--priority", "9", "--at", "2100-01-31T09:00:00Z", "--args", `{"n":2}`,
		"--ping-interval", "5s", "--max-errors", "4", "--local-retries", "3", "--need-manual")
	require.Equal(t, "t/k  New\n", r.stdout)
	var doc map[string]any
	s.ok("task", "show", "t/k", "-o", "json").json(&doc)
	require.EqualValues(t, 9, doc["priority"])
	require.Equal(t, "2100-01-31T09:00:00.000Z", doc["start_time"])
	require.Equal(t, map[string]any{"n": 2.0}, doc["args"])
	require.JSONEq(t, `{"specific_worker_ids":["w1"],"worker_timeout_ms":40000,"ping_interval_ms":5000,"need_manual":true,
		"retry":{"strategy":"fixed","interval_ms":2000,"max_errors":4,"local":{"count":3,"interval_ms":1000}}}`, s.options("t/k"))

	s.ok("task", "update", "t/k", "--specific-worker-ids", "w2,w3", "--retry-strategy", "exponential")
	require.JSONEq(t, `{"specific_worker_ids":["w2","w3"],"worker_timeout_ms":40000,"ping_interval_ms":5000,"need_manual":true,
		"retry":{"strategy":"exponential","max_errors":4,"local":{"count":3,"interval_ms":1000}}}`, s.options("t/k"))
	s.ok("task", "update", "t/k", "--local-retries", "0", "--retry-jitter", "0.5")
	require.JSONEq(t, `{"specific_worker_ids":["w2","w3"],"worker_timeout_ms":40000,"ping_interval_ms":5000,"need_manual":true,
		"retry":{"strategy":"exponential","jitter":0.5,"max_errors":4,"local":{"interval_ms":1000}}}`, s.options("t/k"), "0 is a value, too")
	s.ok("task", "update", "t/k", "--retry-jitter", "0")
	require.NotContains(t, s.options("t/k"), "jitter", "0 asks for the default")
	s.ok("task", "update", "t/k", "--specific-worker-ids=")
	require.NotContains(t, s.options("t/k"), "specific_worker_ids")
}

func TestTaskUpdateByFilterAsksFirst(t *testing.T) {
	s := newSession(t)
	s.ok("send", "t", "--key", "a", "--tenant", "acme")
	s.ok("send", "t", "--key", "b")
	s.fails(ExitUsage, []string{"Update 1 task", "pass --yes to confirm"}, "task", "update", "--tenant", "acme", "--priority", "9")
	require.Equal(t, "1 task updated\n", s.ok("task", "update", "--tenant", "acme", "--priority", "9", "--yes").stdout)
	require.Contains(t, s.ok("task", "show", "acme/t/a").stdout, "9")
	require.JSONEq(t, "5", s.priority("t/b"))
}

func (s *session) priority(id string) string {
	s.t.Helper()
	var doc struct{ Priority json.RawMessage }
	s.ok("task", "show", id, "-o", "json").json(&doc)
	return string(doc.Priority)
}

func TestTaskUpdateRefusesBadInputBeforeItWrites(t *testing.T) {
	s := newSession(t)
	s.ok("send", "http", "--key", "k", "--args", `{"url":"http://127.0.0.1:1/"}`)
	s.fails(ExitUsage, []string{"requires a change"}, "task", "update", "http/k")
	s.fails(ExitUsage, []string{`--at is "yesterday-ish"; want a time`}, "task", "update", "http/k", "--at", "yesterday-ish", "--priority", "9")
	s.fails(ExitUsage, []string{"priority"}, "task", "update", "http/k", "--priority", "12")
	s.fails(ExitUsage, []string{"url"}, "task", "update", "http/k", "--args", `{}`, "--priority", "9")
	require.JSONEq(t, "5", s.priority("http/k"))
	s.ok("task", "cancel", "http/k")
	s.fails(ExitRefused, nil, "task", "update", "http/k", "--priority", "9")
}

func TestSendToATypeThatNobodyServesWarns(t *testing.T) {
	s := newSession(t)
	const warning = `unknown type "emial.send": no definition and no live worker`
	r := s.ok("send", "emial.send", "--key", "k")
	require.Contains(t, r.stderr, warning)
	require.Equal(t, "emial.send/k  New\n", r.stdout)
	require.NotContains(t, s.ok("send", "emial.send", "--key", "k").stderr, "unknown type", "the key exists: nothing was sent")

	s.stdin = "{\"type\":\"emial.send\"}\n{\"type\":\"known\"}\n{\"type\":\"emial.send\"}\n"
	s.ok("type", "apply", "-f", s.file("code: known\n"))
	r = s.ok("send", "--file", "-")
	require.Contains(t, r.stderr, warning)
	require.NotContains(t, r.stderr, `"known"`, "it has a definition")
	s.worker()
	require.NotContains(t, s.ok("send", "exec", "--args", `{"argv":["true"]}`).stderr, "no live worker", "a worker serves it")
}

func TestSendWarnsIfNoWorkerTakesTheTask(t *testing.T) {
	s := newSession(t)
	s.worker("--tenant", "acme")
	const warning = `no live worker of type exec takes `
	send := func(tenant string) string {
		return s.ok("send", "exec", "--tenant", tenant, "--args", `{"argv":["true"]}`).stderr
	}
	require.NotContains(t, send("acme"), warning)
	require.Regexp(t, `^no live worker of type exec takes beta/exec/\S+, which is stored and waits; to see why: mscheduler task explain 'beta/exec/\S+'\n$`, send("beta"))
	s.stdin = `{"type": "exec", "tenant": "beta", "args": {"argv": ["true"]}}` + "\n"
	require.Contains(t, s.ok("send", "--file", "-").stderr, warning)
	s.stdin = `{"type": "exec", "tenant": "acme", "args": {"argv": ["true"]}}` + "\n"
	require.NotContains(t, s.ok("send", "--file", "-").stderr, warning)
	s.ok("type", "apply", "-f", s.file("code: exec\nmax_running: 5\n"))
	require.Contains(t, s.ok("send", "exec", "--tenant", "acme", "--args", `{"argv":["true"]}`, "--specific-worker-ids", "gone").stderr, warning, "whether the type has settings or not")
	require.NotContains(t, send("acme"), warning)
}

func TestAWorkerTakesOnlyWhatItsFlagsName(t *testing.T) {
	s := newSession(t)
	send := func(key string, flags ...string) string {
		s.ok(append([]string{"send", "exec", "--key", key, "--args", `{"argv":["true"]}`}, flags...)...)
		return key
	}
	send("tenant", "--tenant", "acme", "--category", "c", "--creator", "ann")
	send("category", "--tenant", "acme", "--category", "other", "--creator", "ann")
	send("creator", "--tenant", "acme", "--category", "c", "--creator", "bob")
	send("none")
	s.worker("--tenant", "acme", "--category", "c", "--creator", "ann,eve")
	s.ok("task", "wait", "acme/exec/tenant")
	// Whatever the worker takes it has taken by now: these became due before.
	for _, id := range []string{"acme/exec/category", "acme/exec/creator", "exec/none"} {
		require.Regexp(t, `status +New`, s.ok("task", "show", id).stdout)
	}
	require.Contains(t, s.ok("worker", "list").stdout, "acme")
}
