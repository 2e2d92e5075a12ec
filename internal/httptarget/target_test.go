package httptarget

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

var run = Values{
	RunID: "r@2026-01-02T03:04:05Z", TaskID: "-/mscheduler.http/r", Name: `a "b" & c`,
	NominalTime: time.Date(2026, 1, 2, 4, 4, 5, 0, time.FixedZone("", 3600)), Attempt: 2, CompletionURL: "https://cb/x?y=1&z",
}

func TestEachPlaceTakesAValueAsItselfOnly(t *testing.T) {
	target := Target{
		URL: "http://h/{{name}}/x?at={{ nominal_time }}&back={{callback_url}}", Mode: schedule.HTTPAsync,
		Headers: map[string]string{"X-Run": "run {{run_id}} {{name}}"},
		Body:    `{"name":"{{name}}","attempt":{{attempt}},"task":"{{task_id}}"}`,
	}
	require.NoError(t, target.Check("http"))
	r, err := target.Fill(run)
	require.NoError(t, err)
	u, err := url.Parse(r.URL)
	require.NoError(t, err)
	require.Equal(t, "/"+run.Name+"/x", u.Path)
	require.Equal(t, url.Values{"at": {"2026-01-02T03:04:05Z"}, "back": {run.CompletionURL}}, u.Query())
	require.Equal(t, map[string]string{"X-Run": `run r@2026-01-02T03:04:05Z a%20"b"%20&%20c`, "Content-Type": "application/json"}, r.Headers)
	require.JSONEq(t, `{"name":"a \"b\" & c","attempt":2,"task":"-/mscheduler.http/r"}`, r.Body)
	require.Equal(t, "POST", r.Method)
}

func TestABodyThatIsNoJSONTakesValuesAsTheyAre(t *testing.T) {
	for name, target := range map[string]Target{
		"plain text":           {URL: "http://h", Body: "run of {{name}}"},
		"a text with brackets": {URL: "http://h", Body: "[run] of {{name}}"},
		"a placeholder":        {URL: "http://h", Body: "{{name}}"},
		"looks like it":        {URL: "http://h", Body: `{ {{name}} }`, Headers: map[string]string{"content-type": "text/plain"}},
		"said to be no JSON":   {URL: "http://h", Body: `"{{name}}"`, Headers: map[string]string{"content-type": "text/plain; charset=utf-8"}},
	} {
		require.NoError(t, target.Check("http"), name)
		r, err := target.Fill(run)
		require.NoError(t, err)
		require.Contains(t, r.Body, run.Name, name)
		require.Empty(t, r.Headers["Content-Type"], name)
	}
}

func TestWhatIsWrongNamesItsField(t *testing.T) {
	for says, target := range map[string]Target{
		"http.url is empty":                                              {},
		"http.url has a placeholder before its path":                     {URL: "http://{{name}}/"},
		"http.url has a placeholder before its path; ":                   {URL: "http://{{name}}@h/"},
		`http.url has the placeholder "tick", which is unknown`:          {URL: "http://h/{{tick}}"},
		"http.url has {{ without }}":                                     {URL: "http://h/{{name"},
		`http.headers.A has the placeholder "x"`:                         {URL: "http://h", Headers: map[string]string{"A": "{{x}}"}},
		"http.headers.Mscheduler-X is set by the worker":                 {URL: "http://h", Headers: map[string]string{"Mscheduler-X": ""}},
		"http.headers.B has a character":                                 {URL: "http://h", Headers: map[string]string{"B": "a\nb"}},
		"http.body is not JSON after its placeholders are filled":        {URL: "http://h", Headers: map[string]string{"Content-Type": "application/json"}, Body: `{"a":{{name}}}`},
		"http.body has 32769 bytes":                                      {URL: "http://h", Body: strings.Repeat("x", maxBodyBytes+1)},
		"http.timeout is -1s":                                            {URL: "http://h", Timeout: -time.Second},
		"http.timeout is 1µs":                                            {URL: "http://h", Timeout: time.Microsecond},
		"http.mode is \"async\"; want SYNC or ASYNC":                     {URL: "http://h", Mode: "async"},
		"http.callback_timeout is 1m0s, but mode SYNC has no completion": {URL: "http://h", CompletionTimeout: time.Minute},
		"http.callback_timeout is 2400h0m0s; want":                       {URL: "http://h", Mode: schedule.HTTPAsync, CompletionTimeout: 2400 * time.Hour},
		"http.expect has 9-1":                                            {URL: "http://h", Expect: []schedule.StatusRange{{From: 9, To: 1}}},
		"http.method is \"get\"":                                         {URL: "http://h", Method: "get"},
		"http.url has a user or password":                                {URL: "http://u:p@h/"},
		"http.url has a user or password, which would be visible":        {URL: "http://u@h/"},
		"http.headers.authorization is the same header as Auth":          {URL: "http://h", Headers: map[string]string{"Authorization": "a", "authorization": "b"}},
		"http.headers.host has a placeholder":                            {URL: "http://h", Headers: map[string]string{"host": "{{ext.host}}"}},
		"http.body looks like JSON, but is not JSON after":               {URL: "http://h", Body: ` {"a": {{run_id}}} `},
		"http.body looks like JSON, but is not JSON":                     {URL: "http://h", Body: `[{{name}}]`},
		"http.keys[0] needs an access key and a secret":                  {URL: "http://h", Keys: []callback.Key{{AccessKey: "a"}}},
	} {
		err := target.Check("http")
		require.ErrorIs(t, err, model.ErrInvalid, says)
		require.ErrorContains(t, err, says)
	}
}

func TestATargetComesBackFromItsJSON(t *testing.T) {
	target := Target{
		URL: "http://h", Method: "PUT", Headers: map[string]string{"A": "b"}, Body: "x", Timeout: time.Second, Mode: schedule.HTTPAsync,
		Expect: []schedule.StatusRange{{From: 200, To: 204}}, CompletionTimeout: time.Minute, Keys: []callback.Key{{AccessKey: "a", Secret: "s"}},
	}
	data, err := json.Marshal(target)
	require.NoError(t, err)
	var back Target
	require.NoError(t, json.Unmarshal(data, &back))
	require.Equal(t, target, back)
}

// Whatever a template says: it is refused, or each run's request is what its place allows.
func FuzzAFilledRequestIsWellFormed(f *testing.F) {
	f.Add("http://h/{{name}}", `{"a":"{{run_id}}"}`, "{{attempt}}", "na\"me")
	f.Add("https://u:p@h:1/?{{nominal_time}}#{{task_id}}", "{{name}}", "{{ name }}", "\x00\n")
	f.Add("http://h{{name}}", "{{{name}}}", "{{name", "}}{{name}}")
	f.Fuzz(func(t *testing.T, rawURL, body, header, name string) {
		target := Target{URL: rawURL, Body: body, Headers: map[string]string{"X": header}}
		if target.Check("http") != nil {
			return
		}
		v := run
		v.Name = name
		r, err := target.Fill(v)
		require.NoError(t, err, "what was checked can be filled")
		require.NoError(t, httpcall.ValidURL("url", r.URL))
		require.NoError(t, httpcall.ValidHeader("headers", "X", r.Headers["X"]))
		if r.Headers["Content-Type"] == "application/json" {
			require.True(t, json.Valid([]byte(r.Body)), r.Body)
		}
		one, err := url.Parse(r.URL)
		require.NoError(t, err)
		v.Name = "other"
		r, err = target.Fill(v)
		require.NoError(t, err)
		other, err := url.Parse(r.URL)
		require.NoError(t, err)
		require.Equal(t, one.Host, other.Host, "no value changes who is called")
	})
}
