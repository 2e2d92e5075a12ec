package plan_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

func TestResultsArePublishedAndASubscriptionResumes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	events, ended := make(chan plan.Event), make(chan error, 1)
	go func() {
		for e, err := range w.plans.Subscribe(ctx, plan.Topic{Title: "sales"}) {
			if err != nil {
				ended <- err
				return
			}
			events <- e
			return
		}
	}()
	var first plan.Event
	for n := 0; first.Token == ""; n++ { // it may not have begun yet
		w.publish(repeat.Spec{Station: "report", Description: "sales", PlanType: repeat.None, Messages: []any{"x"}})
		w.drain()
		select {
		case first = <-events:
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	cancel()
	require.Equal(t, "sales", first.Title)
	require.Equal(t, first.Result.PlanID, first.Subtitle)
	require.Equal(t, stepplan.StateOK, first.Result.State)

	w.fails = func(args repeat.Args[string], attempt int) error {
		if args.Step == 2 {
			w.fails = nil
			return errors.New("once")
		}
		return nil
	}
	for _, id := range []string{"other", "late"} {
		w.publish(every(id, 3, func(s *repeat.Spec) { s.Tenant, s.RequestID, s.Caller = "acme", "r-"+id, "ann" }))
	}
	w.drain(mstest.SkipTime())
	var steps []int64
	for e, err := range w.plans.Subscribe(t.Context(), plan.Topic{Tenant: "acme", Subtitle: "late", After: first.Token}) {
		require.NoError(t, err)
		require.Equal(t, "late", e.Subtitle)
		require.Equal(t, []string{"r-late", "ann"}, []string{e.Result.RequestID, e.Result.Caller}, "which request it answers")
		if e.Result.State == stepplan.StateOK {
			steps = append(steps, e.Result.Step)
		}
		if len(steps) == 3 {
			break
		}
	}
	require.Equal(t, []int64{1, 2, 3}, steps)
	require.ErrorContains(t, onlyError(w.plans.Subscribe(t.Context(), plan.Topic{After: "?"})), "token is not valid")
}

// onlyError is the error of a subscription that returns nothing else; nil = there was none.
func onlyError(events iter.Seq2[plan.Event, error]) (last error) {
	for _, err := range events {
		if last = err; err == nil {
			return nil
		}
	}
	return last
}

func TestASubscriptionEndsWithItsContextAndNamesAMissingSeat(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	require.ErrorContains(t, onlyError(w.plans.Subscribe(ctx, plan.Topic{})), "enough")
	st, err := store.Open(store.Config{Database: w.db})
	require.NoError(t, err)
	require.NoError(t, st.FreshClock(t.Context()))
	for _, holder := range []string{"a", "b"} {
		seat, err := st.Seats.AcquireSubscription(t.Context(), []string{"/plans"}, holder)
		require.NoError(t, err)
		require.NotNil(t, seat)
	}
	require.ErrorAs(t, onlyError(w.plans.Subscribe(t.Context(), plan.Topic{})), new(*model.NoStreamError))
}

// The seat is given back, and nothing waits for a server that will never take the token.
func TestASubscriptionRefusesATokenThatTheDatabaseDidNotGive(t *testing.T) {
	w := newWorld(t)
	raw, err := bson.Marshal(bson.D{{Key: "_data", Value: "8200"}})
	require.NoError(t, err)
	for range 3 { // there are two seats
		err = onlyError(w.plans.Subscribe(t.Context(), plan.Topic{After: base64.RawURLEncoding.EncodeToString(raw)}))
		var bad *model.InvalidError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, "token", bad.Field)
	}
}

func TestASubscriptionHearsThatNobodyServesAStation(t *testing.T) {
	w := newWorld(t)
	events, ended := make(chan plan.Event, 1), make(chan error, 1)
	go func() {
		for e, err := range w.plans.Subscribe(t.Context(), plan.Topic{Title: "sales"}) {
			if err != nil {
				ended <- err
			} else {
				events <- e
			}
			return
		}
	}()
	for n := 0; ; n++ { // it may not have begun yet
		w.publish(every(fmt.Sprint("p", n), 1))
		w.sweep(2 * time.Minute)
		select {
		case e := <-events:
			require.Equal(t, stepplan.StateNoWorker, e.Result.State)
			require.Equal(t, e.Result.PlanID, e.Subtitle)
			require.Equal(t, "no live worker takes the task of this step", e.Result.ErrorInfo)
			return
		case err := <-ended:
			require.NoError(t, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
