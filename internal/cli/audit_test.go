package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// reading are the commands that change nothing in the database, or that run a process.
var reading = []string{
	"audit list", "bench", "bench compare", "bench scale", "bench worker", "bulk list", "bulk show", "db status", "demo", "dev", "doctor", "embedded", "embedded compact", "embedded validate",
	"flow explain", "flow lines", "flow list", "flow show", "flow validate", "flow watch", "health", "periodic list", "periodic preview", "periodic run", "periodic runs", "periodic show",
	"plan list", "plan preview", "plan results", "plan show", "plan watch", "serve", "stats", "task count", "task explain", "task history", "task list", "task show", "task wait", "task watch", "token list",
	"type list", "type show", "version", "work", "worker list", "worker show",
}

// A new command says whether it changes something: by a line in changes, or in reading.
func TestEveryCommandIsInTheAuditOrChangesNothing(t *testing.T) {
	a := &app{Process: newSession(t).process(nil, &lockedBuffer{}, &lockedBuffer{})}
	var known []string
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		path := commandPath(c)
		for _, sub := range c.Commands() {
			look(sub)
		}
		if c.HasSubCommands() && path != "bench" && path != "embedded" || c.Name() == "help" || c.Parent() != nil && c.Parent().Name() == "completion" || path == "" {
			return
		}
		_, changes := changes[path]
		require.NotEqual(t, changes, slices.Contains(reading, path), "%q", path)
		known = append(known, path)
	}
	look(a.root())
	for path := range changes {
		require.Contains(t, known, path)
	}
}

type auditEntry struct {
	Who, From, Door, Operation, Kind, Resource, Tenant, Outcome, Reason string
	Status                                                              int
	Count                                                               int64
	Request, Before, After                                              map[string]any
}

// audit lists entries, the newest first.
func (s *session) audit(args ...string) (entries []auditEntry) {
	s.t.Helper()
	var out struct{ Entries []auditEntry }
	require.NoError(s.t, json.Unmarshal([]byte(s.ok(append([]string{"audit", "list", "-o", "json"}, args...)...).stdout), &out))
	return out.Entries
}

