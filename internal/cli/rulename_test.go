package cli

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// What a hint says can be pasted, also where another tenant, or none, has a rule of that name.
func TestHintsNameTheRuleWithItsTenant(t *testing.T) {
	s := newSession(t)
	const rule = "name: %s\ncron: '@hourly'\ntype: t\nlog: none\n"
	s.ok("periodic", "apply", "-f", s.file(strings.Replace(rule, "%s", "t 1", 1)))
	r := s.ok("periodic", "apply", "-f", s.file("tenant: acme\n"+strings.Replace(rule, "%s", "t 1", 1)))
	require.Contains(t, r.stdout, "mscheduler periodic enable 't 1' --tenant acme\n")
	s.ok("periodic", "enable", "t 1", "--tenant", "acme")
	out := s.ok("periodic", "backfill", "acme/t 1", "--from", "2026-01-01", "--to", "2026-01-01 03:00").stdout
	require.Contains(t, out, "mscheduler periodic runs 't 1' --tenant acme\n")
	require.Contains(t, s.ok("periodic", "runs", "acme/t 1").stderr, "mscheduler task list --type t --tenant acme\n")
	require.Regexp(t, `(?m)^state +enabled$`, s.ok("periodic", "show", "acme/t 1").stdout)
	require.Regexp(t, `(?m)^state +never enabled$`, s.ok("periodic", "show", "t 1").stdout)

	require.Equal(t, "n", ruleArgs("", "n"))
	require.Equal(t, "--tenant acme -- -n", ruleArgs("acme", "-n"))
	r = s.ok("periodic", "apply", "-f", s.file(strings.Replace(rule, "%s", "-n", 1)))
	require.Contains(t, r.stdout, "mscheduler periodic enable -- -n\n")
	require.Contains(t, s.ok("periodic", "enable", "--", "-n").stdout, "-n  enabled")
}

func TestANameAsListPrintsItNamesTheRuleUnlessTwoHaveIt(t *testing.T) {
	s := newSession(t)
	const rule = "cron: '@hourly'\ntype: t\n"
	s.ok("periodic", "apply", "-f", s.file("name: a/b\ntenant: acme\n"+rule))
	require.Contains(t, s.ok("periodic", "list").stdout, "acme/a/b ")
	for _, args := range [][]string{{"acme/a/b"}, {"a/b", "--tenant", "acme"}, {"acme/a/b", "--tenant", "acme"}} {
		require.Contains(t, s.ok(append([]string{"periodic", "enable"}, args...)...).stdout, "acme/a/b  enabled")
	}
	s.fails(ExitNotFound, []string{"no such periodic rule"}, "periodic", "enable", "acme/a/b", "--tenant", "other")
	s.fails(ExitNotFound, []string{"no such periodic rule", "tenant/name"}, "periodic", "enable", "a/b")
	s.ok("periodic", "apply", "-f", s.file("name: acme/a/b\n"+rule))
	r := s.fails(ExitUsage, []string{"names two rules", "of the tenant acme", "use the rule's id"}, "periodic", "delete", "acme/a/b", "--yes")
	ids := regexp.MustCompile(`[0-9A-Za-z]{26}`).FindAllString(r.stderr, -1)
	require.Len(t, ids, 2)
	for _, id := range ids {
		require.Contains(t, s.ok("periodic", "disable", id).stdout, "acme/a/b  disabled\n")
	}
}

func TestARuleNameThatATerminalTakesForMoreIsRefusedAndNeverPrintedRaw(t *testing.T) {
	s := newSession(t)
	for _, name := range []string{`a\nb`, `\e[31mred`, `a\u202Eb`, `a\u2028b`, `\u009b2J`} {
		r := s.fails(ExitUsage, []string{"name is ", "control characters"}, "periodic", "apply", "-f", s.file("name: \""+name+"\"\ncron: '@daily'\ntype: t\n"))
		require.NotRegexp(t, `[\x00-\x09\x0b-\x1f]|\x{202e}|\x{2028}|\x{9b}`, r.stderr, name)
	}
	s.ok("periodic", "apply", "-f", s.file("name: \"\u591c\u6279 \u2013 \u0646\u0647\u0627\u06cc\u06cc \\U0001F319\"\ncron: '@daily'\ntype: t\n"))
	s.ok("periodic", "apply", "-f", s.file("name: old\ncron: '@daily'\ntype: t\n"))
	// One that an earlier release took.
	s.setRule("old", bson.D{{Key: "name", Value: "\x1b[2Jold"}, {Key: "living", Value: "-/\x1b[2Jold"}})
	require.Contains(t, s.ok("periodic", "list").stdout, `"\x1b[2Jold"`)
	require.Regexp(t, `(?m)^name +\\x1b\[2Jold$`, s.ok("periodic", "show", "\x1b[2Jold").stdout)
}

// setRule writes fields of a rule past all checks.
func (s *session) setRule(name string, set bson.D) {
	s.t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(s.uri))
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, client.Disconnect(context.Background())) }()
	done, err := client.Database(s.database).Collection("periodic_rules").UpdateOne(s.t.Context(), bson.D{{Key: "name", Value: name}}, bson.D{{Key: "$set", Value: set}})
	require.NoError(s.t, err)
	require.EqualValues(s.t, 1, done.ModifiedCount)
}
