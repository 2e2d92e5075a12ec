package codec

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/internal/input"
)

func requireSameAsByTokens(t require.TestingT, text []byte) {
	got, err := EncodeJSON("args", bytes.Clone(text), input.MaxArgsBytes)
	want, wantErr := encodeTokens("args", text, input.MaxArgsBytes, false)
	if wantErr != nil {
		require.EqualError(t, err, wantErr.Error())
		return
	}
	require.NoError(t, err)
	require.Equal(t, want, got, "%s", text)
}

func TestTheQuickWayMakesTheSameOfJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, err := json.Marshal(drawJSON(t, 4))
		require.NoError(t, err)
		if rapid.Bool().Draw(t, "indented") {
			var b bytes.Buffer
			require.NoError(t, json.Indent(&b, text, " ", "\t"))
			text = append([]byte("\r\n "), b.Bytes()...)
		}
		requireSameAsByTokens(t, text)
	})
	var keys []string
	for i := range manyKeys + 1 {
		keys = append(keys, `"`+strings.Repeat("k", i+1)+`":1`)
	}
	for _, text := range []string{
		`{"a":1,"a":2}`, `{"$a":1}`, `{"":{"":[]}}`, `[1,-2,30,-0,1.5,1e3,999999999999999999,9223372036854775807,9223372036854775808]`,
		`"a\"b\u00e9"`, "\"\xff\"", `{"a\u0062":true}`, `[true,false,null,{},[]]`, `  7  `, `{"a": [ ] , "b" : { } }`,
		strings.Repeat("[", 89) + strings.Repeat("]", 89), strings.Repeat("[", 91) + strings.Repeat("]", 91),
		`{` + strings.Join(keys[:manyKeys], ",") + `}`, `{` + strings.Join(keys, ",") + `}`,
		`"` + strings.Repeat("x", input.MaxArgsBytes) + `"`, `1 2`, `{`, `tru`,
	} {
		requireSameAsByTokens(t, []byte(text))
	}
}

func TestTheQuickWayTakesWhatArgumentsAreMadeOf(t *testing.T) {
	text := []byte(`{"user":"ann","n":-17,"tags":["a","é"],"on":true,"off":false,"none":null,"deep":{"list":[[1],[]]}}`)
	q := quickJSON{text: text}
	_, _, ok := q.value(nil, 0)
	require.True(t, ok)
	require.Equal(t, len(text), q.at)
}
