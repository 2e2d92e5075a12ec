package plan_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

func TestAPlanCallsItsReceiverSignedWhenItIsERRORAndWhenItIsFINISH(t *testing.T) {
	t.Parallel()
	const key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	own := callback.Key{AccessKey: "ak", Secret: "hunter2"}
	var mu sync.Mutex
	var got []callback.Body
	calls := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		d, err := callback.Verify(r, own)
		if err != nil {
			rw.WriteHeader(callback.Status(err))
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if calls[d.ID]++; calls[d.ID] == 1 {
			rw.WriteHeader(http.StatusServiceUnavailable) // it is repeated under its id
			return
		}
		var b callback.Body
		if json.Unmarshal(d.Body, &b) == nil {
			got = append(got, b)
		}
	}))
	defer server.Close()
	w := newWorld(t)
	var err error
	w.plans, err = plan.New(plan.Config{Database: w.db, SecretKey: key})
	require.NoError(t, err)
	w.c, err = consumer.New(consumer.Config{Database: w.db, Callbacks: &consumer.CallbackConfig{SecretKey: key}})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(w.c, model.NewType[repeat.Args[string], string]("report"), w.report))
	wrong := true
	w.fails = func(repeat.Args[string], int) error {
		if wrong {
			return consumer.PlanError(errors.New("no such region"))
		}
		return nil
	}
	p := w.publish(every("p", 1, func(s *repeat.Spec) {
		s.RequestID = "r-1"
		s.Callback = &model.Callback{
			Success: &model.CallbackTarget{URL: server.URL}, Error: &model.CallbackTarget{URL: server.URL, Method: http.MethodPut},
			Security: &model.CallbackSecurity{Type: model.SecurityAKSK, Keys: []callback.Key{own}},
		}
	}))
	require.NotContains(t, w.get(p.ID).Callback.Security.Keys[0].Secret, "hunter2", "it is sealed")
	w.drain(mstest.SkipTime())
	wrong = false
	_, err = w.plans.Reset(t.Context(), p.ID)
	require.NoError(t, err)
	w.drain(mstest.SkipTime())
	require.Equal(t, []callback.Body{
		{PlanID: "p", RequestID: "r-1", Step: 1, Status: "ERROR", ErrorInfo: "no such region"},
		{PlanID: "p", RequestID: "r-1", Step: 1, Status: "FINISH", ErrorInfo: w.get(p.ID).Reason},
	}, got)
	for _, n := range calls {
		require.Equal(t, 2, n)
	}
}
