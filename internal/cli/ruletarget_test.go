package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestARuleCallsAURLAndItsCompletionEndsTheRun(t *testing.T) {
	s := newSession(t)
	told := make(chan string, 10)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { told <- r.URL.Query().Get("back") }))
	defer target.Close()
	file := s.file(`name: sync stats
cron: 0 0 1 1 *
http:
  url: ` + target.URL + `/?back={{callback_url}}
  mode: ASYNC
  expect: [200, "202-204"]
  timeout: 5s
  callback_timeout: 1h
  callback_method: POST
  headers: {X-Region: "{{ext.region}}"}
ext: {region: eu}
`)
	require.Contains(t, s.ok("periodic", "apply", "-f", file).stdout, "created")
	require.Contains(t, s.ok("periodic", "apply", "-f", file).stdout, "unchanged")
	again := s.file(s.ok("periodic", "list", "-o", "yaml").stdout)
	require.Contains(t, s.ok("periodic", "apply", "-f", again).stdout, "unchanged")

	_, _, stop := s.worker("--periodic", "--completion-addr", "127.0.0.1:0", "--http-allow", "127.0.0.1")
	s.ok("periodic", "trigger", "sync stats")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, testdb.Receive(t, told), http.NoBody)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusOK, res.StatusCode)
	s.eventually("the run to end", func() bool {
		var out struct{ Runs []struct{ Status string } }
		s.ok("periodic", "runs", "sync stats", "-o", "json").json(&out)
		return len(out.Runs) == 1 && out.Runs[0].Status == "SUCCESS"
	})
	var list struct{ Runs []struct{ ID string } }
	s.ok("periodic", "runs", "--status", "SUCCESS", "-o", "json").json(&list)
	require.Len(t, list.Runs, 1, "of all rules")
	require.Regexp(t, `(?m)^RULE +TICK .*\nsync stats +20`, s.ok("periodic", "runs").stdout)
	require.Contains(t, s.ok("periodic", "runs", "--tenant", "acme").stderr, "no run")
	id := list.Runs[0].ID
	shown := s.ok("periodic", "run", id).stdout
	for _, want := range []string{
		`(?m)^rule +sync stats$`, `(?m)^execution began +20`, `(?m)^request +POST http://127.0.0.1:\d+/\?back=\*\*\*$`,
		`(?m)^ +X-Region: eu$`, `(?m)^response +(200|none yet)`,
	} {
		require.Regexp(t, want, shown)
	}
	var run struct {
		Executed string `json:"executed_at"`
		Call     struct{ Request struct{ Method string } }
	}
	s.ok("periodic", "run", id, "-o", "json").json(&run)
	require.NotEmpty(t, run.Executed)
	require.Equal(t, "POST", run.Call.Request.Method)
	s.fails(ExitNotFound, []string{"no such run", "x"}, "periodic", "run", "x")
	require.Equal(t, ExitOK, stop().code)
	bad := s.file("name: bad\ncron: '@daily'\nhttp: {url: 'http://h/{{tick}}', keys: [{ak: a}]}\n")
	s.fails(ExitUsage, []string{`http.url has the placeholder "tick"`, "http.keys[0] needs an access key and a secret"}, "periodic", "apply", "-f", bad)
	s.fails(ExitUsage, []string{"--completion-url"}, "work", "--completion-url", "ftp://x")
	s.fails(ExitUsage, []string{"--completion-url", "an address that no target can call"}, "work", "--completion-url", "http://[::]:8080")
	for _, every := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		s.fails(ExitUsage, []string{"--completion-addr is " + strconv.Quote(every), "--completion-url"}, "work", "--completion-addr", every)
	}
	s.fails(ExitUsage, []string{"--http-allow"}, "work", "--http-allow", "http://x")
}

