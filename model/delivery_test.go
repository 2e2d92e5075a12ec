package model

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func told(url string) *Callback {
	return &Callback{Success: &CallbackTarget{URL: url}, Error: &CallbackTarget{URL: url + "/error"}}
}

func TestWhoIsToldIsWhatTheTaskSaysThenItsTypeNowThenItsHandler(t *testing.T) {
	at := func(own, typ, applied *Callback, s Status) string {
		task := &Task{Status: s, Options: Options{Callback: own}}
		if applied != nil {
			task.Applied = &Options{Callback: applied}
		}
		target, _ := CallbackOf(task, Options{Callback: typ})
		if target == nil {
			return ""
		}
		return target.URL
	}
	own, typ, applied, before := told("own"), told("type"), told("applied"), told("the type's before")
	applied.OfHandler = true
	require.Equal(t, "own", at(own, typ, applied, StatusCompleted))
	require.Equal(t, "type", at(nil, typ, applied, StatusCompleted))
	require.Equal(t, "applied", at(nil, nil, applied, StatusCompleted))
	require.Empty(t, at(nil, nil, nil, StatusCompleted))
	require.Empty(t, at(nil, nil, before, StatusCompleted), "it was taken out of the type")
	require.Empty(t, at(nil, nil, before, StatusFailure))
	require.Empty(t, at(nil, &Callback{}, applied, StatusCompleted), "a type that says nobody is told")
	require.Empty(t, at(&Callback{}, typ, applied, StatusCompleted), "a task that says nobody is told")
	require.Equal(t, "own/error", at(own, typ, applied, StatusFailure))
	for _, s := range []Status{StatusCancelled, StatusPending, StatusManuallyProcessed, StatusExecuting, StatusError} {
		require.Empty(t, at(own, typ, applied, s), s)
	}
}

func TestARedeliveryIsRefusedWhereNothingIsToBeTold(t *testing.T) {
	for _, s := range Statuses {
		_, err := Redeliver(&Task{ID: "-/t/k", Status: s, Options: Options{Callback: told("u")}}, Options{})
		switch s {
		case StatusSuccess, StatusCompleted, StatusFailure:
			require.NoError(t, err, s)
		default:
			var refused *RefusedError
			require.ErrorAs(t, err, &refused, s)
		}
	}
	_, err := Redeliver(&Task{ID: "-/t/k", Status: StatusSuccess}, Options{})
	require.ErrorContains(t, err, "no callback is configured")
}

func TestADeliveryIsNamedByItsLife(t *testing.T) {
	task := &Task{ID: "acme/t/a/b@1", Tenant: "acme", Type: "t", Key: "a/b@1", Generation: 7, Rev: 3}
	d := Delivery(task)
	require.NoError(t, d.Validate())
	require.Equal(t, DeliveryID(task), TaskID(d.Tenant, d.Type, d.Key))
	later := *task
	later.Rev = 9
	require.Equal(t, DeliveryID(task), DeliveryID(&later), "whatever was written since")
	later.Generation = 8
	require.NotEqual(t, DeliveryID(task), DeliveryID(&later))
	var args DeliveryArgs
	require.NoError(t, DecodeValue(d.Args, &args))
	require.Equal(t, DeliveryArgs{TaskID: task.ID, Generation: 7}, args)
}

func TestTheBodyOfACallbackIsThatOfTheSeed(t *testing.T) {
	value := func(text string) bson.RawValue {
		v, err := EncodeJSON("v", []byte(text), MaxResultBytes)
		require.NoError(t, err)
		return v
	}
	for _, c := range []struct {
		task Task
		want string
	}{
		{Task{Status: StatusCompleted}, `{"ext":null,"result":null}`},
		{Task{Status: StatusSuccess, Args: value(`{"a":[1,"ä"]}`), Result: value(`"done"`)}, `{"ext":{"a":[1,"ä"]},"result":"done"}`},
		{Task{ID: "-/t/\"k\"", Status: StatusFailure, Args: value(`1`), ErrorInfo: "line\nbreak", Result: value(`2`)},
			`{"task_id":"-/t/\"k\"","error_info":"line\nbreak","ext":1}`},
	} {
		require.Equal(t, c.want, string(CallbackBody(&c.task)))
	}
}

func TestAManualEndOfADeliveryCountsAsDelivered(t *testing.T) {
	task := &Task{ID: "-/t/k", Status: StatusCompleted, FinishedAt: time.UnixMilli(1000)}
	eff := ResolveOptions(Options{})
	require.Equal(t, StatusSuccess, Delivered(task, Delivers(StatusManuallyProcessed), eff, time.UnixMilli(2000)).Status)
	require.Equal(t, StatusCompleted, Delivered(task, Delivers(StatusPending), eff, time.UnixMilli(2000)).Status)
}

func TestKeysOfCallbacksArePrintedWithoutTheirSecrets(t *testing.T) {
	c := told("http://example.org/?a=1&b=2")
	c.Security = &CallbackSecurity{Type: SecurityAKSK, Keys: []CallbackKey{{AccessKey: "ak", Secret: "hunter2"}}}
	for _, text := range []string{fmt.Sprintf("%v", *c), fmt.Sprintf("%+v", c.Security.Keys), fmt.Sprintf("%#v", c.Security.Keys[0]), fmt.Sprintf("%s", c.Security)} {
		require.NotContains(t, text, "hunter2")
		require.Contains(t, text, "ak")
	}
	require.Contains(t, c.String(), "?a=***&b=***")
}

func TestADeliveryTellsNobodyOfItsEnd(t *testing.T) {
	now := time.UnixMilli(1000)
	eff := ResolveOptions(Options{Callback: told("http://h")})
	for _, out := range []Outcome{{}, Failed(FailFatal, "no")} {
		task := Delivery(&Task{ID: "-/t/k", Generation: 1})
		claimed, no := Claim(NewTask(task, now), Claimant{WorkerID: "w", ExecID: "x"}, eff, now)
		require.Empty(t, no)
		ended, err := Finish(claimed, "x", out, eff, now, 0)
		require.NoError(t, err)
		require.NotEqual(t, StatusCompleted, ended.Status)
		require.Equal(t, []OutboxEntry{{Kind: OutcomeDelivery, Rev: ended.Rev}}, ended.Outbox, "its task learns of it, and nobody else")
		require.False(t, ended.ArchiveAt.IsZero())
		_, err = Redeliver(ended, Options{Callback: told("http://h")})
		require.ErrorContains(t, err, "nobody is to be told")
	}
}

func TestACallbackOnDeliveriesIsRefusedWhereverItIsSaid(t *testing.T) {
	for _, c := range []*Callback{told("http://h"), {Error: &CallbackTarget{URL: "http://h"}}} {
		o := Options{Callback: c}
		typ := TaskType{Code: CallbackType, Options: o}
		draft := Draft{Type: CallbackType, Key: "k", Options: o}
		for _, err := range []error{typ.Validate(), draft.Validate(), o.ValidFor(CallbackType)} {
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorContains(t, err, "callback cannot be set for tasks of type mscheduler.callback")
		}
		require.NoError(t, o.ValidFor("t"))
	}
	quiet := TaskType{Code: CallbackType, Options: Options{Callback: &Callback{}}}
	require.NoError(t, quiet.Validate(), "that nobody is told may be said")
}
