package rest_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

func TestAJobOfAllTenantsIsOnlyForTokensOfAllTenants(t *testing.T) {
	t.Parallel()
	w := guarded(t)
	all, none := w.with(access.Operator), w.with(access.Operator, model.NoTenant)
	for _, x := range []struct {
		by          *world
		key, filter string
	}{{all, "all", `{"type": "mail"}`}, {all, "rest", `{"type": "mail", "tenant": "-"}`}, {none, "mine", `{"type": "mail"}`}} {
		a := x.by.as("Idempotency-Key", x.key).do("POST", "/api/v1/bulk", `{"action": "cancel", "filter": `+x.filter+`}`)
		require.Equal(t, http.StatusAccepted, a.status, a.text)
	}
	const job, task = "/api/v1/bulk/-/all", "/api/v1/tasks/-/mscheduler.bulk/all"
	for method, paths := range map[string][]string{
		"GET":   {job, task, task + "/explain", task + "/lives", task + "/wait"},
		"POST":  {job + "/stop", task + "/cancel", task + "/retry", task + "/release", task + "/resolve", task + "/redeliver"},
		"PATCH": {task},
	} {
		for _, path := range paths {
			body := ""
			if method == "PATCH" {
				body = `{"priority": 9}`
			}
			none.fails(http.StatusNotFound, method, path, body)
		}
	}
	a := none.as("Idempotency-Key", "all").do("POST", "/api/v1/bulk", `{"action": "cancel", "filter": {"type": "mail"}}`)
	require.Equal(t, http.StatusConflict, a.status, a.text)
	require.Len(t, all.ok("GET", "/api/v1/bulk", "")["jobs"], 3)
	require.Len(t, none.ok("GET", "/api/v1/bulk", "")["jobs"], 2)
	require.Len(t, all.ok("GET", "/api/v1/tasks?type=mscheduler.bulk", "")["tasks"], 3)
	require.Len(t, none.ok("GET", "/api/v1/tasks?type=mscheduler.bulk", "")["tasks"], 2)
	require.Equal(t, "New", all.ok("GET", job, "")["status"])
	for _, key := range []string{"rest", "mine"} {
		require.Equal(t, "Cancelled", none.ok("POST", "/api/v1/bulk/-/"+key+"/stop", "")["status"])
	}
	seen := none.watch("?tenant=-&type=mscheduler.bulk,mail", "")
	require.Equal(t, "Cancelled", all.ok("POST", job+"/stop", "")["status"])
	none.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "later"}`)
	first := seen.next()
	require.Equal(t, "-/mail/later", first.data["task_id"], "the stop of the job is no event for this token")
}

func TestOldLivesOfAJobOfAllTenantsStayHidden(t *testing.T) {
	t.Parallel()
	w := guarded(t)
	all, none := w.with(access.Operator), w.with(access.Operator, model.NoTenant)
	const job, task = "/api/v1/bulk/-/k", "/api/v1/tasks/-/mscheduler.bulk/k"
	all.as("Idempotency-Key", "k").ok("POST", "/api/v1/bulk", `{"action": "cancel", "filter": {"type": "secret.type"}}`)
	all.ok("POST", job+"/stop", "")
	old := fmt.Sprintf("%.0f", all.ok("GET", task, "")["generation"])
	all.ok("POST", task+"/retry", "")
	_, err := w.db.Collection("tasks").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "-/mscheduler.bulk/k"}}) // the key is free
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, none.as("Idempotency-Key", "k").do("POST", "/api/v1/bulk", `{"action": "cancel", "filter": {"type": "mail"}}`).status)

	lives := none.ok("GET", task+"/lives", "")["tasks"]
	require.Len(t, lives, 1)
	require.NotContains(t, fmt.Sprint(lives), "secret.type")
	require.Len(t, all.ok("GET", task+"/lives", "")["tasks"], 2)
	none.fails(http.StatusNotFound, "GET", task+"?generation="+old, "")
	none.fails(http.StatusNotFound, "POST", task+"/redeliver?generation="+old, "")
	require.Equal(t, "Cancelled", all.ok("GET", task+"?generation="+old, "")["status"])
	require.Equal(t, "New", none.ok("GET", task+fmt.Sprintf("?generation=%.0f", at(lives, "0.generation")), "")["status"])
}

func TestTasksThatNoWorkerRunsAreLeftToTheirFlows(t *testing.T) {
	w := newWorld(t)
	p, err := producer.New(producer.Config{Database: w.db})
	require.NoError(t, err)
	_, err = p.SendJSON(t.Context(), input.NodeType, nil, producer.Key("k"), producer.Held())
	require.NoError(t, err)
	require.NoError(t, p.Close(t.Context()))
	const task = "/api/v1/tasks/-/mscheduler.node/k"
	for _, verb := range []string{"/retry", "/release"} {
		require.Contains(t, w.fails(http.StatusConflict, "POST", task+verb, "")[""], "use `flow retry` or `flow resolve`")
	}
	require.Contains(t, w.as("If-Match", "*").fails(http.StatusConflict, "PATCH", task, `{"priority": 9}`)[""], "it does the work of mscheduler itself")
}
