package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// age makes all that has ended as old as if it had ended a month ago.
func (s *session) age() {
	s.t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(s.uri))
	require.NoError(s.t, err)
	long := time.Now().Add(-30 * 24 * time.Hour)
	_, err = client.Database(s.database).Collection("tasks").UpdateMany(s.t.Context(), bson.M{"archive_at": bson.M{"$exists": true}},
		bson.M{"$set": bson.M{"archive_at": long, "finished_at": long}})
	require.NoError(s.t, err)
	require.NoError(s.t, client.Disconnect(s.t.Context()))
}

type listed struct {
	Tasks []struct {
		ID         string
		Generation int64
		Status     string
	}
	Next string
}

func TestWhatEndedIsArchivedAndStillFound(t *testing.T) {
	s := newSession(t)
	for i := range 3 {
		s.ok("send", "t", "--key", fmt.Sprint("k", i), "--creator", "ann")
	}
	s.ok("send", "t", "--key", "stays")
	require.Equal(t, "0 tasks moved to the history\n", s.ok("archive", "run").stdout)
	s.ok("task", "cancel", "t/k0", "t/k1", "t/k2", "--remark", "not needed")
	require.Equal(t, "0 tasks moved to the history\n", s.ok("archive", "run").stdout, "they stay for their retention")
	s.age()
	require.Equal(t, "3 tasks moved to the history\n", s.ok("archive", "run").stdout)
	s.ok("send", "t", "--key", "k0") // its key is free

	var list listed
	s.ok("task", "list", "-o", "json").json(&list)
	require.Len(t, list.Tasks, 2)
	list = listed{}
	s.ok("task", "list", "--history", "--creator", "ann", "-o", "json").json(&list)
	require.Len(t, list.Tasks, 3)
	require.Equal(t, "-/t/k0", list.Tasks[0].ID)
	life := fmt.Sprint("t/k0@", list.Tasks[0].Generation)
	list = listed{}
	for count, args := range map[string][]string{"2": nil, "3": {"--history", "--creator", "ann"}, "1": {"--history=only", "--key", "k1"}} {
		require.Equal(t, count+"\n", s.ok(append([]string{"task", "count"}, args...)...).stdout, args)
	}
	require.JSONEq(t, `{"count": 5}`, s.ok("task", "count", "--history", "-o", "json").stdout)
	s.fails(ExitUsage, []string{"--history is \"yes\""}, "task", "count", "--history=yes")
	s.fails(ExitUsage, []string{"--status is \"done\""}, "task", "count", "--status", "done")
	s.ok("task", "list", "--history=only", "--limit", "2", "-o", "json").json(&list)
	require.Len(t, list.Tasks, 2)
	r := s.ok("task", "list", "--history=only", "--after", list.Next)
	require.Contains(t, r.stdout, "t/k2@")
	require.Equal(t, 2, strings.Count(r.stdout, "\n"), "headings and the last")
	r = s.ok("task", "list", "--history")
	require.Regexp(t, `(?m)^TASK +STATUS +PRI +TRIES +CREATED +ARCHIVED +WHAT$`, r.stdout)
	require.Regexp(t, `(?m)^`+life+` +Cancelled .* not needed$`, r.stdout)
	require.Regexp(t, `(?m)^t/k0 +New `, r.stdout)

	shown := s.ok("task", "show", life).stdout
	require.Regexp(t, `(?m)^archived +.*: this life is in the history$`, shown)
	require.Regexp(t, `(?m)^deleted +.*\(in 89d 23h\)$|^deleted +.*\(in 90d`, shown)
	require.Contains(t, s.ok("task", "show", "t/k1").stdout, "Cancelled", "gone, so it is the last life")
	require.Contains(t, s.ok("task", "explain", "t/k1").stdout, "It moved to the history at ")
	require.Contains(t, s.fails(ExitFailed, nil, "task", "wait", "t/k1").stdout, "Cancelled")
	s.fails(ExitNotFound, []string{"it ended as Cancelled and moved to the history at"}, "task", "retry", "t/k1")

	r = s.ok("task", "history", "t/k0")
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	require.Len(t, lines, 3)
	require.Regexp(t, `^t/k0@\d+ +New `, lines[1])
	require.Regexp(t, `^`+life+` +Cancelled `, lines[2])
	var lives struct{ Lives []struct{ Status string } }
	s.ok("task", "history", "t/k0", "-o", "json").json(&lives)
	require.Len(t, lives.Lives, 2)
	s.fails(ExitNotFound, []string{"no such task: t/none"}, "task", "history", "t/none")
	s.fails(ExitNotFound, []string{"no such task"}, "task", "show", "t/k0@17")
}

