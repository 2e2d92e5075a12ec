package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestADryRunOfASendIsJSONForAProgram(t *testing.T) {
	s := newSession(t)
	require.JSONEq(t, `{"valid": true}`, s.ok("send", "mail", "--dry-run", "-o", "json").stdout)
	require.Contains(t, s.ok("send", "mail", "--dry-run").stderr, "nothing was sent")
}

func TestAfterIsWhatAPagePrinted(t *testing.T) {
	s := newSession(t)
	s.ok("send", "mail", "--key", "k", "--in", "1h")
	for _, args := range [][]string{
		{"task", "list"}, {"task", "list", "--history"}, {"audit", "list"}, {"bulk", "list"}, {"flow", "list"}, {"plan", "list"}, {"plan", "results", "p"}, {"token", "list"},
	} {
		s.fails(ExitUsage, []string{`--after is "foo"; want the value that the previous page printed`}, append(args, "--after", "foo")...)
	}
}
