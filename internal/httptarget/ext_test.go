package httptarget

import (
	"encoding/json"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/httpcall"
)

const someExt = `{"region": "eu \"1\"", "n": 17, "on": true, "none": null, "hosts": [{"name": "a/b"}, "c"], "": 1}`

func TestExtStandsInEveryPlaceOfARequest(t *testing.T) {
	target := Target{
		URL:     "http://h/{{ext.hosts.0.name}}?r={{ ext.region }}&n={{ext.n}}",
		Headers: map[string]string{"X-Region": "{{ext.region}}", "X-Hosts": "{{ext.hosts}}"},
		Body:    `{"text": "{{ext.region}} {{ext.n}} {{ext.on}} {{ext.none}}", "all": "{{ext.hosts}}", "value": {{ext.hosts}}, "region": {{ext.region}}, "n": {{ext.n}}, "none": {{ext.none}}, "quote": "\"{{ext.n}}"}`,
	}
	require.NoError(t, target.Check("http"))
	require.NoError(t, target.CheckExt("http", json.RawMessage(someExt)))
	v := run
	v.Ext = json.RawMessage(someExt)
	r, err := target.Fill(v)
	require.NoError(t, err)
	u, err := url.Parse(r.URL)
	require.NoError(t, err)
	require.Equal(t, "/a/b", u.Path)
	require.Equal(t, url.Values{"r": {`eu "1"`}, "n": {"17"}}, u.Query())
	require.NoError(t, httpcall.ValidHeader("headers", "X", r.Headers["X-Hosts"]))
	require.Equal(t, `eu%20"1"`, r.Headers["X-Region"])
	require.JSONEq(t, `{"text": "eu \"1\" 17 true null", "all": "[{\"name\":\"a/b\"},\"c\"]", "value": [{"name": "a/b"}, "c"],
		"region": "eu \"1\"", "n": 17, "none": null, "quote": "\"17"}`, r.Body)

	whole := Target{URL: "http://h", Body: `{"ext": {{ext}}, "text": "{{ext}}"}`}
	require.NoError(t, whole.Check("http"))
	r, err = whole.Fill(v)
	require.NoError(t, err)
	var body struct {
		Ext  json.RawMessage
		Text string
	}
	require.NoError(t, json.Unmarshal([]byte(r.Body), &body))
	require.JSONEq(t, someExt, string(body.Ext))
	require.JSONEq(t, someExt, body.Text)

	text := Target{URL: "http://h", Body: "region {{ext.region}} of {{ext.hosts}}"}
	require.NoError(t, text.Check("http"))
	r, err = text.Fill(v)
	require.NoError(t, err)
	require.Equal(t, `region eu "1" of [{"name":"a/b"},"c"]`, r.Body, "a body that is no JSON takes it as it is")
}

func TestAPlaceholderForWhatExtHasNotIsRefused(t *testing.T) {
	for text, says := range map[string]string{
		"{{ext}}":                   "",
		"{{ext.region}}":            "",
		"{{ext.hosts.1}}":           "",
		"{{ext.zone}}":              `http.headers.X has the placeholder "ext.zone", but the rule's ext does not contain this value`,
		"{{ext.region.name}}":       `"ext.region.name"`,
		"{{ext.hosts.2}}":           `"ext.hosts.2"`,
		"{{ext.hosts.-1}}":          `"ext.hosts.-1"`,
		"{{ext.hosts.0.name.more}}": `"ext.hosts.0.name.more"`,
	} {
		target := Target{URL: "http://h", Headers: map[string]string{"X": text}}
		require.NoError(t, target.Check("http"), text)
		err := target.CheckExt("http", json.RawMessage(someExt))
		if says == "" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorContains(t, err, says)
		v := run
		v.Ext = json.RawMessage(someExt)
		_, err = target.Fill(v)
		require.Error(t, err, "and a task that was made otherwise fails")
	}
	for _, ext := range []string{"", "null"} {
		target := Target{URL: "http://h/{{ext}}"}
		require.ErrorContains(t, target.CheckExt("http", json.RawMessage(ext)), "http.url", "there is none: %q", ext)
	}
	for _, text := range []string{"{{ext.}}", "{{ext..a}}", "{{extra}}", "{{.ext}}"} {
		require.ErrorContains(t, (&Target{URL: "http://h/" + text}).Check("http"), "which is unknown", text)
	}
	require.ErrorContains(t, (&Target{URL: "http://h", Body: `{"a": {{name}}}`}).Check("http"), "JSON", "only ext may stand outside of a string")
}