// docs/operations.md, Delete data.
func TestATaskIsDeletedByAShortRetentionAndFromTheHistory(t *testing.T) {
	s := newSession(t)
	s.ok("send", "mail.send", "--key", "ann")
	s.ok("send", "mail.send", "--key", "bob")
	s.ok("task", "update", "mail.send/ann", "--retention", "1m")
	s.ok("task", "cancel", "mail.send/ann", "mail.send/bob")
	require.Regexp(t, `(?m)^kept until +.* \(in (1m|\d+s)\)$`, s.ok("task", "show", "mail.send/ann").stdout)
	s.age()
	s.ok("archive", "run")
	_, err := database(t, s).Collection("task_history").DeleteMany(t.Context(), bson.M{"task_id": "-/mail.send/ann"})
	require.NoError(t, err)
	s.fails(ExitNotFound, []string{"no such task: mail.send/ann"}, "task", "show", "mail.send/ann")
	require.Contains(t, s.ok("task", "list", "--history").stdout, "mail.send/bob@")
	require.Equal(t, "mail.send/ann  New\n", s.ok("send", "mail.send", "--key", "ann").stdout)
}

func TestAllListsWhatNeedsManyPages(t *testing.T) {
	s := newSession(t)
	const n = 2*allPage + 3
	s.stdin = strings.Repeat("{\"held\":true}\n", n)
	s.ok("send", "t", "-f", "-")
	var list listed
	s.ok("task", "list", "--all", "-o", "json").json(&list)
	require.Len(t, list.Tasks, n)
	require.Empty(t, list.Next)
	r := s.ok("task", "list", "--all")
	require.Equal(t, n+1, strings.Count(r.stdout, "\n"))
	require.Equal(t, 1, strings.Count(r.stdout, "STATUS"), "one heading")
	list = listed{}
	s.ok("task", "list", "--all", "--type", "none", "-o", "json").json(&list)
	require.NotNil(t, list.Tasks)
	require.Empty(t, list.Tasks)
	require.Equal(t, "---\ntasks: []\n", s.ok("task", "list", "--type", "none", "-o", "yaml").stdout)
	r = s.ok("task", "list", "--limit", "1", "-o", "yaml")
	require.Regexp(t, `(?s)^---\ntasks:\n  - id: -/t/.*\nnext: -/t/`, r.stdout)
	s.fails(ExitUsage, []string{"--limit and --all"}, "task", "list", "--all", "--limit", "5")
}

func TestHowLongTheHistoryIsKept(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	require.Equal(t, "the history is kept for 90d\n", s.ok("archive", "retention").stdout)
	require.Equal(t, "the history is kept forever\n", s.ok("archive", "retention", "forever").stdout)
	require.Equal(t, "the history is kept forever\n", s.ok("archive", "retention").stdout)
	require.Equal(t, "the history is kept for 30d\n", s.ok("archive", "retention", "30d").stdout)
	require.JSONEq(t, `{"retention_ms":2592000000}`, s.ok("archive", "retention", "-o", "json").stdout)
	for _, bad := range []string{"0", "soon", "1s"} {
		s.fails(ExitUsage, []string{"retention is"}, "archive", "retention", bad)
	}
	require.Equal(t, "the history is kept for 30d\n", s.ok("archive", "retention").stdout)
	s.fails(ExitUsage, []string{`--history is "maybe"`}, "task", "list", "--history=maybe")
}
