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
		{"name: n\ncron: * * * * *\ntype: t\n", []string{"line 2", `quote a value that begins with * or @, such as cron: "* * * * *"`}},
		{"name: n\ncron: @daily\ntype: t\n", []string{"quote a value that begins with * or @"}},
		{rule + "type: t\ncatch_up: {mod: FULL}\n", []string{"types.yaml: line 4: field mod is not a field there"}},
		{rule + "type: t\ncatch_up: full\n", []string{`catch_up.mode is "full"; want one of [NONE COMPACT FULL]`}},
		{rule + "type: t\noptions: {expires_at: 2026-01-01}\n", []string{"field expires_at is not a field there", "end_at ends the rule"}},
		{rule + "http: {url: 'http://h/', expect: ok}\n", []string{`http.expect is "ok"; want statuses from 100 to 599, such as 200, 2xx or`}},
		{rule + "http: {url: 'http://h/', expect: [99]}\n", []string{`http.expect is [99]; want statuses`}},
		{rule + "http: {url: 'http://h/', body: {\"a\": {{run_id}}}}\n", []string{"line 3", "key"}},
		{rule + "http: {url: 'http://h/', body: '{\"a\": {{run_id}}}'}\n", []string{"http.body looks like JSON but is not", `{"run": "{{run_id}}"}`}},
		{rule + "http: {url: 'http://u:hidden@h/'}\n", []string{"http.url has a user or password"}},
		{rule + "type: t\nhttp: {url: 'http://h/{{tick}}', method: get}\n", []string{"say one of type and http", `http.url has the placeholder "tick"`, "http.method"}},
		{rule + "http: http://x\n", []string{"line 3: \"http://x\" is text; want fields of its own: url, method, headers, body, "}},
		{rule + "http: [url]\n", []string{"line 3: there is a list; want fields of its own: url, method, "}},
		{rule + "type: t\nmax_concurrency: many\n", []string{"line 4: \"many\" is text; want a whole number"}},
		{rule + "type: t\nenabled: 7\n", []string{"line 4: \"7\" is a number; want true or false"}},
		{rule + "type: {a: b}\n", []string{"line 3: there are fields; want text"}},
		{rule + "type: t\noptions: {retry: {factor: two}, workers: w}\n", []string{"line 4: \"two\" is text; want a number", "line 4: \"w\" is text; want a list"}},
		{rule + "type: t\ncatch_up: [FULL]\n", []string{"line 4: there is a list; want fields of its own"}},
		{rule + "http: {url: 'http://h/', headers: x}\n", []string{"line 3: \"x\" is text; want names with their texts"}},
		{"42\n", []string{"line 1: \"42\" is a number; want the fields of a periodic rule"}},
	} {
		r := s.fails(ExitUsage, c.says, "periodic", "apply", "-f", s.file(c.file))
		require.NotRegexp(t, `cannot unmarshal|!!|cli\.|\bint\b`, r.stderr, "words of the program")
	}
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
	require.Contains(t, shown, `body: '{"a":"{{run_id}}","b":[1]}'`)
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
