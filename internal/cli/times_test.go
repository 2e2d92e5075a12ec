package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// A bound in the future selects everything or nothing: its minus sign was forgotten.
func TestADurationOfAFilterLiesInThePast(t *testing.T) {
	s := newSession(t)
	s.ok("send", "mail", "--key", "k", "--in", "1h")
	s.ok("periodic", "apply", "-f", s.file("name: n\ncron: '@daily'\ntype: t\n"))
	for _, c := range []struct {
		args []string
		text string
	}{
		{[]string{"task", "cancel", "--type", "mail", "--created-before", "1h"}, "--created-before is 1h from now, which selects every task; did you mean -1h?"},
		{[]string{"task", "cancel", "--type", "mail", "--created-before", "1h", "--background"}, "--created-before is 1h from now"},
		{[]string{"task", "list", "--created-after", "1d"}, "--created-after is 1d from now, which selects no task; did you mean -1d?"},
		{[]string{"audit", "list", "--since", "90m"}, "--since is 1h30m from now, which selects no change; did you mean -1h30m?"},
		{[]string{"audit", "list", "--until", "1d"}, "--until is 1d from now, which selects every change"},
		{[]string{"periodic", "runs", "n", "--from", "1h"}, "--from is 1h from now, which selects no run"},
		{[]string{"periodic", "runs", "n", "--to", "1h"}, "--to is 1h from now, which selects every run"},
	} {
		s.fails(ExitUsage, []string{c.text}, c.args...)
	}
	s.ok("task", "list", "--created-before", "0s")
	s.ok("audit", "list", "--until", "2999-01-01")
}

func TestADurationOfAFilterCountsFromTheTimeOfTheDatabase(t *testing.T) {
	s := newSession(t)
	s.ok("send", "mail", "--key", "k", "--in", "1h")
	s.databaseAt(24 * time.Hour)
	require.Equal(t, "1\n", s.ok("task", "count", "--created-before", "-2h").stdout)
	require.NotContains(t, s.ok("task", "list", "--created-after", "-2h").stdout, "mail/k")
	require.Contains(t, s.ok("task", "cancel", "--type", "mail", "--created-after", "-2h", "--yes").stdout, "0 tasks")
	require.Contains(t, s.ok("task", "cancel", "--type", "mail", "--created-before", "-2h", "--yes").stdout, "1 task")
}

// What was sent after the count is not what somebody was asked about.
func TestABoundInTheFutureIsThePresentOfTheDatabase(t *testing.T) {
	s := newSession(t)
	s.ok("send", "mail", "--key", "k", "--in", "1h")
	s.databaseAt(-time.Hour) // the task is sent after the command begins
	require.Contains(t, s.ok("task", "cancel", "--type", "mail", "--created-before", "2999-01-01", "--yes").stdout, "0 tasks")
}

// databaseAt has the commands that follow find the clock of the database so far ahead.
func (s *session) databaseAt(ahead time.Duration) {
	p := testdb.Behind(s.t)
	p.Rewrite(func(command string, answer bson.Raw) bson.Raw {
		return proxy.AtTime(time.Now().Add(ahead), command, answer)
	})
	s.uri = p.URI()
}
