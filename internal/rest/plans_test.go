package rest_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/plan"
)

const (
	plans  = "/api/v1/plans"
	report = plans + "/-/report"
	// later is a plan whose first step is far away.
	later = `{"plan_id": %q, "station": "report", "plan_type": "day", "plan_value": 1, "plan_repet": -1, "plan_time": "2100-01-01T00:00:00Z", "messages": ["sales", {"top": 10}]}`
)

func TestAPlanIsPublishedOncePerID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fails(http.StatusNotFound, "GET", report, "")
	first := w.do("POST", plans, fmt.Sprintf(later, "report"))
	require.Equal(t, http.StatusCreated, first.status, first.text)
	require.Equal(t, `"1"`, first.header.Get("ETag"))
	require.Equal(t, "-/report", first.body["id"])
	require.Equal(t, "RUNNING", first.body["status"])
	require.Equal(t, "2100-01-02T00:00:00.000Z", first.body["plan_time"])
	again := w.do("POST", plans, fmt.Sprintf(later, "report"))
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, first.body["created_at"], again.body["created_at"])
	require.Equal(t, []any{"sales", map[string]any{"top": 10.0}}, w.ok("GET", report, "")["messages"])

	const now = `{"station": "report", "plan_type": "none", "messages": [1]}`
	keyed := w.as("Idempotency-Key", "request-1")
	once := keyed.do("POST", plans, now)
	require.Equal(t, "-/request-1", once.body["id"])
	require.Equal(t, once.text, keyed.do("POST", plans, now).text)
	require.Equal(t, http.StatusOK, w.do("POST", plans, `{"plan_id": "request-1", "station": "report", "plan_type": "none", "messages": [1]}`).status)
	generated := w.ok("POST", plans, now)["id"]
	require.NotEqual(t, generated, w.ok("POST", plans, now)["id"], "without both an id is generated")
	require.Contains(t, w.as("Idempotency-Key", "a/b").fails(http.StatusUnprocessableEntity, "POST", plans, now), "body.plan_id")

	cancelled := w.ok("POST", report+"/cancel", `{"remark": "moved"}`)
	require.Equal(t, "CANCELLED", cancelled["status"])
	require.Equal(t, "moved", cancelled["reason"])
	require.Equal(t, http.StatusOK, w.do("POST", plans, fmt.Sprintf(later, "report")).status, "also one that is over")
}

func TestAllPlansOfABatchAreCheckedBeforeAnyIsStored(t *testing.T) {
	w := newWorld(t)
	good := fmt.Sprintf(later, "a")
	errs := w.fails(http.StatusUnprocessableEntity, "POST", plans+"/batch", `{"plans": [`+good+`, {"station": "a b", "plan_type": "daily", "messages": []}, {"plan_id": "c", "tenant": "-/-"}]}`)
	for _, field := range []string{"body.plans[1].station", "body.plans[1].plan_type", "body.plans[1].messages", "body.plans[2].tenant"} {
		require.Contains(t, errs, field, "%v", errs)
	}
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", plans+"/batch", `{"plans": [`+good+`, `+good+`]}`), "body.plans[1].plan_id")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", plans+"/batch", `{"plans": []}`), "body.plans")
	require.Empty(t, w.ok("GET", plans, "")["plans"])

	w.ok("POST", plans, good)
	stored := w.as("Idempotency-Key", "request-1").ok("POST", plans+"/batch", `{"plans": [`+good+`, {"station": "report", "plan_type": "none", "messages": [1]}]}`)
	require.Equal(t, false, at(stored, "plans.0.created"))
	require.Equal(t, true, at(stored, "plans.1.created"))
	require.Equal(t, "-/request-1-1", at(stored, "plans.1.plan.id"))
}

