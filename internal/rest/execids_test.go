package rest_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Who knows the exec_id can make the token of a completion, which needs no other right.
func TestNoAnswerHasTheIDThatACompletionIsMadeOf(t *testing.T) {
	t.Parallel()
	w := guarded(t)
	w.with(access.Operator).ok("POST", "/api/v1/tasks", `{"type": "sms"}`) // makes the collections
	exec := claim.NewExecID()
	claimed := func(typ, key string) *model.Task {
		args, err := codec.EncodeJSON("args", []byte(`{"url": "http://h", "mode": "ASYNC"}`), 1<<10)
		require.NoError(t, err)
		task := lifecycle.NewTask(lifecycle.Draft{Type: typ, Key: key, Args: args}, time.Now())
		task, no := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: "w", ExecID: exec}, lifecycle.EffectiveOf(task, model.Options{}), task.DueAt)
		require.Empty(t, no)
		return task
	}
	run, other, mail := claimed(httptarget.TaskType, "k"), claimed(httptarget.TaskType, "other"), claimed("mail", "k") // of one batch
	done, err := lifecycle.Finish(mail, exec, lifecycle.Outcome{}, lifecycle.EffectiveOf(mail, model.Options{}), time.Now(), 0)
	require.NoError(t, err)
	for _, task := range []*model.Task{run, other, done} {
		_, err := w.db.Collection("tasks").InsertOne(t.Context(), bson.Raw(codec.AppendTask(nil, task)))
		require.NoError(t, err)
	}

	viewer := w.with(access.Viewer)
	for _, op := range w.operations() {
		if op.method != "GET" || op.ID == "watch-events" {
			continue
		}
		require.NotContains(t, viewer.do("GET", op.of("-"), "").text, exec, op.ID)
	}
	shown := at(viewer.ok("GET", "/api/v1/tasks/-/mscheduler.http/k", ""), "worker_states.0.exec_id")
	require.Equal(t, input.ShownExecID(exec), shown)
	require.Equal(t, shown, at(viewer.ok("GET", "/api/v1/tasks/-/mail/k", ""), "worker_states.0.exec_id"), "the end does not show it: the run may have the same")

	made := func(execID string) string { return "/api/v1/callbacks/" + input.HandleOf(run, execID).String() }
	require.Equal(t, http.StatusGone, viewer.do("POST", made(shown.(string)), "").status)
	raw, err := base64.RawURLEncoding.DecodeString(input.HandleOf(run, exec).String())
	require.NoError(t, err)
	of := func(id string, generation int64) string { return fmt.Sprintf("%s@%d@", id, generation) }
	forged := strings.Replace(string(raw), of(run.ID, run.Generation), of(other.ID, other.Generation), 1)
	require.NotEqual(t, string(raw), forged)
	require.Equal(t, http.StatusGone, w.do("POST", "/api/v1/callbacks/"+base64.RawURLEncoding.EncodeToString([]byte(forged)), "").status, "the target of one run completes no other of the batch")
	require.Equal(t, http.StatusOK, w.do("POST", made(exec), "").status, "the token that the target got is good")
}

func TestEventsHaveNoIDThatACompletionIsMadeOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	events := w.watch("?kind=claimed", "")
	w.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k"}`)
	w.ok("POST", "/api/v1/pull/fetch", `{"worker_id": "py-1", "types": ["mail"]}`)
	var stored struct {
		Executions []struct {
			ID string `bson:"exec_id"`
		} `bson:"worker_states"`
	}
	require.NoError(t, w.db.Collection("tasks").FindOne(t.Context(), bson.D{{Key: "_id", Value: "-/mail/k"}}).Decode(&stored))
	require.Equal(t, input.ShownExecID(stored.Executions[0].ID), events.next().data["exec_id"])
}
