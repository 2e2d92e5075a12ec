package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// drawJSON is any value that EncodeJSON must take.
func drawJSON(t *rapid.T, depth int) any {
	kind := rapid.IntRange(0, 8).Draw(t, "kind")
	if depth == 0 {
		kind %= 6
	}
	switch kind {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.String().Draw(t, "string")
	case 3:
		return json.Number(strconv.FormatInt(rapid.Int64().Draw(t, "int"), 10))
	case 4:
		f := rapid.Float64().Filter(func(f float64) bool { return !math.IsInf(f, 0) && !math.IsNaN(f) }).Draw(t, "float")
		s := strconv.FormatFloat(f, 'g', -1, 64)
		if !strings.ContainsAny(s, ".e") {
			s += ".0"
		}
		return json.Number(s)
	case 5:
		return rapid.SampledFrom([]string{"", "$x", "\u2028", "a\x00b", "<&>", "\xff"}).Draw(t, "odd string")
	case 6, 7:
		n := rapid.IntRange(0, 4).Draw(t, "length")
		out := make([]any, n)
		for i := range out {
			out[i] = drawJSON(t, depth-1)
		}
		return out
	default:
		out := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "fields") {
			key := rapid.StringMatching(`[a-c._ é"\\/]{0,3}`).Draw(t, "key")
			out[key] = drawJSON(t, depth-1)
		}
		return out
	}
}

// numbers makes equal numbers equal texts: 1.0 is stored as the double 1, which is
// written 1.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil && v.String() != "-0" {
			return strconv.FormatInt(n, 10)
		}
		f, _ := v.Float64()
		if f == math.Trunc(f) && math.Abs(f) < 1e21 && (f != 0 || !math.Signbit(f)) {
			return strconv.FormatFloat(f, 'f', -1, 64)
		}
		return fmt.Sprint(f)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = numbers(v[i])
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k := range v {
			out[k] = numbers(v[k])
		}
		return out
	default:
		return v
	}
}

func decodeJSON(data []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return numbers(v), err
}

func TestValuesRoundTripAsEncodingJSON(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		data, err := json.Marshal(drawJSON(r, 4))
		require.NoError(r, err)
		want, err := decodeJSON(data)
		require.NoError(r, err)

		stored, err := EncodeJSON("args", data, input.MaxArgsBytes)
		require.NoError(r, err, "%s", data)
		if stored.Type != 0 {
			require.NoError(r, stored.Validate())
		}
		got, err := decodeJSON(ValueJSON(stored))
		require.NoError(r, err, "%s", ValueJSON(stored))
		require.Equal(r, want, got, "%s", data)

		var direct, through any
		require.NoError(r, json.Unmarshal(data, &direct))
		require.NoError(r, DecodeValue(stored, &through))
		require.Equal(r, direct, through)

		again, err := EncodeValue("args", json.RawMessage(ValueJSON(stored)), input.MaxArgsBytes)
		require.NoError(r, err)
		require.Equal(r, string(ValueJSON(stored)), string(ValueJSON(again)))
	})
}

func TestGoValuesComeBackAsTheyWere(t *testing.T) {
	type inner struct {
		At    time.Time
		Bytes []byte
		Any   any `json:"any,omitempty"`
	}
	type args struct {
		ID    int64  `json:"id"`
		Text  string `json:"text"`
		F     float64
		List  []inner
		Map   map[string]int
		Ptr   *bool
		Quote int64 `json:",string"`
	}
	want := args{ID: math.MaxInt64, Text: "a\u0000<é", F: 0.1, List: []inner{{At: time.UnixMilli(1767225600000).UTC(), Bytes: []byte{0, 255}, Any: "x"}}, Map: map[string]int{"a.b": math.MinInt64, "": 1}, Quote: math.MinInt64}
	v, err := EncodeValue("args", want, input.MaxArgsBytes)
	require.NoError(t, err)
	require.Equal(t, bson.TypeInt64, v.Document().Lookup("id").Type)
	var got args
	require.NoError(t, DecodeValue(v, &got))
	require.Equal(t, want, got)
}

func TestNothingIsStoredForNothing(t *testing.T) {
	for _, v := range []any{nil, model.None{}, &model.None{}, json.RawMessage("null"), json.RawMessage(" "), (*int)(nil)} {
		got, err := EncodeValue("args", v, input.MaxArgsBytes)
		require.NoError(t, err)
		require.Zero(t, got)
	}
	got := 7
	require.NoError(t, DecodeValue(bson.RawValue{}, &got))
	require.Equal(t, 7, got)
	require.NoError(t, DecodeValue(bson.RawValue{Type: bson.TypeInt64, Value: make([]byte, 8)}, &model.None{}))
	require.Equal(t, "null", string(ValueJSON(bson.RawValue{})))
}

