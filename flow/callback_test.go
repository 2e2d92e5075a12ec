package flow_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

func TestAFlowCallsItsReceiverSignedWhenANodeIsPENDINGAndWhenItIsFINISH(t *testing.T) {
	t.Parallel()
	const key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	own := callback.Key{AccessKey: "ak", Secret: "hunter2"}
	var mu sync.Mutex
	got, calls := map[string]string{}, map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		d, err := callback.Verify(r, own)
		if err != nil {
			rw.WriteHeader(callback.Status(err))
			return
		}
		mu.Lock()
		defer mu.Unlock()
		got[d.ID] = string(d.Body)
		if calls[d.ID]++; calls[d.ID] == 1 {
			rw.WriteHeader(http.StatusServiceUnavailable) // it is repeated
		}
	}))
	defer server.Close()
	w := newWorld(t, func(c *flow.Config) { c.SecretKey = key })
	c, err := consumer.New(consumer.Config{Database: w.db, Callbacks: &consumer.CallbackConfig{SecretKey: key}})
	require.NoError(t, err)
	w.run(c.Run)
	prod, err := producer.New(producer.Config{Database: w.db})
	require.NoError(t, err)
	defer func() { require.NoError(t, prod.Close(context.Background())) }()
	_, err = admin.New(prod).PutType(t.Context(), model.TaskType{Code: "mscheduler.callback", Name: "quick", Options: model.Options{Retry: &model.Retry{Strategy: model.RetryFixed, Interval: 10 * time.Millisecond}}})
	require.NoError(t, err)
	w.breaks("f", "b", true)
	s := diamond("f")
	s.Ext = map[string]any{"order": 7}
	s.Callback = &model.Callback{
		Success: &model.CallbackTarget{URL: server.URL}, Error: &model.CallbackTarget{URL: server.URL, Method: http.MethodPut},
		Security: &model.CallbackSecurity{Type: model.SecurityAKSK, Keys: []callback.Key{own}},
	}
	f := w.start(s)
	w.becomes(f.ID, graph.StatusPending)
	_, err = w.flows.Resolve(t.Context(), f.ID, "b", graph.NodeSuccess, "")
	require.NoError(t, err)
	f = w.becomes(f.ID, graph.StatusFinish)
	require.NotContains(t, f.Callback.Security.Keys[0].Secret, "hunter2", "it is sealed")
	want := map[string]bool{
		`{"flow_id":"-/f","node":"b","error_info":"its task failed: it is broken","status":"PENDING","ext":{"order":7}}`: true,
		`{"flow_id":"-/f","node":"d","error_info":"","status":"FINISH","ext":{"order":7}}`:                               true,
	}
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		bodies := map[string]bool{}
		for id, body := range got {
			bodies[body] = calls[id] >= 2
		}
		return maps.Equal(want, bodies)
	}, testdb.Patience, 10*time.Millisecond, "each is repeated under its id: %v", got)
	mu.Lock()
	defer mu.Unlock()
	for _, body := range got {
		var b callback.Body
		require.NoError(t, json.Unmarshal([]byte(body), &b))
		require.Equal(t, "-/f", b.FlowID)
	}
}

func TestAStreamCallsItsReceiverSignedWhenANodeIsPENDINGAndWhenItIsClosed(t *testing.T) {
	t.Parallel()
	const key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	own := callback.Key{AccessKey: "ak", Secret: "hunter2"}
	var mu sync.Mutex
	got := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		d, err := callback.Verify(r, own)
		if err != nil {
			rw.WriteHeader(callback.Status(err))
			return
		}
		mu.Lock()
		defer mu.Unlock()
		got[string(d.Body)] = true
	}))
	defer server.Close()
	w := newWorld(t, func(c *flow.Config) { c.SecretKey = key })
	c, err := consumer.New(consumer.Config{Database: w.db, Callbacks: &consumer.CallbackConfig{SecretKey: key}})
	require.NoError(t, err)
	w.run(c.Run)
	calls := &model.Callback{
		Success: &model.CallbackTarget{URL: server.URL}, Error: &model.CallbackTarget{URL: server.URL},
		Security: &model.CallbackSecurity{Type: model.SecurityAKSK, Keys: []callback.Key{own}},
	}
	_, err = w.flows.SetCallback(t.Context(), "s", "g", &model.Callback{Error: &model.CallbackTarget{URL: "no address"}}, nil)
	require.ErrorContains(t, err, "callback.error.url")
	_, err = w.flows.Get(t.Context(), "s/g")
	require.ErrorIs(t, err, model.ErrNotFound, "nothing was written")
	f, err := w.flows.SetCallback(t.Context(), "s", "g", calls, map[string]any{"line": 7})
	require.NoError(t, err)
	require.NotContains(t, f.Callback.Security.Keys[0].Secret, "hunter2", "it is sealed")

	_, err = w.flows.Cancel(t.Context(), "s/g", "not yet") // no node was appended
	require.NoError(t, err)
	_, err = w.flows.Open(t.Context(), "s", "g")
	require.NoError(t, err)
	w.fails("s/g", "b", true)
	b := link("b")
	b.OnFailure = graph.Suspend
	w.appends("s", "g", link("a"), b)
	w.becomes("s/g", graph.StatusPending)
	_, err = w.flows.Resolve(t.Context(), "s/g", "b", graph.NodeSuccess, "")
	require.NoError(t, err)
	w.appends("s", "g", link("c")) // a and b leave the document
	w.eventually("c has ended", func() bool { return w.record("s/g/c").Status == graph.NodeSuccess })
	_, err = w.flows.Cancel(t.Context(), "s/g", "enough")
	require.NoError(t, err)
	w.becomes("s/g", graph.StatusFinish)
	want := map[string]bool{
		`{"flow_id":"s/g","node":"b","error_info":"its task failed: it is broken","status":"PENDING","ext":{"line":7}}`: true,
		`{"flow_id":"s/g","node":"c","error_info":"enough","status":"FINISH","ext":{"line":7}}`:                         true,
		`{"flow_id":"s/g","node":"","error_info":"not yet","status":"FINISH","ext":{"line":7}}`:                         true,
	}
	received := func() map[string]bool {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(got)
	}
	require.Eventually(t, func() bool { return maps.Equal(want, received()) }, testdb.Patience, 10*time.Millisecond, "%v", received())

	_, err = w.flows.SetCallback(t.Context(), "s", "g", nil, nil)
	require.NoError(t, err)
	f, err = w.flows.Open(t.Context(), "s", "g")
	require.NoError(t, err)
	require.Nil(t, f.Callback)
	_, err = w.flows.Cancel(t.Context(), "s/g", "once more")
	require.NoError(t, err)
	f = w.becomes("s/g", graph.StatusFinish)
	require.Empty(t, f.Planned, "nobody is called")
}