func TestSecretsInFilesOfRulesAndTypesAreSealedHiddenAndKept(t *testing.T) {
	s := newSession(t)
	const rule = `name: n
cron: 0 0 1 1 *
http: {url: "http://127.0.0.1:1/", keys: [{ak: a, sk: %s}]}
options: {callback: {success: {url: "http://h/"}, security: {type: aksk, ak: shop, sk: %s}}}
`
	const good = "name: good\ncron: '@daily'\ntype: t\n---\n"
	s.ok("db", "migrate")
	s.fails(ExitUsage, []string{"types.yaml:8:62: callback.security.keys[0].sk", "types.yaml:7:55: http.keys[0].sk", "MSCHEDULER_SECRET_KEY"},
		"periodic", "apply", "-f", s.file(good+fmt.Sprintf(rule, "swordfish", "hunter2")))
	s.fails(ExitUsage, []string{"types.yaml:4:52: callback.security.keys[0].sk", "MSCHEDULER_SECRET_KEY"},
		"type", "apply", "-f", s.file("code: good\n---\ncode: t\ncallback: {success: {url: 'http://h/'}, security: {type: aksk, ak: shop, sk: hunter2}}\n"))
	require.Empty(t, s.ok("periodic", "list").stdout+s.ok("type", "list").stdout, "nothing was written")
	s.secret = strings.Repeat("5c", 32)
	s.fails(ExitUsage, []string{"http.keys[0].sk is ***", "give the secret itself"}, "periodic", "apply", "-f", s.file(good+fmt.Sprintf(rule, "'***'", "hunter2")))
	require.Empty(t, s.ok("periodic", "list").stdout, "nothing was written")

	plain := s.file(fmt.Sprintf(rule, "swordfish", "hunter2"))
	require.Contains(t, s.ok("periodic", "apply", "-f", plain, "--dry-run").stdout, "  + options.callback.security.keys: a new secret for the key shop\n  + http.keys: a new secret for the key a\n")
	require.Contains(t, s.ok("periodic", "apply", "-f", plain).stdout, "n  created")
	s.ok("periodic", "trigger", "n")
	sealed := func() string {
		var doc bson.Raw
		require.NoError(t, database(t, s).Collection("periodic_rules").FindOne(t.Context(), bson.D{}).Decode(&doc))
		require.Equal(t, 2, strings.Count(doc.Lookup("task").String(), "mss1."))
		return doc.Lookup("task").String()
	}
	before := sealed()
	var tasks struct{ Tasks []struct{ ID string } }
	s.ok("task", "list", "-o", "json").json(&tasks)
	id := tasks.Tasks[0].ID
	for _, out := range []string{
		s.ok("periodic", "show", "n").stdout, s.ok("periodic", "show", "n", "-o", "json").stdout, s.ok("periodic", "list", "-o", "json").stdout,
		s.ok("periodic", "list", "-o", "yaml").stdout, s.ok("task", "list", "-o", "json").stdout,
		s.ok("task", "show", "--", id).stdout,
	} {
		require.Equal(t, 2, strings.Count(out, "***"), out)
		for _, hidden := range []string{"mss1.", "hunter2", "swordfish"} {
			require.NotContains(t, out, hidden)
		}
	}
	again := s.file(s.ok("periodic", "list", "-o", "yaml").stdout)
	require.Contains(t, s.ok("periodic", "apply", "-f", again).stdout, "n  unchanged")
	require.Contains(t, s.ok("periodic", "apply", "-f", s.file(fmt.Sprintf(rule, "'***'", "'***'")+"description: d\n")).stdout, "n  changed")
	require.Equal(t, before, sealed(), "what is not shown is kept")
}

func TestTheQueryOfATargetIsHiddenAndKept(t *testing.T) {
	s := newSession(t)
	file := func(token string) string {
		return s.file("name: n\ncron: 0 0 1 1 *\nhttp: {url: \"https://h/?token=" + token + "&run={{run_id}}\"}\n---\nname: task\ncron: 0 0 1 1 *\ntype: http\nargs: {url: \"https://h/?token=" + token + "&run={{run_id}}\"}\n")
	}
	dry := s.ok("periodic", "apply", "-f", file("hunter2"), "--dry-run").stdout
	outputs := []string{dry, s.ok("periodic", "apply", "-f", file("hunter2")).stdout}
	yaml := s.ok("periodic", "list", "-o", "yaml").stdout
	outputs = append(outputs, yaml, s.ok("periodic", "list", "-o", "json").stdout)
	for _, name := range []string{"n", "task"} {
		for _, format := range []string{"table", "json", "yaml"} {
			outputs = append(outputs, s.ok("periodic", "show", name, "-o", format).stdout)
		}
	}
	for _, out := range outputs {
		require.Contains(t, out, "https://h/?token=***&run={{run_id}}")
		require.NotContains(t, out, "hunter2")
	}
	require.Equal(t, 2, strings.Count(s.ok("periodic", "apply", "-f", s.file(yaml)).stdout, "unchanged"), "what is shown stands for what is stored")
	changed := s.ok("periodic", "apply", "-f", file("hunter3")).stdout
	require.Contains(t, changed, "  + http.url: what is not shown of it\n")
	require.Contains(t, changed, "  + args.url: what is not shown of it\n")
	require.NotContains(t, changed, "hunter")
	s.fails(ExitUsage, []string{"http.url has *** for a part that is not shown"}, "periodic", "apply", "-f", s.file("name: new\ncron: '@daily'\nhttp: {url: \"https://h/?token=***\"}\n"))
	s.fails(ExitUsage, []string{"args.url has *** for a part that is not shown"}, "periodic", "apply", "-f", s.file("name: new\ncron: '@daily'\ntype: http\nargs: {url: \"https://h/?token=***\"}\n"))
	require.Contains(t, s.ok("periodic", "preview", "n").stdout, "20")

	s.ok("send", "http", "--key", "k", "--args", `{"url": "https://h/?token=hunter2"}`)
	require.Contains(t, s.ok("task", "show", "http/k").stdout, "https://h/?token=***")
	s.fails(ExitUsage, []string{"args.url has ***"}, "task", "update", "http/k", "--args", `{"url": "https://h/?token=***"}`)
}