func TestValuesThatCannotBeStoredAreRefusedWithTheirPath(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`[`, n) + strings.Repeat(`]`, n) }
	for _, c := range []struct{ in, want string }{
		{`{"items":[1,{"n":9223372036854775808}]}`, "args.items[1].n is the integer 9223372036854775808, which does not fit 64 bits"},
		{`{"n":-9223372036854775809}`, "args.n is the integer"},
		{`{"n":18446744073709551615}`, "args.n is the integer"},
		{`{"n":1000000000000000000000}`, "args.n is the integer"},
		{`[1e400]`, "args[0] is the number 1e400"},
		{`{"a":{"b":1,"b":2}}`, "args.a.b occurs twice"},
		{`{"a":{"b":1,"\u0062":2}}`, "args.a.b occurs twice"},
		{`{"a":[{"$set":1}]}`, "args.a[0].$set has a name that starts with $"},
		{`{"a\u0000b":1}`, "has a name with a NUL byte"},
		{`{"a":1} x`, "args has text after its JSON value"},
		{`1 2`, "args has text after its JSON value"},
		{`{"a":}`, "args.a is not JSON"},
		{`[1,]`, "is not JSON"},
		{`{"a":1,}`, "is not JSON"},
		{`[1}`, "is not JSON"},
		{`{"a" 1}`, "is not JSON"},
		{`[01]`, "is not JSON"},
		{`{`, "is not JSON"},
		{`"`, "is not JSON"},
		{deep(91), "is nested deeper than 90 levels"},
		{`"` + strings.Repeat("x", input.MaxArgsBytes) + `"`, "bytes as BSON; at most 262144 are allowed"},
	} {
		_, err := EncodeJSON("args", []byte(c.in), input.MaxArgsBytes)
		require.ErrorIs(t, err, model.ErrInvalid, c.in[:min(len(c.in), 40)])
		require.ErrorContains(t, err, c.want)
	}
	_, err := EncodeJSON("args", []byte(deep(90)), input.MaxArgsBytes)
	require.NoError(t, err)
	_, err = EncodeValue("result", make(chan int), input.MaxResultBytes)
	require.ErrorContains(t, err, "result cannot be encoded as JSON")
	require.NoError(t, errOf(EncodeJSON("args", []byte(`[9223372036854775807,-9223372036854775808]`), input.MaxArgsBytes)))
}

func errOf(_ bson.RawValue, err error) error { return err }

func TestValuesOfOtherWritersAreReadable(t *testing.T) {
	id, _ := bson.ObjectIDFromHex("0123456789abcdef01234567")
	raw, err := bson.Marshal(bson.D{
		{Key: "when", Value: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}, {Key: "bin", Value: bson.Binary{Data: []byte{1, 2}}}, {Key: "id", Value: id},
		{Key: "nan", Value: math.NaN()}, {Key: "inf", Value: math.Inf(-1)}, {Key: "n", Value: int32(7)},
		{Key: "re", Value: bson.Regex{Pattern: "a"}}, {Key: "bad", Value: "\xff\"\n"},
	})
	require.NoError(t, err)
	got := DocumentJSON(raw)
	require.True(t, json.Valid(got), "%s", got)
	require.JSONEq(t, `{"when":"2026-01-01T00:00:00.000Z","bin":"AQI=","id":"0123456789abcdef01234567","nan":"NaN","inf":"-Inf","n":7,
		"re":"{\"$regularExpression\":{\"pattern\":\"a\",\"options\":\"\"}}","bad":"\ufffd\"\n"}`, string(got))
}

// encoding/json writes doubles below 1e21 without an exponent, so the larger of them look like integers beyond 64 bits.
func TestDoublesAreStoredAndWrittenAsEncodingJSONWritesThem(t *testing.T) {
	check := func(t require.TestingT, f float64) {
		want, err := json.Marshal(f)
		require.NoError(t, err)
		stored, err := EncodeValue("args", f, input.MaxArgsBytes)
		require.NoError(t, err, "%s", want)
		got := ValueJSON(stored)
		if abs := math.Abs(f); abs == 0 || abs >= 1e-6 && abs < 1e21 {
			require.Equal(t, string(want), string(got))
		}
		var back float64
		require.NoError(t, DecodeValue(stored, &back))
		require.Equal(t, math.Float64bits(f), math.Float64bits(back), "%s: %s", want, got)
	}
	for _, f := range []float64{1e6, 1e18, 1 << 63, -1 << 63, -9.3e18, 1<<64 - 2048, 1e19, 1e20, math.Nextafter(1e21, 0), 1e21, 1e22, 1.5e6, 1e-6, 1e-7, math.Copysign(0, -1), math.MaxFloat64, math.SmallestNonzeroFloat64} {
		check(t, f)
	}
	rapid.Check(t, func(r *rapid.T) {
		check(r, rapid.Float64().Filter(func(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }).Draw(r, "f"))
		check(r, rapid.Float64Range(1<<62, 2e21).Draw(r, "large"))
	})
	single, err := EncodeValue("args", float32(1.2345679e19), input.MaxArgsBytes)
	require.NoError(t, err)
	require.Equal(t, bson.TypeDouble, single.Type)
	whole, err := EncodeValue("args", uint64(1e19), input.MaxArgsBytes)
	require.NoError(t, err)
	var n uint64
	require.NoError(t, DecodeValue(whole, &n))
	require.Equal(t, uint64(1e19), n)
}
