package bulk

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/form"
)

var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func parse(t *testing.T, text string) *Job {
	t.Helper()
	doc, err := form.ReadJSON[Job]("body", 1, []byte(text), "the body")
	require.NoError(t, err)
	return doc.Form
}

func TestMistakesOfJobsNameTheirFields(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                                 `action is ""; want one of cancel, retry, resolve, release, update, redeliver`,
		`{"action": "cancel"}`:               "filter says nothing, which is every task",
		`{"action": "cancel", "filter": {}}`: "filter says nothing",
		`{"action": "cancel", "filter": {"status": ["Success"]}}`:                                                  "filter.status has Success; only Wait, New, Executing, Error can be cancelled",
		`{"action": "cancel", "filter": {"status": ["Odd"]}}`:                                                      `filter.status is "Odd"`,
		`{"action": "cancel", "filter": {"arg": ["order.$id=1"]}}`:                                                 `filter.arg has the path "order.$id"`,
		`{"action": "cancel", "filter": {"type": "a/b"}}`:                                                          "filter.type is",
		`{"action": "cancel", "filter": {"type": "t", "history": "also"}}`:                                         "filter.history is \"also\"; only redeliver",
		`{"action": "redeliver", "filter": {"type": "t", "history": "all"}}`:                                       "filter.history is \"all\"; want no, also or only",
		`{"action": "cancel", "filter": {"created_after": "soon"}}`:                                                `filter.created_after is "soon"`,
		`{"action": "cancel", "filter": {"created_before": "1h"}}`:                                                 "filter.created_before is 1h from now, which selects every task; did you mean -1h?",
		`{"action": "cancel", "filter": {"created_after": "2026-01-02", "created_before": "2026-01-01"}}`:          "filter.created_after is",
		`{"action": "release", "filter": {"type": "t"}, "remark": "x"}`:                                            "remark is given; the action release has none",
		`{"action": "cancel", "filter": {"type": "t"}, "step": "x"}`:                                               "step is given",
		`{"action": "cancel", "filter": {"type": "t"}, "change": {}}`:                                              "change is given",
		`{"action": "update", "filter": {"type": "t"}}`:                                                            "change.options or another field is required",
		`{"action": "update", "filter": {"type": "t"}, "change": {}}`:                                              "change.options or another field is required",
		`{"action": "update", "filter": {"category": "c"}, "change": {"args": {"url": "http://h/?token=***"}}}`:    "change.args.url has ***",
		`{"action": "update", "filter": {"type": "t"}, "change": {"key": "k"}}`:                                    "change.key cannot be changed",
		`{"action": "update", "filter": {"type": "t"}, "change": {"start_time": "soon"}}`:                          "change.start_time is",
		`{"action": "update", "filter": {"type": "t"}, "change": {"options": {"callback": {"on_pending": true}}}}`: "change.options.callback cannot be changed by a job",
	} {
		_, err := parse(t, text).check(noon)
		require.ErrorContains(t, err, want, text)
	}
}

// What a job says must mean the same when it is read again, hours later.
func TestAStoredJobMeansTheSameLater(t *testing.T) {
	j := parse(t, `{"action": "update", "filter": {"tenant": "acme", "created_after": "-2h"}, "change": {"start_time": "5m", "priority": 3, "options": {"expires_at": "1h", "timeout": "90s"}}, "dry_run": false}`)
	before, err := j.check(noon)
	require.NoError(t, err)
	require.Equal(t, noon, before.filter.Before)
	require.Equal(t, noon.Add(-2*time.Hour), before.filter.After)
	require.Equal(t, Update.ByDefault, before.filter.Statuses)
	args, err := json.Marshal(j)
	require.NoError(t, err)
	again, after, err := read(args)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.Equal(t, "2026-01-31T12:05:00Z", string(*again.Change.StartTime))
	require.Equal(t, "2026-01-31T13:00:00Z", string(*again.Change.Options.ExpiresAt))
	require.Equal(t, j, again)
	_, _, err = read([]byte(`{"action": "cancel", "filter": {"type": "t"}}`))
	require.ErrorContains(t, err, "args are not those of a job")
}
