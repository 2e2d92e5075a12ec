package lifecycle

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

func told(url string) *model.Callback {
	return &model.Callback{Success: &model.CallbackTarget{URL: url}, Error: &model.CallbackTarget{URL: url + "/error"}}
}

func TestWhoIsToldIsWhatTheTaskSaysThenItsTypeNowThenItsHandler(t *testing.T) {
	at := func(own, typ, applied *model.Callback, s model.Status) string {
		task := &model.Task{Status: s, Options: model.Options{Callback: own}}
		if applied != nil {
			task.Applied = &model.Options{Callback: applied}
		}
		target, _ := CallbackOf(task, model.Options{Callback: typ})
		if target == nil {
			return ""
		}
		return target.URL
	}
	own, typ, applied, before := told("own"), told("type"), told("applied"), told("the type's before")
	applied.OfHandler = true
	require.Equal(t, "own", at(own, typ, applied, model.StatusCompleted))
	require.Equal(t, "type", at(nil, typ, applied, model.StatusCompleted))
	require.Equal(t, "applied", at(nil, nil, applied, model.StatusCompleted))
	require.Empty(t, at(nil, nil, nil, model.StatusCompleted))
	require.Empty(t, at(nil, nil, before, model.StatusCompleted), "it was taken out of the type")
	require.Empty(t, at(nil, nil, before, model.StatusFailure))
	require.Empty(t, at(nil, &model.Callback{}, applied, model.StatusCompleted), "a type that says nobody is told")
	require.Empty(t, at(&model.Callback{}, typ, applied, model.StatusCompleted), "a task that says nobody is told")
	require.Equal(t, "own/error", at(own, typ, applied, model.StatusFailure))
	for _, s := range []model.Status{model.StatusCancelled, model.StatusPending, model.StatusManuallyProcessed, model.StatusExecuting, model.StatusError} {
		require.Empty(t, at(own, typ, applied, s), s)
	}
}

func TestARedeliveryIsRefusedWhereNothingIsToBeTold(t *testing.T) {
	for _, s := range Statuses {
		_, err := Redeliver(&model.Task{ID: "-/t/k", Status: s, Options: model.Options{Callback: told("u")}}, model.Options{})
		switch s {
		case model.StatusSuccess, model.StatusCompleted, model.StatusFailure:
			require.NoError(t, err, s)
		default:
			var refused *model.RefusedError
			require.ErrorAs(t, err, &refused, s)
		}
	}
	_, err := Redeliver(&model.Task{ID: "-/t/k", Status: model.StatusSuccess}, model.Options{})
	require.ErrorContains(t, err, "the task has no callback for this status")
}

func TestADeliveryIsNamedByItsLife(t *testing.T) {
	task := &model.Task{ID: "acme/t/a/b@1", Tenant: "acme", Type: "t", Key: "a/b@1", Generation: 7, Rev: 3}
	d := Delivery(task)
	require.NoError(t, d.Validate())
	require.Equal(t, DeliveryID(task), model.TaskID(d.Tenant, d.Type, d.Key))
	later := *task
	later.Rev = 9
	require.Equal(t, DeliveryID(task), DeliveryID(&later), "whatever was written since")
	later.Generation = 8
	require.NotEqual(t, DeliveryID(task), DeliveryID(&later))
	var args DeliveryArgs
	require.NoError(t, codec.DecodeValue(d.Args, &args))
	require.Equal(t, DeliveryArgs{TaskID: task.ID, Generation: 7}, args)
}

