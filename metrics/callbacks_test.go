package metrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// receivers answer the calls of a path with its statuses, one after the other, and then with the last again and
// again.
type receivers struct {
	*httptest.Server
	statuses map[string][]int
	mu       sync.Mutex
	calls    map[string]int // by path
}

func newReceivers(t *testing.T, statuses map[string][]int) *receivers {
	t.Helper()
	r := &receivers{statuses: statuses, calls: map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		all := r.statuses[req.URL.Path]
		status := all[min(r.calls[req.URL.Path], len(all)-1)]
		r.calls[req.URL.Path]++
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

// Each attempt of a delivery is an execution of the type mscheduler.callback: a success where the receiver took it,
// an error where it is tried again or its budget is spent, fatal where it is never tried again.
func TestDeliveriesOfCallbacksAreMeasuredByWhatBecameOfThem(t *testing.T) {
	db := testdb.New(t)
	p, m := newProducer(t, db), ofProcess(t, db)
	const retries = 2
	people := admin.New(p)
	_, err := people.PutType(t.Context(), model.TaskType{Code: input.CallbackType, Options: model.Options{
		Retry: &model.Retry{Strategy: model.RetryFixed, Interval: time.Millisecond, MaxErrors: new(retries)},
	}})
	require.NoError(t, err)
	at := newReceivers(t, map[string][]int{
		"/takes": {http.StatusNoContent}, "/late": {http.StatusServiceUnavailable, http.StatusBadRequest, http.StatusOK},
		"/down": {http.StatusInternalServerError}, "/gone": {http.StatusGone},
	})
	c, err := consumer.New(consumer.Config{Database: db, Callbacks: &consumer.CallbackConfig{}})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c, goodType, func(context.Context, *consumer.Task[model.None]) (model.None, error) {
		return model.None{}, nil
	}))
	for path := range at.statuses {
		_, err := producer.Send(t.Context(), p, goodType, model.None{}, producer.Key(path), producer.Callback(model.Callback{Success: &model.CallbackTarget{URL: at.URL + path}}))
		require.NoError(t, err)
	}
	runs(t, c.Run)

	outcome := func(kind string) string {
		return fmt.Sprintf("executions_total{outcome=%s,type=%s}", kind, input.CallbackType)
	}
	failed := 2 + (retries + 1) // of /late and of /down
	reaches(t, m, outcome("success"), 2)
	reaches(t, m, outcome("fatal"), 1)
	reaches(t, m, outcome("error"), float64(failed))
	for status, n := range map[model.Status]int64{model.StatusSuccess: 2, model.StatusFailure: 2} { // so no attempt follows
		require.Eventually(t, func() bool {
			ended, err := people.Count(t.Context(), admin.Filter{Type: input.CallbackType, Statuses: []model.Status{status}})
			return err == nil && ended == n
		}, testdb.Patience, 5*time.Millisecond, "%s", status)
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	require.Equal(t, map[string]int{"/takes": 1, "/late": 3, "/down": retries + 1, "/gone": 1}, at.calls)
	now := scrape(t, m)
	got := map[string]float64{}
	for _, kind := range []string{"success", "fatal", "error", "timeout", "panic", "released"} {
		got[kind] = now[outcome(kind)]
	}
	require.Equal(t, map[string]float64{"success": 2, "fatal": 1, "error": float64(failed), "timeout": 0, "panic": 0, "released": 0}, got)
	require.EqualValues(t, 2+1+failed, now["execution_seconds_count{type="+input.CallbackType+"}"], "each attempt once")
}
