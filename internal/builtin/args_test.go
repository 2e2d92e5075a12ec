package builtin

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
)

// Each line: type, arguments, and the fields that the error must name.
var badArgs = []struct {
	typ, args string
	fields    []string
}{
	{"http", ``, []string{"args.url is missing; want an http or https URL"}},
	{"http", `null`, []string{"args.url is missing"}},
	{"http", `{}`, []string{"args.url is missing"}},
	{"http", `{"url":null}`, []string{"args.url is missing"}},
	{"http", `{"method":"get"}`, []string{"args.url is missing", "args.method"}},
	{"http", `{"url":""}`, []string{"args.url is empty; want an http or https URL"}},
	{"http", `[]`, []string{"args is a JSON array; want an object"}},
	{"http", `{"url":7}`, []string{"args.url is a JSON number; want a string"}},
	{"http", `{"url":"example.org"}`, []string{"args.url", "http://"}},
	{"http", `{"url":"http://"}`, []string{"args.url", "names no host"}},
	{"http", `{"url":"http://a b/"}`, []string{"args.url is not a URL"}},
	{"http", `{"url":"http://x","method":"get"}`, []string{"args.method"}},
	{"http", `{"url":"http://x","method":"A B"}`, []string{"args.method"}},
	{"http", `{"url":"http://x","method":"CONNECT"}`, []string{"args.method"}},
	{"http", `{"url":"http://x","headers":{"a b":"1"}}`, []string{"args.headers.a b"}},
	{"http", `{"url":"http://x","headers":{"a":"1\r\nb: 2"}}`, []string{"args.headers.a"}},
	{"http", `{"url":"http://x","headers":{"mscheduler-task-id":"1"}}`, []string{"args.headers.mscheduler-task-id is set by the worker"}},
	{"http", `{"url":"http://x","headers":{"a":1}}`, []string{"args.headers"}},
	{"http", `{"url":"http://x","timeout_ms":-1}`, []string{"args.timeout_ms"}},
	{"http", `{"url":"http://x","timeout_ms":1.5}`, []string{"args.timeout_ms is a JSON number 1.5; want a whole number"}},
	{"http", `{"url":"http://x","timeout_ms":3600001}`, []string{"args.timeout_ms"}},
	{"http", `{"url":"http://x","expect":[99]}`, []string{"args.expect has 99"}},
	{"http", `{"url":"http://x","expect":["9xx"]}`, []string{`args.expect has "9xx"`}},
	{"http", `{"url":"http://x","expect":["300-200"]}`, []string{"args.expect"}},
	{"http", `{"url":"http://x","expect":200}`, []string{"args.expect is a JSON number; want an array"}},
	{"http", `{"url":"http://x","max_redirects":21}`, []string{"args.max_redirects"}},
	{"http", `{"url":"","timeout_ms":-1}`, []string{"args.url", "args.timeout_ms"}},
	{"exec", ``, []string{"args.argv is missing; want the program"}},
	{"exec", `{"dir":"/"}`, []string{"args.argv is missing"}},
	{"exec", `{"argv":[]}`, []string{"args.argv is empty"}},
	{"exec", `{"argv":[""]}`, []string{"args.argv is empty"}},
	{"exec", `{"argv":"ls -l"}`, []string{"args.argv is a JSON string; want an array"}},
	{"exec", `{"argv":["a","b\u0000"]}`, []string{"args.argv[1]"}},
	{"exec", `{"argv":["a"],"env":{"A=B":"1"}}`, []string{"args.env"}},
	{"exec", `{"argv":["a"],"env":{"MSCHEDULER_X":"1"}}`, []string{"args.env.MSCHEDULER_X"}},
	{"exec", `{"argv":["a"],"dir":"tmp"}`, []string{"args.dir"}},
	{"exec", `{"argv":["a"],"timeout_ms":-1}`, []string{"args.timeout_ms"}},
}

func TestBadArgumentsNameTheField(t *testing.T) {
	for _, c := range badArgs {
		err := CheckArgs(c.typ, json.RawMessage(c.args))
		require.ErrorIs(t, err, model.ErrInvalid, "%s %s", c.typ, c.args)
		for _, f := range c.fields {
			require.ErrorContains(t, err, f, "%s %s", c.typ, c.args)
		}
	}
}

func TestPasswordInAURLIsNotRepeated(t *testing.T) {
	for _, args := range []string{`{"url":"ftp://u:hidden@h/"}`, `{"url":"http://u:hidden@ h/"}`} {
		err := CheckArgs("http", json.RawMessage(args))
		require.Error(t, err)
		require.NotContains(t, err.Error(), "hidden")
	}
}

func TestUnknownArgumentsAreAMistakeOfTheSenderOnly(t *testing.T) {
	args := json.RawMessage(`{"url":"http://x","timout_ms":5}`)
	require.EqualError(t, CheckArgs("http", args), "args.timout_ms is not an argument of this type; want url, method, headers, body, timeout_ms, expect, max_redirects")
	require.NoError(t, decode(args, &HTTPArgs{}, false), "a worker bears with what a later release added")
	require.NoError(t, CheckArgs("other", json.RawMessage(`{"anything":1}`)))
}

// A reader that ignores case would take it for the argument whose credentials are hidden.
func TestAnArgumentHasItsNameExactly(t *testing.T) {
	args := json.RawMessage(`{"url":"http://x","URL":"http://y","headers":{"A":"b"}}`)
	require.EqualError(t, CheckArgs("http", args), "args.URL is not an argument of this type; its name is url")
	require.Error(t, decode(args, &HTTPArgs{}, false), "nor does a worker take it")
}

func TestGoodArguments(t *testing.T) {
	for typ, args := range map[string]string{
		"http": `{"url":"https://u:p@example.org:8443/x?y#z","method":"PATCH","headers":{"A":"b\tc"},"body":[1],"timeout_ms":3600000,"expect":[200,"404","3xx","500-599"],"max_redirects":0}`,
		"exec": `{"argv":["sh","-c","true"],"env":{"A":""},"dir":"/","stdin":{"a":1},"timeout_ms":1}`,
	} {
		require.NoError(t, CheckArgs(typ, json.RawMessage(args)))
	}
}

func FuzzArgumentsNeverPanic(f *testing.F) {
	for _, c := range badArgs {
		f.Add(c.args)
	}
	f.Fuzz(func(t *testing.T, args string) {
		for _, typ := range []string{"http", "exec"} {
			if err := CheckArgs(typ, json.RawMessage(args)); err != nil {
				require.ErrorIs(t, err, model.ErrInvalid)
				require.True(t, strings.HasPrefix(err.Error(), "args"), err.Error())
			}
		}
	})
}

func TestArgumentsOfNodesAreCheckedUnlessTheyReferToValues(t *testing.T) {
	nodes := []graph.NodeSpec{
		{ID: "own", Type: "t", Args: 1},
		{ID: "refers", Type: "http", Args: map[string]any{"url": map[string]any{"$output": "own.url"}}},
		{ID: "good", Type: "http", Args: json.RawMessage(`{"url": "http://example.org"}`)},
	}
	require.NoError(t, CheckNodes(nodes))
	err := CheckNodes(append(nodes, graph.NodeSpec{ID: "none", Type: "exec"}))
	require.ErrorIs(t, err, model.ErrInvalid)
	require.ErrorContains(t, err, "nodes[3].args.argv")
}
