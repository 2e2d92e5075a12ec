package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/model"
)

// watch starts `task watch` and returns once it listens.
func (s *session) watch(args ...string) (out *lockedBuffer, stop func() result) {
	s.t.Helper()
	out, errs, stop := s.start(append([]string{"task", "watch"}, args...)...)
	s.eventually("it watches", func() bool { return strings.Contains(errs.String(), "watching") })
	return out, stop
}

func TestTaskWatchPrintsWhatHappens(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	people, stopPeople := s.watch("--type", "mail")
	programs, stopPrograms := s.watch("--tenant", "acme", "--kind", "sent,Ended", "-o", "json")
	s.ok("send", "mail", "--key", "k", "--tenant", "acme")
	s.ok("send", "other", "--key", "k")
	s.ok("task", "cancel", "acme/mail/k", "--remark", "not needed")
	s.eventually("both were told", func() bool {
		return strings.Contains(people.String(), "ended") && strings.Contains(programs.String(), "ended")
	})
	stopped := stopPeople()
	require.Equal(t, ExitOK, stopped.code)
	require.Regexp(t, `(?m)^\S+Z  sent        acme/mail/k  New$`, stopped.stdout)
	require.Regexp(t, `(?m)^\S+Z  ended       acme/mail/k  Cancelled  not needed$`, stopped.stdout)
	require.NotContains(t, stopped.stdout, "other")
	require.Regexp(t, `to continue: --after \S+`, stopped.stderr)

	var told []model.TaskEvent
	for line := range strings.Lines(stopPrograms().stdout) {
		var e model.TaskEvent
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		told = append(told, e)
	}
	require.Len(t, told, 2)
	require.Equal(t, model.EventSent, told[0].Kind)
	require.Equal(t, model.StatusCancelled, told[1].Status)

	later, stop := s.watch("--after", told[0].Token, "-o", "json")
	s.eventually("the end is told again", func() bool { return strings.Contains(later.String(), "Cancelled") })
	require.NotContains(t, stop().stdout, `"kind":"sent","task_id":"acme/mail/k"`)
}

func TestTaskWatchSaysWhatIsWrong(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	s.fails(ExitUsage, []string{`has "pinged"`, "taken_over"}, "task", "watch", "--kind", "pinged")
	s.fails(ExitUsage, []string{"token is not valid; want the token of an event"}, "task", "watch", "--after", "x")
	_, first := s.watch("--type", "mail")
	_, second := s.watch("--type", "mail")
	s.fails(ExitRefused, []string{"other subscriptions hold all seats", "task wait"}, "task", "watch", "--type", "mail")
	require.Equal(t, ExitOK, first().code)
	require.Equal(t, ExitOK, second().code)
	_, third := s.watch("--type", "mail")
	require.Equal(t, ExitOK, third().code)
}