func TestCommandsLeaveEntriesInTheAudit(t *testing.T) {
	s := newSession(t)
	s.ok("send", "mail", "--key", "k", "--in", "1h", "--args", `{"password": "hunter2"}`)
	sent := s.audit()[0]
	require.Equal(t, []string{"cli", "send", "task", "-/mail/k", "-", "ok"}, []string{sent.Door, sent.Operation, sent.Kind, sent.Resource, sent.Tenant, sent.Outcome})
	require.Equal(t, "os/"+whoami(), sent.Who)
	require.Contains(t, sent.From, "process")
	require.Equal(t, "(given)", sent.Request["--args"])
	require.Equal(t, "1h", sent.Request["--in"])
	require.Contains(t, sent.After["args"], "bytes)", "payloads are in the task")
	require.Equal(t, []any{"mail"}, sent.Request["arguments"])

	s.ok("task", "update", "mail/k", "--priority", "9")
	updated := s.audit("--operation", "task update")[0]
	require.EqualValues(t, 9, updated.After["priority"])
	require.Contains(t, updated.Before, "rev")
	require.NotContains(t, updated.Before, "args")
	require.Equal(t, map[string]any{"--priority": "9", "arguments": []any{"-/mail/k"}}, updated.Request)

	s.ok("task", "update", "mail/k", "--args", `{"password": "hunter3"}`)
	require.Contains(t, s.audit("--operation", "task update")[0].After["args"], "bytes)", "payloads are in the task")
	require.NotContains(t, s.ok("audit", "list", "-o", "json").stdout, "hunter")

	s.fails(ExitRefused, nil, "task", "resolve", "mail/k")
	refused := s.audit("--outcome", "refused")
	require.Len(t, refused, 1)
	require.Equal(t, ExitRefused, refused[0].Status)
	require.Contains(t, refused[0].Reason, "resolve")

	s.ok("send", "mail", "--key", "l", "--in", "1h")
	s.ok("task", "cancel", "mail/k", "mail/l")
	require.Len(t, s.audit("--operation", "task cancel"), 2)
	require.Equal(t, "Cancelled", s.audit("--resource", "-/mail/l")[0].After["status"])
	s.ok("task", "retry", "--status", "Cancelled", "--yes")
	retried := s.audit("--operation", "task retry")
	require.Len(t, retried, 1)
	require.EqualValues(t, 2, retried[0].Count)

	s.ok("pause", "mail")
	paused := s.audit("--kind", "type")[0]
	require.Equal(t, []any{false, true}, []any{paused.Before["paused"], paused.After["paused"]})
	s.ok("pause", "--all")
	require.Equal(t, true, s.audit("--kind", "pauses")[0].After["all"])

	file := s.file("code: a\nmax_running: 3\n---\ncode: b\nmax_running: 4\n")
	s.ok("type", "apply", "-f", file, "--dry-run")
	require.Empty(t, s.audit("--operation", "type apply"))
	s.ok("type", "apply", "-f", file)
	applied := s.audit("--operation", "type apply")
	require.Len(t, applied, 3)
	require.EqualValues(t, 2, applied[2].Count)
	require.EqualValues(t, 4, s.audit("--resource", "b")[0].After["max_running"])

	s.ok("send", "sms", "--key", "a", "--specific-worker-ids", "w1,w2", "--specific-worker-ids", "w3", "--held")
	require.Equal(t, "w1,w2,w3", s.audit("--operation", "send")[0].Request["--specific-worker-ids"])
	s.ok("task", "release", "sms/a")
	s.fails(ExitNotFound, nil, "task", "release", "sms/a", "mail/none")
	released := s.audit("--resource", "-/sms/a")[0]
	require.Equal(t, []string{"ok", ""}, []string{released.Outcome, released.Reason}, "the other one was refused")
	require.Contains(t, s.audit("--resource", "-/mail/none")[0].Reason, "no such task")
	require.Contains(t, s.ok("audit", "list", "--resource", "mail/none").stderr, "--resource -/mail/none", "a task is named without -/ elsewhere")
	require.NotContains(t, s.ok("audit", "list", "--resource", "-/mail/nobody").stderr, "--resource")

	before := len(s.audit())
	s.ok("task", "list")
	s.ok("archive", "retention")
	require.Len(t, s.audit(), before)
}

func TestEachOfManyThingsThatACommandNamesHasAnEntryInTheAudit(t *testing.T) {
	s := newSession(t)
	s.ok("send", "mail", "--key", "last", "--held")
	ids := []string{"task", "cancel"}
	for i := range maxThings + 20 {
		ids = append(ids, fmt.Sprint("mail/", i))
	}
	s.fails(ExitNotFound, nil, append(ids, "mail/last")...)
	entries := s.audit("--operation", "task cancel", "--limit", "1000")
	require.Len(t, entries, maxThings+21)
	last := s.audit("--resource", "-/mail/last")[0]
	require.Equal(t, []string{"task cancel", "ok", ""}, []string{last.Operation, last.Outcome, last.Reason})
	none := s.audit("--resource", fmt.Sprint("-/mail/", maxThings+10))[0]
	require.Equal(t, []string{"refused", "-"}, []string{none.Outcome, none.Tenant})
	require.Contains(t, none.Reason, "no such task")
}

