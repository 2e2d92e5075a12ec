package cli

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestWhatCannotBeReadIsNamedAndTheOthersAreListed(t *testing.T) {
	s := newSession(t)
	for _, name := range []string{"a", "b", "c"} {
		s.ok("send", "mail", "--key", name)
		s.ok("flow", "start", "-f", s.file(fmt.Sprintf("key: %s\nnodes: [{id: n, type: t}]\n", name)))
		s.ok("plan", "publish", "-f", s.file(fmt.Sprintf("plan_id: %s\nstation: t\nplan_type: none\nplan_time: '2100-01-01T00:00:00Z'\nmessages: [x]\n", name)))
	}
	for coll, id := range map[string]string{"tasks": "-/mail/b", "flows": "-/b", "plans": "-/b"} {
		_, err := database(t, s).Collection(coll).UpdateByID(t.Context(), id, bson.D{{Key: "$set", Value: bson.D{{Key: "rev", Value: "many"}}}})
		require.NoError(t, err)
	}
	for _, c := range []struct {
		said string
		of   string // precedes the key in the table
		args []string
	}{
		{"the task mail/b cannot be read", "mail/", []string{"task", "list", "--type", "mail"}},
		{"the flow b cannot be read", "", []string{"flow", "list"}},
		{"the plan b cannot be read", "", []string{"plan", "list"}},
	} {
		r := s.fails(ExitFailed, []string{c.said, "rev"}, c.args...)
		require.Regexp(t, `(?m)^`+c.of+`a `, r.stdout)
		require.Regexp(t, `(?m)^`+c.of+`c `, r.stdout)
		require.NotRegexp(t, `(?m)^`+c.of+`b `, r.stdout)
		s.fails(ExitFailed, []string{c.said, "follow; for the next page"}, append(c.args, "--limit", "2")...)
	}
}

func TestARunThatCannotBeReadHidesNoNextPage(t *testing.T) {
	s := newSession(t)
	s.ok("periodic", "apply", "-f", s.file("name: n\ncron: '@yearly'\ntype: t\n"))
	for _, request := range []string{"r1", "r2", "r3", "r4"} {
		s.ok("periodic", "trigger", "n", "--request", request)
	}
	newest := s.runsOf("n").Runs[0].ID
	_, err := database(t, s).Collection("periodic_runs").UpdateByID(t.Context(), newest, bson.D{{Key: "$set", Value: bson.D{{Key: "rev", Value: "many"}}}})
	require.NoError(t, err)
	var first, last runsPage
	s.fails(ExitFailed, []string{"the run " + newest + " cannot be read"}, "periodic", "runs", "n", "--limit", "2", "-o", "json").json(&first)
	require.Len(t, first.Runs, 2)
	require.Equal(t, first.Runs[1].ID, first.Next)
	s.ok("periodic", "runs", "n", "--limit", "2", "--after", first.Next, "-o", "json").json(&last)
	require.Len(t, last.Runs, 1)
	require.Empty(t, last.Next)
}