func TestEachWrongFieldOfAPlanIsNamed(t *testing.T) {
	w := newWorld(t)
	for body, fields := range map[string][]string{
		`{}`: {"body.station", "body.plan_type", "body.messages"},
		`{"station": "s", "plan_type": "week", "plan_value": 9, "plan_repet": -1, "messages": [1], "repeat": 3}`:                                                              {"body.repeat"},
		`{"station": "s", "plan_type": "week", "plan_value": 9, "plan_repet": -1, "messages": [1], "timezone": "Mars"}`:                                                       {"body.plan_value", "body.timezone"},
		`{"station": "s", "plan_type": "none", "messages": [1], "callback": {"success": {"url": "https://example.org"}, "security": {"type": "aksk", "ak": "a", "sk": "s"}}}`: {"body.callback.security.keys[0].sk"},
		`{"station": "exec", "plan_type": "none", "messages": [{"argv": ["true"]}]}`:                                                                                          {"body.station"},
		`{"station": "s", "plan_type": "none", "messages": [1], "options": {"callback": {"success": {"url": "ftp://example.org"}}}}`:                                          {"body.options.callback.success.url"},
	} {
		for _, path := range []string{plans, plans + "/preview"} {
			errs := w.fails(http.StatusUnprocessableEntity, "POST", path, body)
			for _, field := range fields {
				require.Contains(t, errs, field, "%s: %v", body, errs)
			}
		}
	}
	require.Empty(t, w.ok("GET", plans, "")["plans"])
}

func TestThePreviewOfAPlanWritesNothing(t *testing.T) {
	w := newWorld(t)
	definition := w.ok("POST", plans+"/preview?count=2", fmt.Sprintf(later, "report"))
	require.Equal(t, "report", definition["plan_id"])
	require.Len(t, definition["times"], 2)
	require.Equal(t, "2100-01-02T00:00:00.000Z", at(definition, "times.0.utc"))
	require.Equal(t, "(generated)", w.ok("POST", plans+"/preview", `{"station": "s", "plan_type": "none", "messages": [1]}`)["plan_id"])
	w.fails(http.StatusNotFound, "GET", report+"/preview", "")
	w.ok("POST", plans, fmt.Sprintf(later, "report"))
	require.Equal(t, definition["times"], w.ok("GET", report+"/preview?count=2", "")["times"])
	w.fails(http.StatusUnprocessableEntity, "GET", report+"/preview?count=0", "")
}

func TestPlansAreListedByFiltersAndPageByPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 5 {
		w.ok("POST", plans, fmt.Sprintf(`{"plan_id": "p%d", "tenant": "t%d", "station": "s%d", "plan_type": "time", "plan_time": "2100-01-01T00:00:00Z", "messages": [1]}`, i, i%2, i%2))
	}
	w.ok("POST", plans, fmt.Sprintf(later, "report"))
	w.ok("POST", plans+"/t0/p0/cancel", "")
	engine, err := plan.New(plan.Config{Database: w.db})
	require.NoError(t, err)
	for worked := true; worked; { // until what is over is in the history
		_, worked, err = engine.Drain(t.Context(), time.Now())
		require.NoError(t, err)
	}
	for _, limit := range []string{"1", "2", "5", "100"} {
		require.ElementsMatch(t, []any{"p1", "p2", "p3", "p4", "report"}, w.pages(plans+"?limit="+limit, "plans", "plan_id"), limit)
	}
	require.ElementsMatch(t, []any{"p2", "p4"}, w.pages(plans+"?tenant=t0&limit=1", "plans", "plan_id"))
	require.ElementsMatch(t, []any{"p1", "p3"}, w.pages(plans+"?station=s1&limit=1", "plans", "plan_id"))
	require.Equal(t, []any{"report"}, w.pages(plans+"?tenant=-", "plans", "plan_id"), "those without a tenant")
	require.Empty(t, w.pages(plans+"?status=ERROR", "plans", "plan_id"))
	require.Equal(t, []any{"p0"}, w.pages(plans+"?status=CANCELLED", "plans", "plan_id"))
	require.Equal(t, []any{"p0"}, w.pages(plans+"?over=true", "plans", "plan_id"))
	require.Equal(t, []any{"p0"}, w.pages(plans+"?tenant=t0&plan_id=p&over=true", "plans", "plan_id"))
	require.Equal(t, []any{"p0"}, w.pages(plans+"?tenant=t0&plan_id=p&status=CANCELLED", "plans", "plan_id"))
	require.Empty(t, w.pages(plans+"?tenant=t0&plan_id=p&status=FINISH", "plans", "plan_id"))
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", plans+"?over=true&status=ERROR", ""), "over")
	w.fails(http.StatusUnprocessableEntity, "GET", plans+"?status=ODD", "")
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", plans+"?page_token=x", ""), "page_token")
}

