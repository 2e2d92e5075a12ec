package lifecycle

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

func TestNoTenantAndTheTenantOfThatNameAreOne(t *testing.T) {
	a, b := NewTask(Draft{Type: "t", Key: "k"}, epoch), NewTask(Draft{Tenant: model.NoTenant, Type: "t", Key: "k"}, epoch)
	require.Equal(t, a, b)
}

func TestLongTextsAreCutAtARune(t *testing.T) {
	require.Equal(t, "ab", safetext.Clip("ab", 2))
	require.Equal(t, "a… (3 bytes more)", safetext.Clip("aéz", 2))
	require.Equal(t, "a\uFFFD", safetext.Clip("a\xff", 10), "BSON strings are UTF-8")
	task := NewTask(Draft{Type: "t", Key: "k"}, epoch)
	task, _ = Claim(task, Claimant{WorkerID: "w", ExecID: "e"}, ResolveOptions(), epoch)
	task, err := Finish(task, "e", Failed(failkind.Error, strings.Repeat("x", 1<<20)), ResolveOptions(), epoch, 0)
	require.NoError(t, err)
	require.Less(t, len(task.ErrorInfo)+len(task.WorkerStates[0].FailReason), 2*maxReasonBytes+100)
}

func TestErrorsReadAsSentences(t *testing.T) {
	require.EqualError(t, &model.TaskError{ID: "i", Status: model.StatusFailure, Info: "boom"}, "task i ended as Failure: boom")
	require.EqualError(t, &model.TaskError{ID: "i", Status: model.StatusCancelled}, "task i ended as Cancelled")
	require.PanicsWithValue(t, `model.NewType: type is "a/b"; want 1 to 100 of a-z A-Z 0-9 . _ -`, func() { model.NewType[model.None, model.None]("a/b") })
	require.Equal(t, "a", model.NewType[model.None, model.None]("a").Name())
}

func TestStatusesOfALaterReleaseAreNotMine(t *testing.T) {
	require.False(t, Known(model.Status("Frozen")))
	require.False(t, model.Status("Frozen").Ended())
	for _, s := range Statuses {
		require.True(t, Known(s))
		require.Equal(t, Archivable(s), s.Ended() && s != model.StatusPending)
		if s.Succeeded() {
			require.True(t, s.Ended())
		}
	}
}
