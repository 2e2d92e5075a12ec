package consumer

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

func TestAWorkerWithBadCallbackSettingsIsRefused(t *testing.T) {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Disconnect(t.Context())) }()
	for field, cfg := range map[string]CallbackConfig{
		"callbacks.secret_key": {SecretKey: "letmein"}, "callbacks.concurrency": {Concurrency: -1}, "callbacks.timeout": {Timeout: -1},
		"callbacks.allow": {Allow: []string{"http://h"}},
	} {
		_, err := New(Config{Database: client.Database("x"), Callbacks: &cfg})
		require.ErrorIs(t, err, model.ErrInvalid, field)
		require.ErrorContains(t, err, field)
		require.NotContains(t, err.Error(), "letmein")
	}
	c, err := New(Config{Database: client.Database("x"), Callbacks: &CallbackConfig{}})
	require.NoError(t, err)
	require.Equal(t, []string{input.CallbackType}, c.types(), "it may deliver and do nothing else")
	require.NoError(t, input.SharedOptions(&deliveryDefaults, "defaults"))
}

func TestAHandlerOfDeliveriesHasNoCallback(t *testing.T) {
	_, err := (&Consumer{}).newHandler(input.CallbackType, nil, Defaults(model.Options{Callback: &model.Callback{Error: &model.CallbackTarget{URL: "http://h"}}}))
	require.ErrorIs(t, err, model.ErrInvalid)
	require.ErrorContains(t, err, "the delivery of a callback has no callback")
}

func TestWhatADeliverySaysBecomesWhatItsTaskDoes(t *testing.T) {
	now, plain := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), errors.New("no")
	for _, c := range []struct {
		err  error
		kind string
	}{
		{plain, failkind.Error},
		{&httpcall.VerdictError{Err: plain}, failkind.Error},
		{&httpcall.VerdictError{Err: plain, Fatal: true}, failkind.Fatal},
		{&httpcall.VerdictError{Err: plain, Later: true, RetryAfter: time.Hour}, failkind.Error},
		{&httpcall.VerdictError{Err: plain, Busy: true, RetryAfter: time.Minute}, failkind.Released},
		{&httpcall.VerdictError{Err: plain, NotHere: true}, failkind.Undecodable},
	} {
		out := judge(&model.Task{UndecodableSince: now.Add(-2 * time.Hour)}, lifecycle.Outcome{}.Result, deliveryError(c.err), nil, time.Hour, now)
		require.Equal(t, c.kind, out.Kind, "%+v: a delivery waits for its key longer than arguments do", c.err)
		if c.kind == failkind.Released {
			require.Equal(t, lifecycle.Failed(failkind.Released, "no").After(time.Minute), out, "it waits for its turn, and says why")
		}
	}
}

// A receiver that asks for a retry in a second, at each attempt, gets as many days as any other.
func TestAShortRetryAfterDoesNotUseUpTheRetriesOfADelivery(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	deliver := func(after time.Duration) time.Duration {
		eff := lifecycle.ResolveOptions(deliveryDefaults)
		task := lifecycle.NewTask(lifecycle.Draft{Type: input.CallbackType, Key: "k"}, now)
		for !task.Status.Ended() {
			at, exec := task.DueAt, strconv.Itoa(task.ErrorCount)
			claimed, no := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: "w", ExecID: exec}, eff, at)
			require.Empty(t, no)
			err := heeded(deliveryError(&httpcall.VerdictError{Err: errors.New("busy"), Later: true, RetryAfter: after}))
			out := judge(claimed, lifecycle.Outcome{}.Result, err, nil, time.Hour, at)
			task, err = lifecycle.Finish(claimed, exec, out, eff, at, 0)
			require.NoError(t, err)
		}
		require.Equal(t, 11, task.ErrorCount)
		return task.FinishedAt.Sub(now)
	}
	days := deliver(0)
	require.Greater(t, days, 3*24*time.Hour)
	require.Equal(t, days, deliver(time.Second))
	require.Greater(t, deliver(24*time.Hour), 9*24*time.Hour, "and a long one is honoured")
}
