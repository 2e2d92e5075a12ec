package dashboard_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// visible is the link, button or fold of the page, or of the dialog that is open, that a person sees under a text.
func visible(text string) string {
	return `(() => {
		const text = ` + strconv.Quote(text) + `, seen = (e) => e.checkVisibility() && e.getBoundingClientRect().width > 0;
		const all = [...(document.querySelector("dialog[open]") || document).querySelectorAll("a, button, summary")].filter(seen);
		return all.find((e) => e.innerText.trim() === text) || all.find((e) => e.innerText.includes(text));
	})()`
}

// press clicks where a person sees a link or a button with the text. Parts of a page are replaced as things happen:
// like a person, it presses again what it has missed.
func (b *browser) press(text string) {
	b.t.Helper()
	deadline := time.Now().Add(testdb.Patience)
	for pressed := false; !pressed; {
		require.True(b.t, time.Now().Before(deadline), "could not press %q", text)
		b.awaits(`document.readyState === "complete" && ` + visible(text)) // its scripts have run
		var at struct{ X, Y float64 }
		b.run(chromedp.Evaluate(`(() => {
			const e = `+visible(text)+`;
			window.pressed = false;
			document.addEventListener("click", (ev) => {
				window.pressed = !!ev.target.closest("a, button, summary")?.innerText.includes(`+strconv.Quote(text)+`);
			}, {capture: true, once: true});
			if (!e) return {X: 0, Y: 0};
			e.scrollIntoView({block: "center"});
			const r = e.getBoundingClientRect();
			return {X: r.x + r.width / 2, Y: r.y + r.height / 2};
		})()`, &at))
		b.run(chromedp.MouseClickXY(at.X, at.Y))
		if chromedp.Run(b.ctx, chromedp.Evaluate(`window.pressed !== false`, &pressed)) != nil {
			pressed = true // another page is on its way, or there: that knows nothing of it
		}
	}
}

// writes types a text into the field that a person sees under a label, in place of what is in it.
func (b *browser) writes(label, text string) {
	b.t.Helper()
	field := `[...document.querySelectorAll("label")].find((l) => l.checkVisibility() && l.innerText.startsWith(` + strconv.Quote(label) + `))?.control`
	b.awaits(field)
	b.run(chromedp.Evaluate(field+`.focus() || `+field+`.select()`, nil), chromedp.KeyEvent(kb.Delete), chromedp.KeyEvent(text))
}

// shows waits until a person reads the text on the page.
func (b *browser) shows(text string) {
	b.t.Helper()
	b.awaits(`document.querySelector("main")?.innerText.includes(` + strconv.Quote(text) + `)`)
}

// serves runs a worker of one type until the test ends.
func (w *world) serves(typ string, handle func(args map[string]string) error) {
	w.t.Helper()
	c, err := consumer.New(consumer.Config{Database: w.db, WorkerID: "courier"})
	require.NoError(w.t, err)
	require.NoError(w.t, consumer.Handle(c, model.NewType[map[string]string, any](typ), func(_ context.Context, task *consumer.Task[map[string]string]) (any, error) {
		return nil, handle(task.Args)
	}))
	w.runs(c.Run)
	w.await("/workers", func(doc map[string]any) bool { return len(doc["workers"].([]any)) > 0 })
}

// A first-time user sends a task that fails, reads why, mends it and retries it at once. The tours know no address, and
// press only what is visible.
func TestATourLeadsFromTheFirstTaskToOneThatIsMendedWhileItIsRetried(t *testing.T) {
	w, b := browse(t)
	w.serves("deliver", func(args map[string]string) error {
		if args["to"] != "Main Street 17" {
			return consumer.RetryAfter(time.Hour, errors.New("there is no house at "+args["to"])) // the person is quicker
		}
		return nil
	})
	b.size(1440, 900, false)
	b.visit(w.url + "/ui/")
	b.press("Send a task")
	b.awaits(`document.querySelector("datalist option[value=deliver]")`) // which the browser suggests
	b.writes("Type", "deliver")
	b.writes("Arguments", `{"to": "Main Street 71"}`)
	b.press("Send")
	b.shows("there is no house at Main Street 71")
	b.press("Edit")
	b.writes("Arguments", `{"to": "Main Street 17"}`)
	b.press("Save")
	b.press("Retry now")
	b.shows("Success")
	b.press("Overview")
	b.shows("Types")
	b.awaits(`!document.querySelector("main").innerText.includes("There are no tasks yet")`)
	b.quiet()
}

// A first-time user finds a task that failed for good, reads why, mends it and sends it again.
func TestATourLeadsFromTheOverviewToATaskThatFailedForGoodAndIsMended(t *testing.T) {
	w, b := browse(t)
	w.serves("deliver", func(args map[string]string) error {
		if args["to"] != "Main Street 17" {
			return consumer.Fatal(errors.New("there is no house at " + args["to"]))
		}
		return nil
	})
	w.call(http.MethodPost, "/tasks", map[string]any{"type": "deliver", "key": "parcel-17", "priority": 7, "args": map[string]any{"to": "Main Street 71"}, "options": map[string]any{"timeout": "90s"}})
	w.await("/tasks/-/deliver/parcel-17", hasStatus("Failure"))

	b.size(1440, 900, false)
	b.visit(w.url + "/ui/")
	b.press("task failed for good")
	b.press("-/deliver/parcel-17")
	b.shows("there is no house at Main Street 71")
	b.press("Change and send again")
	b.awaits(`document.querySelector("#f-args")?.value.includes("Main Street 71")`)
	require.Equal(t, "type: deliver\nkey: parcel-17\nargs:\n  to: Main Street 71\npriority: 7\nexisting:\n  - restart-failed\noptions:\n  timeout: 1m30s\n", b.value("#source"))
	b.writes("Arguments", `{"to": "Main Street 17"}`)
	b.press("Send")
	b.shows("Success")
	b.shows("Lives of the key")
	b.press("Overview")
	b.shows("Nothing needs you.")
	again := w.call(http.MethodGet, "/tasks/-/deliver/parcel-17", nil)
	require.EqualValues(t, 7, again["priority"])
	require.Equal(t, map[string]any{"execution_timeout_ms": 90_000.}, again["options"])
	b.quiet()
}
