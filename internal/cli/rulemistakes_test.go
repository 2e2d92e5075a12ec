package cli

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// What somebody types who has read only the help.
func TestMistakesInFilesOfRulesSayWhatIsWanted(t *testing.T) {
	s := newSession(t)
	const rule = "name: n\ncron: '@daily'\n"
	for _, c := range []struct {
		file string
		says []string
	}{
		{"name: n\ncron: * * * * *\ntype: t\n", []string{"types.yaml:2:9: ", `quote a value that begins with * @ or {, such as cron: "* * * * *"`}},
		{rule + "type: t\ncatch_up: full\n", []string{`types.yaml:4:11: catch_up.mode is "full"; want one of NONE, COMPACT, FULL`}},
		{rule + "http: {url: 'http://h/', expect: ok}\n", []string{`http.expect is ["ok"]; want statuses from 100 to 599, such as 200, 2xx or`}},
		{rule + "http: {url: 'http://h/', expect: [99]}\n", []string{`http.expect is [99]; want statuses`}},
		{rule + "http: {url: 'http://h/', body: {\"a\": {{run_id}}}}\n", []string{"types.yaml:3:", "quote a value"}},
		{rule + "http: {url: 'http://h/', body: '{\"a\": {{run_id}}}'}\n", []string{"types.yaml:3:32: http.body looks like JSON, but is not JSON", `{"run": "{{run_id}}"}`}},
		{rule + "http: {url: 'http://u:hidden@h/'}\n", []string{"http.url has a user or password"}},
		{rule + "type: t\nhttp: {url: 'http://h/{{tick}}', method: get}\n", []string{"say one of type and http", `http.url has the placeholder "tick"`, "http.method"}},
	} {
		s.fails(ExitUsage, c.says, "periodic", "apply", "-f", s.file(c.file))
	}
	several := "name: n\ncatch_up: full\ntype: t\ncron: bad\npriority: 99\n"
	r := s.fails(ExitUsage, nil, "periodic", "apply", "-f", s.file(several))
	require.Regexp(t, `(?s)types.yaml:2:.*types.yaml:4:.*types.yaml:5:`, r.stderr, "in the order of the file")
	one := s.file(rule + "http: {url: 'http://h/', expect: 2xx}\ncatch_up: FULL\n")
	require.Contains(t, s.ok("periodic", "apply", "-f", one).stdout, "created")
	list := s.file(rule + "http: {url: 'http://h/', expect: ['200-299']}\ncatch_up: {mode: FULL}\n")
	require.Contains(t, s.ok("periodic", "apply", "-f", list).stdout, "unchanged")
}

func TestABodyMayBeWrittenAsYAMLAndCredentialsAreNotShown(t *testing.T) {
	s := newSession(t)
	const rule = "name: n\ncron: '@daily'\nhttp: {url: 'http://h/', headers: {authorization: %s}, body: {a: '{{run_id}}', b: [1]}}\n"
	require.Contains(t, s.ok("periodic", "apply", "-f", s.file(fmt.Sprintf(rule, "swordfish"))).stdout, "+ http.headers: the secret of authorization")
	shown := s.ok("periodic", "list", "-o", "yaml").stdout
	require.Contains(t, shown, `body: "{\"a\":\"{{run_id}}\",\"b\":[1]}"`)
	for _, out := range []string{
		shown, s.ok("periodic", "list", "-o", "json").stdout, s.ok("periodic", "show", "n").stdout, s.ok("periodic", "show", "n", "-o", "json").stdout,
		s.ok("periodic", "apply", "--dry-run", "-f", s.file(fmt.Sprintf(rule, "marlin"))).stdout,
	} {
		require.NotContains(t, out, "swordfish")
		require.NotContains(t, out, "marlin")
	}
	require.Contains(t, s.ok("periodic", "apply", "-f", s.file(shown)).stdout, "unchanged")
	require.Contains(t, s.ok("periodic", "apply", "-f", s.file(fmt.Sprintf(rule, "'***'"))).stdout, "unchanged")
}

func TestErrorsAboutARuleNameItAsItWasTyped(t *testing.T) {
	s := newSession(t)
	s.ok("periodic", "apply", "-f", s.file("name: nightly sums\ncron: '@daily'\ntype: t\nmax_concurrency: 1\n"))
	s.fails(ExitUsage, []string{"backfilling rule nightly sums: from is ", "want a time before"}, "periodic", "backfill", "nightly sums", "--from", "5m")
	s.fails(ExitUsage, []string{"backfilling rule nightly sums: to is ", "in the future"}, "periodic", "backfill", "nightly sums", "--from", "-1d", "--to", "1d")
	s.fails(ExitUsage, []string{"triggering a rule: request"}, "periodic", "trigger", "nightly sums", "--request", "a b")
}

func TestARunOfADeletedRuleCanBeCancelled(t *testing.T) {
	s := newSession(t)
	s.ok("periodic", "apply", "-f", s.file("name: n\ncron: '@daily'\ntype: t\n"))
	s.ok("periodic", "trigger", "n", "--request", "r")
	run := s.runsOf("n").Runs[0].ID
	s.ok("periodic", "delete", "n")
	require.Equal(t, run+"  cancel requested\n", s.ok("periodic", "cancel", run).stdout)
	require.Contains(t, s.ok("task", "list").stdout, "Cancelled")
	s.fails(ExitNotFound, []string{"no such periodic rule"}, "periodic", "trigger", run[:len(run)-2])
}