func TestAPlanThatCannotBeReadBreaksNoList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 5 {
		w.ok("POST", plans, fmt.Sprintf(later, fmt.Sprintf("p%d", i)))
	}
	_, err := w.db.Collection("plans").UpdateMany(t.Context(), bson.D{{Key: "plan_id", Value: bson.D{{Key: "$in", Value: bson.A{"p1", "p2", "p3"}}}}}, bson.D{{Key: "$set", Value: bson.D{{Key: "step", Value: "many"}}}})
	require.NoError(t, err)
	for _, limit := range []string{"1", "2", "100"} {
		require.Equal(t, []any{"p4", "p0"}, w.pages(plans+"?limit="+limit, "plans", "plan_id"), limit)
	}
	unread := w.ok("GET", plans, "")["unreadable"].([]any)
	require.Len(t, unread, 3)
	require.Equal(t, "-/p1", at(unread, "0.id"))
	require.NotEmpty(t, at(unread, "0.error"))
}

func TestResultsOfAPlanAreListedPageByPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fails(http.StatusNotFound, "GET", report+"/results", "")
	w.ok("POST", plans, fmt.Sprintf(later, "report"))
	require.Empty(t, w.ok("GET", report+"/results", "")["results"])
	for i := range 5 {
		_, err := w.db.Collection("plan_results").InsertOne(t.Context(), bson.D{
			{Key: "_id", Value: fmt.Sprintf("-/report/%d/x", i)}, {Key: "plan", Value: "-/report"}, {Key: "plan_id", Value: "report"}, {Key: "station", Value: "report"},
			{Key: "step", Value: int64(i)}, {Key: "state", Value: "OK"}, {Key: "plan_time", Value: bson.DateTime(1000)}, {Key: "at", Value: bson.DateTime(1000 * (1 + i/2))}, {Key: "result", Value: i},
		})
		require.NoError(t, err)
	}
	for _, limit := range []string{"1", "2", "5", "100"} {
		require.Equal(t, []any{0.0, 1.0, 2.0, 3.0, 4.0}, w.pages(report+"/results?limit="+limit, "results", "result"), limit)
		require.Equal(t, []any{4.0, 3.0, 2.0, 1.0, 0.0}, w.pages(report+"/results?sort=-at&limit="+limit, "results", "result"), limit)
	}
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "GET", report+"/results?page_token=x", ""), "page_token")
}

// A hundred results may have a hundred megabytes.
func TestAPageOfLargeResultsHasFewOfThem(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
	t.Parallel()
	w := newWorld(t)
	w.ok("POST", plans, fmt.Sprintf(later, "report"))
	const n, each = 20, 1 << 20
	large := strings.Repeat("x", each-300)
	var docs []any
	var all []any
	for i := range n {
		docs = append(docs, bson.D{
			{Key: "_id", Value: fmt.Sprintf("-/report/%d/x", i)}, {Key: "plan", Value: "-/report"}, {Key: "plan_id", Value: "report"}, {Key: "step", Value: int64(i)},
			{Key: "state", Value: "OK"}, {Key: "plan_time", Value: bson.DateTime(1000)}, {Key: "at", Value: bson.DateTime(1000 * i)}, {Key: "result", Value: large},
		})
		all = append(all, float64(i))
	}
	_, err := w.db.Collection("plan_results").InsertMany(t.Context(), docs)
	require.NoError(t, err)
	page := w.do("GET", report+"/results", "")
	require.Equal(t, http.StatusOK, page.status)
	require.Less(t, len(page.text), 10*each)
	require.Len(t, page.body["results"], 9)
	require.NotEmpty(t, page.body["next"])
	require.Equal(t, all, w.pages(report+"/results?limit=100", "results", "step"))
	slices.Reverse(all)
	require.Equal(t, all, w.pages(report+"/results?sort=-at&limit=100", "results", "step"))

	small := w.do("GET", report+"/results?outputs=false", "")
	require.Less(t, len(small.text), each)
	require.Len(t, small.body["results"], n)
	require.Nil(t, small.body["next"])
	require.Equal(t, "OK", at(small.body["results"], "0.state"))
	require.Nil(t, at(small.body["results"], "0.result"))
}

