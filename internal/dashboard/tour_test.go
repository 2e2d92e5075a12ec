package dashboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/model"
)

// Somebody who sees the dashboard for the first time follows what it says: from the overview to a task that has failed, its
// reason, and, once the cause is repaired, a retry that succeeds. Nobody types an address or a filter.
func TestATourLeadsFromTheOverviewToAFailedTaskThatIsRetried(t *testing.T) {
	b := open(t)
	w := newWorld(t)
	c, err := consumer.New(consumer.Config{Database: w.db, WorkerID: "worker-1"})
	require.NoError(t, err)
	var repaired atomic.Bool
	require.NoError(t, consumer.Handle(c, model.NewType[json.RawMessage, any]("deliver"), func(context.Context, *consumer.Task[json.RawMessage]) (any, error) {
		if !repaired.Load() {
			return nil, consumer.Fatal(errors.New("the courier's password has expired"))
		}
		return "delivered", nil
	}))
	w.runs(c.Run)
	w.call(http.MethodPost, "/tasks", map[string]any{"type": "deliver", "key": "parcel-17"})
	w.await("/tasks/-/deliver/parcel-17", hasStatus("Failure"))

	b.visit(w.url + "/ui/")
	b.awaits(`document.querySelector("main").innerText.includes("task failed for good")`)
	b.run(chromedp.Click(`main a[href*="status=Failure"]`, chromedp.ByQuery))
	b.awaits(`location.search.includes("status=Failure") && document.querySelector("main tr a.id")`)
	b.run(chromedp.Click(`main tr a.id`, chromedp.ByQuery))
	b.awaits(`location.pathname.endsWith("parcel-17") && document.querySelector("main").innerText.includes("the courier's password has expired")`)
	repaired.Store(true)
	b.run(chromedp.Click(`form[data-call$=retry] button`, chromedp.ByQuery))
	b.awaits(`document.querySelector("main").innerText.includes("Success")`)
	require.Equal(t, "delivered", w.await("/tasks/-/deliver/parcel-17", hasStatus("Success"))["result"])
	b.quiet()
}
