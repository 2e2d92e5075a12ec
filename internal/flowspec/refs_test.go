package flowspec

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

func templateOf(t *testing.T, text string) bson.RawValue {
	t.Helper()
	v, err := codec.EncodeTemplate("args", json.RawMessage(text), input.MaxArgsBytes)
	require.NoError(t, err)
	return v
}

func TestReferencesAreReplacedByOutputs(t *testing.T) {
	outputs := map[string]bson.RawValue{
		"pay":  templateOf(t, `{"receipt":{"no":"r7"},"items":[{"price":5},{"price":6}],"price of $":"$","nothing":null}`),
		"ship": templateOf(t, `[1,[2,3]]`),
		"text": templateOf(t, `"hello"`),
		"0":    templateOf(t, `{"0":"zero"}`),
	}
	for template, want := range map[string]string{
		`null`:                                 `null`,
		`5`:                                    `5`,
		`"$output"`:                            `"$output"`,
		`{}`:                                   `{}`,
		`{"$output":"pay.receipt.no"}`:         `"r7"`,
		`{"$output":"text"}`:                   `"hello"`,
		`{"$output":"ship"}`:                   `[1,[2,3]]`,
		`{"$output":"ship.1.0"}`:               `2`,
		`{"$output":"ship.2"}`:                 `null`,
		`{"$output":"ship.01"}`:                `null`,
		`{"$output":"ship.-1"}`:                `null`,
		`{"$output":"ship.length"}`:            `null`,
		`{"$output":"text.x"}`:                 `null`,
		`{"$output":"pay.nothing"}`:            `null`,
		`{"$output":"pay.nothing.x"}`:          `null`,
		`{"$output":"none"}`:                   `null`,
		`{"$output":"none.x"}`:                 `null`,
		`{"$output":"pay.items.1.price"}`:      `6`,
		`{"$output":"pay.items.1"}`:            `{"price":6}`,
		`{"$output":"0.0"}`:                    `"zero"`,
		`{"$output":"pay.price of $"}`:         `"$"`,
		`[{"$output":"ship.0"},{"a":"$"},"b"]`: `[1,{"a":"$"},"b"]`,
		`{"a":{"b":[{"$output":"pay.receipt"}]},"c":{"$output":"none"},"d":1.5,"e":[true]}`: `{"a":{"b":[{"no":"r7"}]},"c":null,"d":1.5,"e":[true]}`,
	} {
		got, err := Resolve(templateOf(t, template), func(node string) bson.RawValue { return outputs[node] })
		require.NoError(t, err, template)
		require.NoError(t, input.Args(got), template)
		require.Equal(t, want, jsonOf(got), template)
		require.Equal(t, want == "null", got.Type == 0, "a null is nothing: %s", template)
	}
}

func TestRefsAreTheNodesOfATemplate(t *testing.T) {
	for template, want := range map[string][]string{
		`null`:                  nil,
		`{"a":"$output"}`:       nil,
		`{"$output":"pay.x.y"}`: {"pay"},
		`[{"$output":"b"},{"x":{"$output":"a.0"},"y":[{"$output":"b.c"}]},"$output"]`: {"a", "b"},
	} {
		require.Equal(t, want, Refs(templateOf(t, template)), template)
	}
}

func TestResolvedArgumentsAreBounded(t *testing.T) {
	large := templateOf(t, `"`+strings.Repeat("x", 100_000)+`"`)
	refs := strings.Repeat(`{"$output":"n"},`, 5000)
	_, err := Resolve(templateOf(t, `[`+refs[:len(refs)-1]+`]`), func(string) bson.RawValue { return large })
	require.ErrorIs(t, err, model.ErrInvalid)
	require.EqualError(t, err, "args has more than 262144 bytes as BSON when its references are filled in; at most that many are allowed")

	result := templateOf(t, `"`+strings.Repeat("x", 262_132)+`"`) // with the list around it a little too much
	_, err = Resolve(templateOf(t, `[{"$output":"n"}]`), func(string) bson.RawValue { return result })
	require.ErrorIs(t, err, model.ErrInvalid)
	require.EqualError(t, err, "args has 262145 bytes as BSON; at most 262144 are allowed")

	nested := templateOf(t, strings.Repeat("[", 50)+strings.Repeat("]", 50))
	_, err = Resolve(templateOf(t, strings.Repeat("[", 40)+`{"$output":"n"}`+strings.Repeat("]", 40)), func(string) bson.RawValue { return nested })
	require.NoError(t, err)
	_, err = Resolve(templateOf(t, strings.Repeat("[", 41)+`{"$output":"n"}`+strings.Repeat("]", 41)), func(string) bson.RawValue { return nested })
	require.EqualError(t, err, "args"+strings.Repeat("[0]", 41)+" is nested deeper than 90 levels")
}

func TestATemplateThatIsNoneIsRefused(t *testing.T) {
	for template, want := range map[string]string{
		`{"$arg":"x"}`:          "args.$arg is no reference to an output",
		`[{"$output":7}]`:       "args[0].$output is no reference to an output",
		`{"a":1,"$output":"n"}`: "args.$output has a name that starts with $, which is only for a reference that is alone in its object",
	} {
		_, err := Resolve(templateOf(t, template), func(string) bson.RawValue { return bson.RawValue{} })
		require.EqualError(t, err, want, template)
	}
}
