package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

func TestTheCallbackOfAnEndedTaskIsExplained(t *testing.T) {
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	told := model.Options{Callback: &model.Callback{Success: &model.CallbackTarget{URL: "https://h/done"}, Error: &model.CallbackTarget{URL: "https://h/failed"}}}
	claimed := ago(time.Minute)
	done := func(out lifecycle.Outcome) *model.Task {
		return begin(t, ago(time.Hour), lifecycle.Draft{Options: told}).claim("w1", claimed).finish("w1", claimed, out, ago(50*time.Second)).doc
	}
	ok, useless := lifecycle.Outcome{}, lifecycle.Failed(failkind.Fatal, "useless")
	delivery := func() *life { return &life{t, lifecycle.NewTask(lifecycle.Delivery(done(ok)), ago(40*time.Second))} }
	answered, err := codec.EncodeValue("result", map[string]int{"status": 204}, 100)
	require.NoError(t, err)
	tried := func(out lifecycle.Outcome) *model.Task {
		return delivery().claim("w2", ago(39*time.Second)).finish("w2", ago(39*time.Second), out, ago(30*time.Second)).doc
	}
	retried := tried(lifecycle.Failed(failkind.Error, "it answered 503").After(time.Hour))
	const notKept = "The task and its key are kept until the delivery has ended"
	for name, c := range map[string]struct {
		out      lifecycle.Outcome
		handed   bool
		delivery *model.Task
		want     []string
	}{
		"not handed over": {ok, false, nil, []string{"The delivery task of its callback does not exist yet", notKept}},
		"a failure's, being tried": {useless, true, retried, []string{
			"Its callback is being delivered. Status of the delivery: Error, after 1 error, last error: it answered 503, next attempt", "task explain 'mscheduler.callback/", notKept,
		}},
		"a success's, under way": {ok, true, delivery().claim("w2", ago(time.Second)).doc, []string{"being delivered. Status of the delivery: Executing.", notKept}},
		"cancelled":              {ok, true, delivery().cancel(ago(time.Second)).doc, []string{"was cancelled at", "no longer needed", "task redeliver 't/k'"}},
		"a failure's, refused": {useless, true, tried(lifecycle.Failed(failkind.Fatal, "410 Gone")), []string{
			"could not be delivered. The delivery has been in status Failure since", "410 Gone", "task redeliver 't/k'",
		}},
		"delivered":       {useless, true, tried(lifecycle.Success(answered)), []string{"Its callback was delivered at", "answered 204"}},
		"taken out":       {ok, true, tried(ok), []string{"but it was no longer configured"}},
		"not kept":        {ok, true, nil, []string{"could not be delivered, and the delivery task has expired"}},
		"nobody was told": {lifecycle.Outcome{NoCallback: true}, true, nil, []string{"It has no callback", "The task and its key are kept until"}},
	} {
		t.Run(name, func(t *testing.T) {
			doc := done(c.out)
			if c.handed {
				doc.Outbox, doc.OutboxAt = nil, time.Time{}
			}
			r := Explain(Facts{Task: doc, Now: now, Delivery: c.delivery})
			text := strings.Join(append(r.Because, r.Next...), "\n")
			for _, want := range c.want {
				require.Contains(t, text, want)
			}
		})
	}
}