func TestAPlanIsResetOnlyIfItIsAnError(t *testing.T) {
	w := newWorld(t)
	w.ok("POST", plans, fmt.Sprintf(later, "report"))
	require.Contains(t, w.fails(http.StatusConflict, "POST", report+"/reset", "")[""], "RUNNING")
	_, err := w.db.Collection("plans").UpdateOne(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: "ERROR"}}}})
	require.NoError(t, err)
	require.Equal(t, "RUNNING", w.ok("POST", report+"/reset", "")["status"])
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", report+"/cancel", `{"reason": "x"}`), "body.reason")
	w.fails(http.StatusNotFound, "POST", plans+"/-/none/cancel", "")
	w.fails(http.StatusNotFound, "POST", plans+"/-/none/reset", "")
}

// The results of a month are found among any number of others, also where steps were late.
func TestResultsAreFoundByTheTimesOfTheirSteps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ok("POST", "/api/v1/plans", `{"plan_id": "p", "station": "t", "plan_type": "minute", "plan_value": 1, "plan_repet": 100000, "plan_time": "2026-01-01T00:00:00Z", "messages": [1]}`)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var docs []any
	// Every minute; from the 1,000th to the 2,000th all are done late, within a second. Somebody cancels the first and
	// the last ten before their time.
	for i := range 3000 {
		due := begin.Add(time.Duration(i) * time.Minute)
		at := due.Add(time.Duration(i%7) * time.Second)
		if i >= 1000 && i < 2000 {
			at = begin.Add(2000*time.Minute - time.Second + time.Duration(i-1000)*time.Millisecond)
		} else if i == 0 {
			at = due.Add(-40 * 24 * time.Hour)
		} else if i >= 2990 {
			at = begin.Add(2990*time.Minute + time.Duration(i)*time.Millisecond)
		}
		docs = append(docs, bson.D{{Key: "_id", Value: fmt.Sprintf("-/p/%d/x", i)}, {Key: "plan", Value: "-/p"}, {Key: "plan_id", Value: "p"}, {Key: "step", Value: int64(i + 1)}, {Key: "plan_time", Value: due}, {Key: "at", Value: at}, {Key: "state", Value: "OK"}})
	}
	_, err := w.db.Collection("plan_results").InsertMany(t.Context(), docs)
	require.NoError(t, err)
	for _, span := range [][2]int{{0, 3000}, {0, 1}, {999, 1001}, {1500, 1503}, {1990, 2010}, {2999, 4000}, {3000, 4000}, {-50, 2}, {-50, -10}} {
		from, to := begin.Add(time.Duration(span[0])*time.Minute), begin.Add(time.Duration(span[1])*time.Minute)
		var want []any
		for i := max(span[0], 0); i < min(span[1], 3000); i++ {
			want = append(want, float64(i+1))
		}
		q := url.Values{"from": {from.Format(time.RFC3339)}, "to": {to.Format(time.RFC3339)}, "limit": {"700"}}
		require.Equal(t, want, w.pages("/api/v1/plans/-/p/results?"+q.Encode(), "results", "step"), span)
		slices.Reverse(want)
		q.Set("sort", "-at")
		require.Equal(t, want, w.pages("/api/v1/plans/-/p/results?"+q.Encode(), "results", "step"), span)
	}
	w.ok("POST", "/api/v1/plans", `{"plan_id": "q", "station": "t", "plan_type": "minute", "plan_value": 1, "plan_repet": -1, "messages": [1]}`)
	times, _ := w.ok("GET", "/api/v1/plans/-/q/preview?count=2&from=2060-01-01T00:00:30Z", "")["times"].([]any)
	require.Len(t, times, 2)
	first, err := time.Parse(time.RFC3339, times[0].(map[string]any)["utc"].(string))
	require.NoError(t, err)
	from := time.Date(2060, 1, 1, 0, 0, 30, 0, time.UTC)
	require.False(t, first.Before(from), first)
	require.True(t, first.Before(from.Add(time.Minute)), first)
	w.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/plans/-/p/preview?from=2160-01-01T00:00:00Z", "")
}
