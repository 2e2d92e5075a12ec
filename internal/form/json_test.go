package form

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// filled repeats the middle until the text has 8 MiB, which is what a request may have.
func filled(first, middle, last string) []byte {
	return []byte(first + strings.Repeat(middle, (8<<20)/len(middle)) + last)
}

// With a look at all that is before each value, each of these would take hours.
func TestJSONOnOneLineIsReadOnce(t *testing.T) {
	type batch struct {
		Tasks []Task `json:"tasks,omitzero"`
	}
	for name, body := range map[string][]byte{
		"numbers":  filled(`{"tasks": [{"args": [1`, ",1", `]}]}`),
		"objects":  filled(`{"tasks": [{"args": [{}`, `,{"a": "b"}`, `]}]}`),
		"names":    filled(`{"tasks": [{"args": {"a": 1`, `,"b": 1`, `}}]}`),
		"brackets": filled(`{"tasks": [{"args": ["`, `[\"{`, `"]}]}`),
	} {
		allocated := testing.AllocsPerRun(1, func() {
			doc, err := ReadJSON[batch]("body", 1, body, "the body")
			require.NoError(t, err, name)
			require.Len(t, doc.Form.Tasks[0].Args, len(body)-len(`{"tasks": [{"args": }]}`), name)
		})
		require.Less(t, allocated, 1000.0, "%s: nothing is made of what is kept as it is", name)
	}
	doc, err := ReadJSON[batch]("body", 1, filled(`{"tasks": [{"type": "t"}`, `,{"type": "t", "args": {"to": "somebody", "parts": [1, 2, 3]}}`, `]}`), "the body")
	require.NoError(t, err)
	require.Greater(t, len(doc.Form.Tasks), 100_000)
}

func TestMistakesAndValuesOfALargeTextAreBounded(t *testing.T) {
	_, err := ReadJSON[Task]("f", 1, filled(`{"a": 1`, `,"b": 1`, `}`), "a task")
	require.ErrorContains(t, err, "f:1:3500000: is too large: more than 500000 values")
	require.ErrorIs(t, err, model.ErrInvalid)

	_, err = ReadJSON[Task]("f", 1, []byte(`{"a": 1`+strings.Repeat(`,"b": 1`, 100_000)+`}`), "a task")
	lines := said(err)
	require.Len(t, lines, maxMistakes+1)
	require.Contains(t, lines[99], "f:1:695: b is not known in a task")
	require.Equal(t, "f:1:702: b is wrong, too; more mistakes are not listed", lines[100])

	_, err = ReadJSON[Task]("f", 1, filled(``, "[", ``), "a task")
	require.ErrorContains(t, err, "f:1:202: is nested too deeply")
	_, err = ReadJSON[Task]("f", 1, filled(`{"args": [1`, ",1", `,]}`), "a task")
	require.ErrorContains(t, err, "f:1:8388621: not JSON: invalid character ']' looking for beginning of value")
}

// Lines and columns are counted in characters, wherever the mistake is.
func TestAMistakeInJSONHasItsPlace(t *testing.T) {
	const body = `{
  "key": "öß\n\"😀", "prio": 1, "args": {"é": ["日本", {"b": "x"}], "é\"": {"c":
     [1, nope]}}
}`
	_, err := ReadJSON[Task]("f", 3, []byte(body), "a task")
	require.EqualError(t, err, "f:5:11: not JSON: invalid character 'o' in literal null (expecting 'u')")

	doc, err := ReadJSON[Task]("f", 3, []byte(strings.Replace(body, "nope", "null", 1)), "a task")
	require.ErrorContains(t, err, "f:4:21: prio is not known in a task")
	for field, at := range map[string]string{
		"args": "f:4:40: ", "args.é": "f:4:46: ", "args.é[1]": "f:4:53: ", "args.é[1].b": "f:4:59: ", "args.é[2]": "f:4:46: ", `args.é".c[1]`: "f:5:10: ",
		"args.x": "f:4:40: ", "key": "f:4:10: ", "options": "f:3:1: ", "": "f:3:1: ",
	} {
		require.Contains(t, doc.Locate(input.Invalid(field, "is wrong")).Error(), at, field)
	}
	require.Equal(t, "f:3:1", doc.Where())
	require.Equal(t, "öß\n\"😀", *doc.Form.Key)
}
