package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const typesFile = `code: email.send
name: E-mails
category: mail
timeout: 5            # minutes
need_manual: true
retry:
  strategy: fixed_period
  interval: 10        # seconds
  max_errors: 3
claim_by: tenant
rate_limit: {count: 100, per: 1s}
callback:
  success: {url: "https://example.org/done", method: PUT}
---
- code: report
  retry: {strategy: sequence, sequence: [10s, 1m, 1h30m]}
  retention: 30d
- code: backup
  timeout: 2h
  retry: {strategy: none}
  key_limit: {max_running: 2}
  paused: true
`

func (s *session) file(content string) string {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "types.yaml")
	require.NoError(s.t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestTypesAreAppliedShownAndDeleted(t *testing.T) {
	s := newSession(t)
	path := s.file(typesFile)
	r := s.ok("type", "apply", "-f", path, "--dry-run")
	require.Contains(t, r.stdout, "email.send  would be created")
	require.Contains(t, s.run("type", "list").stderr, "is not set up", "nothing was written")

	r = s.ok("type", "apply", "-f", path)
	require.Contains(t, r.stdout, "email.send  created (version 1)\n")
	require.Contains(t, r.stdout, "  + retry.strategy: fixed\n")
	require.Contains(t, r.stdout, "  + timeout: 5m\n")
	require.Equal(t, "email.send  unchanged (version 1)\nreport  unchanged (version 1)\nbackup  unchanged (version 1)\n", s.ok("type", "apply", "-f", path).stdout)

	var shown struct {
		Code, Category string
		Options        map[string]any
		Paused         bool
	}
	s.ok("type", "show", "email.send", "-o", "json").json(&shown)
	require.Equal(t, "email.send mail", shown.Code+" "+shown.Category)
	require.EqualValues(t, 300_000, shown.Options["execution_timeout_ms"])
	require.Equal(t, map[string]any{"strategy": "fixed", "interval_ms": 10_000., "max_errors": 3.}, shown.Options["retry"])
	require.False(t, shown.Paused)
	s.ok("type", "show", "backup", "-o", "json").json(&shown)
	require.True(t, shown.Paused)
	require.Regexp(t, `(?m)^retry.sequence +\[10s, 1m, 1h30m\]$`, s.ok("type", "show", "report").stdout)
	require.Regexp(t, `(?m)^email.send +mail +fixed, at most 3 +5m +100 per 1s +successes +- +1 +E-mails$`, s.ok("type", "list").stdout)

	// What list writes can be applied, and changes nothing.
	again := s.file(s.ok("type", "list", "-o", "yaml").stdout)
	require.NotContains(t, s.ok("type", "apply", "-f", again).stdout, "  changed (")

	changed := s.file("code: report\nretry: {strategy: sequence, sequence: [10s]}\n")
	require.Equal(t, "report  would be changed (version 1)\n  - retry.sequence: [10s, 1m, 1h30m]\n  + retry.sequence: [10s]\n  - retention: 30d\n",
		s.ok("type", "apply", "-f", changed, "--dry-run").stdout)
	require.Contains(t, s.ok("type", "apply", "-f", changed).stdout, "report  changed (version 2)\n")
	s.fails(ExitRefused, []string{"version 2", "is for 1"}, "type", "apply", "-f", s.file("{code: report, version: 1}"))

	require.Contains(t, s.ok("type", "pause", "report").stdout, "report")
	require.NotContains(t, s.ok("type", "resume", "report").stdout, "report")

	s.ok("send", "report", "--key", "k")
	s.fails(ExitUsage, []string{"1 task has not ended", "--yes"}, "type", "delete", "report")
	require.Equal(t, "report  deleted\n", s.ok("type", "delete", "report", "--yes").stdout)
	s.fails(ExitNotFound, []string{"no such task type: report"}, "type", "show", "report")
	s.fails(ExitNotFound, []string{"no such task type"}, "type", "delete", "report")
	require.Contains(t, s.ok("task", "list", "--type", "report").stdout, "report/k", "its tasks stay")
}

func TestAFileOfTypesThatIsWrongIsRefusedWholeWithItsLines(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	for content, said := range map[string][]string{
		"code: t\nname: x\ncolour: red\nretry:\n  max_error: 3\n":                  {"types.yaml:3:1: colour is not known in a task type", "types.yaml:5:3: retry.max_error is not known"},
		"code: good\n---\n- code: other\n- code: a/b\n  max_running: -1\n":         {"types.yaml:4:9: code is", "types.yaml:5:16: max_running is -1"},
		"code: t\n---\ncode: t\n":                                                  {"types.yaml:3:1: t is defined twice, first at ", "types.yaml:1:1"},
		"code: t\nretry: {strategy: sequence}\n":                                   {"types.yaml:2:9: retry.sequence is empty"},
		"code: t\nrate_limit: {count: 0, per: 1s}\nkey_limit: {max_running: -1}\n": {"types.yaml:2:21: rate_limit.count is 0", "types.yaml:3:26: key_limit.max_running is -1"},
		"code: t\ncallback: {success: {url: ftp://x}}\n":                           {"types.yaml:2:27: callback.success.url"},
		"code: t\nspecific_worker_ids: [w]\n":                                      {"options cannot set specific_worker_ids"},
		"":                                                                         {"there are no task types"},
	} {
		s.fails(ExitUsage, said, "type", "apply", "-f", s.file(content))
	}
	r := s.ok("type", "list")
	require.Empty(t, r.stdout, "nothing was written by any of them")
	require.Contains(t, r.stderr, "no type has settings")
	s.fails(ExitUsage, []string{"want -f FILE"}, "type", "apply")
	s.fails(ExitUsage, []string{"there is no file"}, "type", "apply", "-f", "none.yaml")
	s.stdin = "code: t"
	require.Contains(t, s.ok("type", "apply", "-f", "-").stdout, "t  created")
}

func TestAnythingCanBeHadAsYAML(t *testing.T) {
	s := newSession(t)
	s.ok("send", "t", "--key", "k", "--args", `{"b": 1, "a": ["x", "1"]}`)
	out := s.ok("task", "show", "t/k", "-o", "yaml").stdout
	require.Contains(t, out, "id: -/t/k\n")
	require.Contains(t, out, "args:\n  b: 1\n  a:\n    - x\n    - \"1\"\n")
}

func TestAddressesOfCallbacksAreShownWithoutWhatMayBeSecret(t *testing.T) {
	s := newSession(t)
	file := func(token string) string {
		return s.file("code: t\ncallback: {success: {url: \"https://h/done?token=" + token + "\"}, error: {url: \"https://h/failed\"}}\n")
	}
	outputs := []string{s.ok("type", "apply", "-f", file("hunter2")).stdout, s.ok("type", "show", "t").stdout}
	for _, format := range []string{"yaml", "json"} {
		outputs = append(outputs, s.ok("type", "show", "t", "-o", format).stdout, s.ok("type", "list", "-o", format).stdout)
	}
	for _, out := range outputs {
		require.Contains(t, out, "https://h/done?token=***")
		require.Contains(t, out, "https://h/failed")
		require.NotContains(t, out, "hunter2")
	}
	unchanged := "t  unchanged (version 1)\n"
	require.Equal(t, unchanged, s.ok("type", "apply", "-f", s.file(outputs[len(outputs)-3])).stdout, "what is shown stands for what is stored")
	require.Equal(t, unchanged, s.ok("type", "apply", "-f", file("hunter2")).stdout)
	require.Equal(t, "t  changed (version 2)\n  + callback.success.url: what is not shown of it\n", s.ok("type", "apply", "-f", file("hunter3")).stdout)
	require.Equal(t, "t  unchanged (version 2)\n", s.ok("type", "apply", "-f", file("hunter3")).stdout)

	r := s.fails(ExitUsage, []string{"callback.success.url", "http://***@h/", "sign the callback"}, "type", "apply", "-f", s.file("code: t\ncallback: {success: {url: \"http://bob:hunter2@h/\"}}\n"))
	require.NotContains(t, r.stderr, "hunter2")
	s.fails(ExitUsage, []string{"callback.success.url has ***"}, "send", "t", "--callback", `{"success": {"url": "https://h/done?token=***"}}`)
}

func TestFilesAndCommandsOfTypesSayWhatIsWrongInTheirOwnWords(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	for content, said := range map[string][]string{
		"code: t\ntimeout: -5m\n":                                  {"types.yaml:2:10: timeout is -5m"},
		"code: t\ncallback: {success: {url: \"http://h/?a=***\"}}": {"callback.success.url has ***"},
	} {
		s.fails(ExitUsage, said, "type", "apply", "-f", s.file(content), "--dry-run")
	}
	s.fails(ExitNotFound, []string{"no such task type: t", "the file is for version 7"}, "type", "apply", "-f", s.file("{code: t, version: 7}"))
	s.stdin = "code: t\nmax_running: -1\n"
	r := s.fails(ExitUsage, []string{"standard input:2:14: max_running"}, "type", "apply", "-f", "-")
	require.NotContains(t, r.stderr, "-:1")
	require.Equal(t, "t  would be created\n  + code: t\n", s.ok("type", "apply", "-f", s.file("code: t"), "--dry-run").stdout)
	s.secret = strings.Repeat("5c", 32)
	hidden := "code: t\ncallback: {success: {url: http://h}, security: {type: aksk, ak: a, sk: '***'}}\n"
	s.fails(ExitUsage, []string{"sk is ***"}, "type", "apply", "-f", s.file(hidden), "--dry-run")
	s.fails(ExitUsage, []string{"sk is ***"}, "type", "apply", "-f", s.file("code: u\n---\n"+hidden))
	s.fails(ExitNotFound, []string{"no such task type: u"}, "type", "show", "u")

	s.ok("type", "apply", "-f", s.file("code: t"))
	r = s.ok("type", "pause", "t", "typo")
	require.Contains(t, r.stderr, `unknown type "typo"`)
	require.NotContains(t, r.stderr, `unknown type "t"`)
	require.Regexp(t, `(?m)^t .* yes +1`, s.ok("type", "list").stdout)
	s.ok("type", "pause", "--all")
	require.Regexp(t, `(?m)^t .* all are +1`, s.ok("type", "list").stdout)

	require.Contains(t, s.ok("send", "--help").stdout, "until 'task release'")
	for _, bad := range []string{"0", "10s", "200y", "900000h"} {
		s.fails(ExitUsage, []string{"forever"}, "archive", "retention", bad)
	}
}
