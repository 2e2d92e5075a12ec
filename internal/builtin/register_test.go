package builtin

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/producer"
)

func TestBuiltinTypesRunTasks(t *testing.T) {
	t.Parallel()
	db := testdb.New(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(t.Context())) }()
	c, err := consumer.New(consumer.Config{Database: db, WorkerID: "w"})
	require.NoError(t, err)
	require.NoError(t, Register(c, Options{Exec: &ExecOptions{Env: []string{"PATH=/usr/bin:/bin"}}}))

	var calls atomic.Int64
	url := target(t, func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "w", r.Header.Get("Mscheduler-Worker-Id"))
		if calls.Add(1) == 1 {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	ok, err := producer.Send(t.Context(), p, HTTP, HTTPArgs{URL: url})
	require.NoError(t, err)
	bad, err := p.SendJSON(t.Context(), "http", json.RawMessage(`{"url":5}`))
	require.NoError(t, err)
	echo, err := producer.Send(t.Context(), p, Exec, ExecArgs{Argv: []string{"echo", "hi"}})
	require.NoError(t, err)
	mstest.Drain(t, c, mstest.SkipTime())

	r, err := producer.Await(t.Context(), p, HTTP, ok)
	require.NoError(t, err, "the Retry-After is a delay like any other")
	require.Equal(t, 200, r.Status)
	require.EqualValues(t, 2, calls.Load())

	_, err = producer.Await(t.Context(), p, HTTP, bad)
	var failed *model.TaskError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, model.StatusFailure, failed.Status)
	require.Equal(t, "args.url is a JSON number; want a string", failed.Info, "fatal at the first attempt, not undecodable")
	task, err := p.Get(t.Context(), bad.ID)
	require.NoError(t, err)
	require.Equal(t, 1, task.Attempt)

	e, err := producer.Await(t.Context(), p, Exec, echo)
	require.NoError(t, err)
	require.Equal(t, "hi\n", e.Output)
}

func TestExecIsOffUnlessAllowed(t *testing.T) {
	db := testdb.New(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(t.Context())) }()
	c, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, Register(c, Options{}))
	sent, err := producer.Send(t.Context(), p, Exec, ExecArgs{Argv: []string{"true"}})
	require.NoError(t, err)
	mstest.Drain(t, c)
	task, err := p.Get(t.Context(), sent.ID)
	require.NoError(t, err)
	require.Equal(t, model.StatusNew, task.Status)
}