// Ids of jobs, rules and runs do not tell their tenant.
func TestTheAuditNamesTheTenantOfWhatAnIdNames(t *testing.T) {
	s := newSession(t)
	s.ok("send", "mail", "--key", "k", "--tenant", "acme", "--held")
	job := strings.TrimSpace(s.ok("task", "cancel", "--tenant", "acme", "--yes", "--background").stdout)
	s.ok("periodic", "apply", "-f", s.file("name: n\ntenant: acme\ncron: '@yearly'\ntype: t\n---\nname: a/b\ncron: '@yearly'\ntype: t\n"))
	var rule struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(s.ok("periodic", "show", "acme/n", "-o", "json").stdout), &rule))
	s.ok("periodic", "disable", rule.ID)
	s.ok("periodic", "disable", "a/b")
	run := strings.Fields(s.ok("periodic", "trigger", "acme/n").stdout)[0]
	s.ok("periodic", "cancel", run)
	var seen []string
	for _, e := range s.audit() {
		if e.Operation != "send" && e.Operation != "periodic apply" {
			seen = append(seen, strings.Join([]string{e.Operation, e.Kind, e.Tenant, e.Resource}, " "))
		}
	}
	require.Equal(t, []string{
		"periodic cancel run acme acme/" + run, "periodic trigger periodic acme acme/n", "periodic disable periodic - -/a/b", "periodic disable periodic acme acme/n",
		"task cancel bulk acme " + job,
	}, seen)
	require.Len(t, s.audit("--tenant", "acme"), 6)

	shared := strings.TrimSpace(s.ok("task", "cancel", "--type", "mail", "--yes", "--background").stdout)
	s.ok("bulk", "stop", shared)
	for _, e := range s.audit("--resource", "-/"+shared) {
		require.Empty(t, e.Tenant, "%s: the job goes over all tenants", e.Operation)
	}
	require.Len(t, s.audit("--resource", "-/"+shared), 2)
}

func TestTheAuditOfTokensHasNoSecret(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	text := s.ok("token", "create", "ci", "--role", "viewer").stdout
	created := s.audit()[0]
	require.Equal(t, []string{"token create", "token"}, []string{created.Operation, created.Kind})
	require.Equal(t, "viewer", created.After["role"])
	s.ok("token", "revoke", text[:len(text)-1])
	all := s.ok("audit", "list", "-o", "json").stdout
	require.NotContains(t, all, text[len("msk_0123456789abcdef_"):len(text)-1])
	require.NotContains(t, all, "hash")
	require.Equal(t, "revoked", s.audit("--resource", created.Resource)[0].After["state"])
	require.Equal(t, "db migrate", s.audit()[2].Operation)
}

func TestTheAuditIsKeptAsLongAsItIsSaid(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	require.Equal(t, "the audit is kept for 90d\n", s.ok("audit", "retention").stdout)
	require.Equal(t, "the audit is kept for 30d\n", s.ok("audit", "retention", "30d").stdout)
	require.Equal(t, "the audit is kept for 30d\n", s.ok("audit", "retention").stdout)
	s.fails(ExitUsage, []string{"want a minute to 100 years"}, "audit", "retention", "1s")
	s.fails(ExitUsage, []string{`--outcome is "maybe"`}, "audit", "list", "--outcome", "maybe")
	s.fails(ExitUsage, []string{`--kind is "tasks"; want one of task, type, `, "worker"}, "audit", "list", "--kind", "tasks")
	require.Contains(t, s.ok("audit", "list", "--help").stdout, "bulk, worker, pauses, token")
	s.fails(ExitUsage, []string{"--limit is 0"}, "audit", "list", "--limit", "0")
	require.Contains(t, s.ok("audit", "list").stdout, "audit retention")
	require.Contains(t, s.ok("audit", "list", "--limit", "1").stderr, "for the next page: --after ")
}

// The entry of a send is about the send, whatever becomes of the task that the command waits for.
func TestASendThatIsInterruptedWhileItWaitsHasSucceeded(t *testing.T) {
	s := newSession(t)
	_, _, stop := s.start("send", "mail", "--key", "w1", "--wait")
	s.eventually("the end of the send", func() bool {
		r := s.run("audit", "list", "--operation", "send", "--outcome", "ok", "-o", "json")
		return r.code == ExitOK && strings.Contains(r.stdout, "-/mail/w1")
	})
	r := stop()
	require.Equal(t, ExitInterrupted, r.code)
	require.True(t, strings.HasSuffix(r.stderr, "mscheduler: interrupted; the task goes on: mscheduler task wait 'mail/w1'\n"), r.stderr)
	require.Len(t, s.audit("--operation", "send"), 1)
}

func TestAnOperationThatNoEntryHasIsNamed(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	require.Contains(t, s.ok("audit", "list", "--operation", "task cancle").stderr, `no entries; --operation is "task cancle", which is no command`)
	require.Equal(t, "no entries\n", s.ok("audit", "list", "--operation", "task cancel").stderr)
}
