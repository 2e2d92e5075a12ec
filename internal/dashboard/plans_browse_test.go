package dashboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan"
)

// step runs an engine of plans until the test ends.
func (w *world) step() {
	w.t.Helper()
	p, err := plan.New(plan.Config{Database: w.db})
	require.NoError(w.t, err)
	w.runs(p.Run)
}

// refuse runs a worker of the station billing, for which every plan is wrong.
func (w *world) refuse() {
	w.t.Helper()
	c, err := consumer.New(consumer.Config{Database: w.db, WorkerID: "clerk", ShutdownTimeout: -1})
	require.NoError(w.t, err)
	require.NoError(w.t, consumer.Handle(c, model.NewType[json.RawMessage, any]("billing"), func(context.Context, *consumer.Task[json.RawMessage]) (any, error) {
		return nil, consumer.PlanError(errors.New("there is no such customer"))
	}))
	w.runs(c.Run)
}

func (w *world) seedPlans() {
	w.t.Helper()
	w.work()
	w.refuse()
	w.step()
	for _, p := range []map[string]any{
		{"plan_id": "figures", "description": "the figures of each day", "station": "report", "caller": "finance", "plan_type": "day", "plan_value": 1, "plan_repet": 400, "no_keep": true, "timezone": "Europe/Berlin"},
		{"plan_id": "bill", "station": "billing", "plan_type": "none"},
		{"plan_id": "<i>weekly", "tenant": "acme", "station": "report", "plan_type": "week", "plan_value": 1, "plan_repet": -1, "plan_time": "09:00"},
		{"plan_id": "closing", "station": "report", "plan_type": "month", "plan_value": -2, "plan_repet": 12},
	} {
		p["messages"] = []any{map[string]any{"text": "figures"}, "second"}
		if p["plan_id"] == "figures" {
			p["plan_time"] = "2026-01-01T07:00:00Z"
		}
		w.call(http.MethodPost, "/plans", p)
	}
	w.await("/plans/-/bill", hasStatus("ERROR"))
	w.await("/plans/-/figures/results?limit=5", func(doc map[string]any) bool { return len(doc["results"].([]any)) == 5 })
}

func TestThePlanPagesLookRightAndTheirActionsWork(t *testing.T) {
	w, b := browse(t)
	w.seedPlans()
	b.looks("plans", w.url+"/ui/plans")
	b.looks("plan", w.url+"/ui/plans/-/figures")
	_, text := w.page("/plans?station=report")
	for _, words := range []string{"every day at 08:00, 400 times", "every week on Monday at 09:00, without end", "every month 2 days before the last at 00:00, 12 times"} {
		require.Contains(t, text, words)
	}

	failed := w.url + "/ui/plans/-/bill"
	b.visit(failed)
	rev := w.call(http.MethodGet, "/plans/-/bill", nil)["rev"].(float64)
	b.run(chromedp.Click(`form[data-call$="/reset"] button`))
	w.await("/plans/-/bill", func(doc map[string]any) bool { return doc["rev"].(float64) > rev && doc["try"] != nil })
	w.await("/plans/-/bill", hasStatus("ERROR"))
	b.visit(failed)
	b.run(chromedp.Click(`[data-opens="cancel"]`), chromedp.SendKeys("#cancel-remark", "paid <b>by hand</b>"), chromedp.Click("#cancel button.danger"))
	b.awaits(`document.querySelector('[data-part=head]').textContent.includes("paid <b>by hand</b>")`)
	require.Equal(t, "CANCELLED", w.call(http.MethodGet, "/plans/-/bill", nil)["status"])
	b.quiet()
}