func TestTheBodyOfACallbackIsThatOfTheSeed(t *testing.T) {
	value := func(text string) bson.RawValue {
		v, err := codec.EncodeJSON("v", []byte(text), input.MaxResultBytes)
		require.NoError(t, err)
		return v
	}
	for _, c := range []struct {
		task model.Task
		want string
	}{
		{model.Task{Status: model.StatusCompleted}, `{"ext":null,"result":null}`},
		{model.Task{Status: model.StatusSuccess, Args: value(`{"a":[1,"ä"]}`), Result: value(`"done"`)}, `{"ext":{"a":[1,"ä"]},"result":"done"}`},
		{model.Task{ID: "-/t/\"k\"", Status: model.StatusFailure, Args: value(`1`), ErrorInfo: "line\nbreak", Result: value(`2`)},
			`{"task_id":"-/t/\"k\"","error_info":"line\nbreak","ext":1}`},
	} {
		require.Equal(t, c.want, string(CallbackBody(&c.task, c.task.Args)))
	}
}

func TestAManualEndOfADeliveryCountsAsDelivered(t *testing.T) {
	task := &model.Task{ID: "-/t/k", Status: model.StatusCompleted, FinishedAt: time.UnixMilli(1000)}
	eff := ResolveOptions(model.Options{})
	require.Equal(t, model.StatusSuccess, Delivered(task, Delivers(model.StatusManuallyProcessed), eff, time.UnixMilli(2000)).Status)
	require.Equal(t, model.StatusCompleted, Delivered(task, Delivers(model.StatusPending), eff, time.UnixMilli(2000)).Status)
}

func TestKeysOfCallbacksArePrintedWithoutTheirSecrets(t *testing.T) {
	c := told("http://example.org/?a=1&b=2")
	c.Security = &model.CallbackSecurity{Type: model.SecurityAKSK, Keys: []callback.Key{{AccessKey: "ak", Secret: "hunter2"}}}
	for _, text := range []string{fmt.Sprintf("%v", *c), fmt.Sprintf("%+v", c.Security.Keys), fmt.Sprintf("%#v", c.Security.Keys[0]), fmt.Sprintf("%s", c.Security)} {
		require.NotContains(t, text, "hunter2")
		require.Contains(t, text, "ak")
	}
	require.Contains(t, c.String(), "?a=***&b=***")
}

func TestADeliveryTellsNobodyOfItsEnd(t *testing.T) {
	now := time.UnixMilli(1000)
	eff := ResolveOptions(model.Options{Callback: told("http://h")})
	for _, out := range []Outcome{{}, Failed(failkind.Fatal, "no")} {
		task := Delivery(&model.Task{ID: "-/t/k", Generation: 1})
		claimed, no := Claim(NewTask(task, now), Claimant{WorkerID: "w", ExecID: "x"}, eff, now)
		require.Empty(t, no)
		ended, err := Finish(claimed, "x", out, eff, now, 0)
		require.NoError(t, err)
		require.NotEqual(t, model.StatusCompleted, ended.Status)
		require.Equal(t, []model.OutboxEntry{{Kind: OutcomeDelivery, Rev: ended.Rev}}, ended.Outbox, "its task learns of it, and nobody else")
		require.False(t, ended.ArchiveAt.IsZero())
		_, err = Redeliver(ended, model.Options{Callback: told("http://h")})
		require.ErrorContains(t, err, "the task has no callback for this status")
	}
}

func TestACallbackOnDeliveriesIsRefusedWhereverItIsSaid(t *testing.T) {
	for _, c := range []*model.Callback{told("http://h"), {Error: &model.CallbackTarget{URL: "http://h"}}} {
		o := model.Options{Callback: c}
		typ := model.TaskType{Code: input.CallbackType, Options: o}
		draft := Draft{Type: input.CallbackType, Key: "k", Options: o}
		for _, err := range []error{input.TaskType(&typ), draft.Validate(), input.OptionsFor(&o, input.CallbackType)} {
			require.ErrorIs(t, err, model.ErrInvalid)
			require.ErrorContains(t, err, "callback cannot be set for tasks of type mscheduler.callback")
		}
		require.NoError(t, input.OptionsFor(&o, "t"))
	}
	quiet := model.TaskType{Code: input.CallbackType, Options: model.Options{Callback: &model.Callback{}}}
	require.NoError(t, input.TaskType(&quiet), "that nobody is told may be said")
}
