package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"
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
		if f == math.Trunc(f) && math.Abs(f) < 1<<53 && (f != 0 || !math.Signbit(f)) {
			return strconv.FormatInt(int64(f), 10)
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

		stored, err := EncodeJSON("args", data, MaxArgsBytes)
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

		again, err := EncodeValue("args", json.RawMessage(ValueJSON(stored)), MaxArgsBytes)
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
	want := args{ID: math.MaxInt64, Text: "a\u0000<é", F: 0.1, List: []inner{{At: epoch, Bytes: []byte{0, 255}, Any: "x"}}, Map: map[string]int{"a.b": math.MinInt64, "": 1}, Quote: math.MinInt64}
	v, err := EncodeValue("args", want, MaxArgsBytes)
	require.NoError(t, err)
	require.Equal(t, bson.TypeInt64, v.Document().Lookup("id").Type)
	var got args
	require.NoError(t, DecodeValue(v, &got))
	require.Equal(t, want, got)
}

func TestNothingIsStoredForNothing(t *testing.T) {
	for _, v := range []any{nil, None{}, &None{}, json.RawMessage("null"), json.RawMessage(" "), (*int)(nil)} {
		got, err := EncodeValue("args", v, MaxArgsBytes)
		require.NoError(t, err)
		require.Zero(t, got)
	}
	got := 7
	require.NoError(t, DecodeValue(bson.RawValue{}, &got))
	require.Equal(t, 7, got)
	require.NoError(t, DecodeValue(bson.RawValue{Type: bson.TypeInt64, Value: make([]byte, 8)}, &None{}))
	require.Equal(t, "null", string(ValueJSON(bson.RawValue{})))
}

func TestValuesThatCannotBeStoredAreRefusedWithTheirPath(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`[`, n) + strings.Repeat(`]`, n) }
	for _, c := range []struct{ in, want string }{
		{`{"items":[1,{"n":9223372036854775808}]}`, "args.items[1].n is the integer 9223372036854775808, which does not fit 64 bits"},
		{`{"n":-9223372036854775809}`, "args.n is the integer"},
		{`[1e400]`, "args[0] is the number 1e400"},
		{`{"a":{"b":1,"b":2}}`, "args.a.b is there twice"},
		{`{"a":{"b":1,"\u0062":2}}`, "args.a.b is there twice"},
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
		{`"` + strings.Repeat("x", MaxArgsBytes) + `"`, "bytes as BSON; at most 262144 are allowed"},
	} {
		_, err := EncodeJSON("args", []byte(c.in), MaxArgsBytes)
		require.ErrorIs(t, err, ErrInvalid, c.in[:min(len(c.in), 40)])
		require.ErrorContains(t, err, c.want)
	}
	_, err := EncodeJSON("args", []byte(deep(90)), MaxArgsBytes)
	require.NoError(t, err)
	_, err = EncodeValue("result", make(chan int), MaxResultBytes)
	require.ErrorContains(t, err, "result cannot be written as JSON")
	require.NoError(t, errOf(EncodeJSON("args", []byte(`[9223372036854775807,-9223372036854775808]`), MaxArgsBytes)))
}

func errOf(_ bson.RawValue, err error) error { return err }

func TestValuesOfOtherWritersAreReadable(t *testing.T) {
	id, _ := bson.ObjectIDFromHex("0123456789abcdef01234567")
	raw, err := bson.Marshal(bson.D{
		{Key: "when", Value: epoch}, {Key: "bin", Value: bson.Binary{Data: []byte{1, 2}}}, {Key: "id", Value: id},
		{Key: "nan", Value: math.NaN()}, {Key: "inf", Value: math.Inf(-1)}, {Key: "n", Value: int32(7)},
		{Key: "re", Value: bson.Regex{Pattern: "a"}}, {Key: "bad", Value: "\xff\"\n"},
	})
	require.NoError(t, err)
	got := DocumentJSON(raw)
	require.True(t, json.Valid(got), "%s", got)
	require.JSONEq(t, `{"when":"2026-01-01T00:00:00.000Z","bin":"AQI=","id":"0123456789abcdef01234567","nan":"NaN","inf":"-Inf","n":7,
		"re":"{\"$regularExpression\":{\"pattern\":\"a\",\"options\":\"\"}}","bad":"\ufffd\"\n"}`, string(got))
}

func TestIdsAndHandlesRoundTrip(t *testing.T) {
	name := rapid.StringMatching(`[a-zA-Z0-9._-]{1,100}`)
	key := rapid.String().Filter(func(s string) bool { return ValidKey(s) == nil })
	rapid.Check(t, func(r *rapid.T) {
		tenant, typ, k := rapid.OneOf(rapid.Just(""), name).Draw(r, "tenant"), name.Draw(r, "type"), key.Draw(r, "key")
		k = rapid.OneOf(rapid.Just(k), rapid.Just("@/"+k+"@/")).Draw(r, "key with separators")
		if len(k) > MaxKeyBytes {
			k = "k"
		}
		id := TaskID(tenant, typ, k)
		gotTenant, gotType, gotKey, err := ParseTaskID(id)
		require.NoError(r, err)
		if tenant == NoTenant {
			tenant = ""
		}
		require.Equal(r, []string{tenant, typ, k}, []string{gotTenant, gotType, gotKey})

		h := Handle{TaskID: id, Generation: rapid.Int64().Draw(r, "generation"), ExecID: rapid.StringMatching(`[0-9a-f-]{1,36}`).Draw(r, "exec")}
		got, err := ParseHandle(h.String())
		require.NoError(r, err)
		require.Equal(r, h, got)
	})
}

func TestWhatIsNoIdIsRefused(t *testing.T) {
	for _, id := range []string{"", "a", "a/b", "a/b/", "/b/c", "a//c", "a b/c/d", "a/b/\x00", "a/b/\xff", "a/b/" + strings.Repeat("k", 401)} {
		_, _, _, err := ParseTaskID(id)
		require.ErrorIs(t, err, ErrInvalid, "%q", id)
	}
	good := Handle{TaskID: "-/t/k", Generation: 1, ExecID: "e"}.String()
	for _, h := range []string{"", "x", good + "=", good[:4] + "\n" + good[4:], "!" + good,
		Handle{TaskID: "-/t/k", Generation: 1}.String(), Handle{TaskID: "no id", Generation: 1, ExecID: "e"}.String()} {
		_, err := ParseHandle(h)
		require.ErrorIs(t, err, ErrInvalid, "%q", h)
	}
}

func TestNoTenantAndTheTenantOfThatNameAreOne(t *testing.T) {
	a, b := NewTask(Draft{Type: "t", Key: "k"}, epoch), NewTask(Draft{Tenant: NoTenant, Type: "t", Key: "k"}, epoch)
	require.Equal(t, a, b)
}

func TestNewKeysSortByTime(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		at := rapid.Int64Range(0, 1<<47)
		a, b := at.Draw(r, "a"), at.Draw(r, "b")
		var low, high [10]byte
		for i := range high {
			high[i] = 255
		}
		ka, kb := NewKey(time.UnixMilli(a), high), NewKey(time.UnixMilli(b), low)
		require.Len(r, ka, 26)
		require.NoError(r, ValidKey(ka))
		if a < b {
			require.Less(r, ka, kb)
		} else if a == b {
			require.Greater(r, ka, kb)
		}
	})
}

func TestTokensOrderAsTheirText(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		draw := func(l string) Token {
			return Token{rapid.Int64Range(1, 1<<50).Draw(r, l+" generation"), rapid.Int64Range(1, 1<<32-1).Draw(r, l+" rev")}
		}
		a, b := draw("a"), draw("b")
		if rapid.Bool().Draw(r, "same life") {
			b.Generation = a.Generation
		}
		require.Equal(r, a.Compare(b), strings.Compare(a.String(), b.String()))
		require.Equal(r, a.Compare(b), -b.Compare(a))
	})
}

func TestRetryDelaysStayInTheirBounds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		o := Options{Retry: &Retry{
			Strategy:    rapid.SampledFrom([]RetryStrategy{"", RetryNone, RetryFixed, RetrySequence, RetryExponential}).Draw(r, "strategy"),
			Interval:    time.Duration(rapid.Int64Range(0, int64(MaxDuration/time.Millisecond)).Draw(r, "interval")) * time.Millisecond,
			MaxInterval: time.Duration(rapid.Int64Range(0, int64(MaxDuration/time.Millisecond)).Draw(r, "max")) * time.Millisecond,
			Factor:      rapid.SampledFrom([]float64{0, 1, 1.5, 100}).Draw(r, "factor"),
			Jitter:      rapid.SampledFrom([]float64{0, -1, 0.5, 1}).Draw(r, "jitter"),
		}}
		if o.Retry.Strategy == RetrySequence {
			o.Retry.Sequence = rapid.SliceOfN(rapid.Map(rapid.IntRange(1, 1000), func(n int) time.Duration { return time.Duration(n) * time.Second }), 1, 5).Draw(r, "sequence")
		}
		require.NoError(r, o.Validate())
		retry := ResolveOptions(o).Retry
		errs := rapid.IntRange(0, 1_000_000).Draw(r, "errors")
		d := retry.Delay(errs, rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(r, "random"))
		require.GreaterOrEqual(r, d, time.Duration(0))
		require.LessOrEqual(r, d, MaxDuration)
		switch retry.Strategy {
		case RetryNone:
			require.Zero(r, d)
			require.Zero(r, *retry.MaxErrors, "the first error ends it")
		case RetryFixed:
			require.Equal(r, retry.Interval, d)
		case RetrySequence:
			if errs >= len(retry.Sequence) {
				require.Equal(r, retry.Sequence[len(retry.Sequence)-1], d, "past its end the last")
			} else {
				require.Equal(r, retry.Sequence[max(errs, 1)-1], d)
			}
		default:
			calm := retry
			calm.Jitter = -1
			mid, share := calm.Delay(errs, 0.5), max(retry.Jitter, 0)
			require.LessOrEqual(r, mid, retry.MaxInterval)
			require.GreaterOrEqual(r, mid, min(retry.Interval, retry.MaxInterval)-time.Millisecond)
			require.InDelta(r, float64(mid), float64(d), float64(mid)*share+float64(time.Millisecond), "jitter within its share")
			require.LessOrEqual(r, d, retry.MaxInterval, "at most")
		}
	})
}

func TestExponentialDelaysGrowByTheirFactor(t *testing.T) {
	r := Retry{Strategy: RetryExponential, Interval: time.Second, Factor: 3, MaxInterval: 20 * time.Second}
	var got []time.Duration
	for n := range 5 {
		got = append(got, r.Delay(n+1, 0))
	}
	require.Equal(t, []time.Duration{time.Second, 3 * time.Second, 9 * time.Second, 20 * time.Second, 20 * time.Second}, got)
}

// each names the fields of every InvalidError in a joined error.
func each(err error) []string {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var out []string
		for _, e := range joined.Unwrap() {
			out = append(out, each(e)...)
		}
		return out
	}
	var inv *InvalidError
	if errors.As(err, &inv) {
		return []string{inv.Field}
	}
	return []string{"not an InvalidError: " + err.Error()}
}

func TestValidateNamesEveryWrongField(t *testing.T) {
	d := Draft{
		Tenant: "a/b", Type: "", Key: strings.Repeat("k", 401), Category: strings.Repeat("c", 201), Creator: "\x00",
		Start: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), Priority: new(10),
		Options: Options{
			ConcurrentWorkerCount: 65, PingInterval: 20 * time.Second, WorkerTimeout: 30 * time.Second,
			ExecutionTimeout: -1, Retention: 11 * 365 * 24 * time.Hour,
			SpecificWorkerIDs: []string{"*", "", strings.Repeat("w", 201), "#x", "a\xff"},
			MaxLapses:         new(-1), MaxErrorsPerWorker: 11,
			Retry: &Retry{Strategy: "often", Interval: time.Microsecond, MaxInterval: -time.Second, Factor: 0.5, Jitter: 1.5,
				Sequence: []time.Duration{-1}, MaxErrors: new(1_000_001), Local: &LocalRetry{Count: 1001, Interval: -1}},
		},
	}
	err := d.Validate()
	require.ErrorIs(t, err, ErrInvalid)
	got := each(err)
	for _, field := range []string{
		"tenant", "type", "key", "category", "creator", "start_time", "priority",
		"concurrent_workers", "ping_interval", "execution_timeout", "retention",
		"workers[0]", "workers[1]", "workers[2]", "workers[3]", "workers[4]", "max_lapses", "max_errors_per_worker",
		"retry.strategy", "retry.interval", "retry.max_interval", "retry.factor", "retry.jitter", "retry.sequence[0]",
		"retry.max_errors", "retry.local.count", "retry.local.interval",
	} {
		require.Contains(t, got, field)
	}
	require.NotContains(t, strings.Join(got, " "), "not an InvalidError")
}

func TestEachWrongOptionIsRefused(t *testing.T) {
	many := make([]string, MaxSpecificWorkers+1)
	for i := range many {
		many[i] = fmt.Sprint("w", i)
	}
	for field, o := range map[string]Options{
		"concurrent_workers is -1":                 {ConcurrentWorkerCount: -1},
		"concurrent_workers is 3, but only 2":      {ConcurrentWorkerCount: 3, SpecificWorkerIDs: []string{"a", "b"}},
		"concurrent_workers is 2, but only 1":      {ConcurrentWorkerCount: 2, SpecificWorkerIDs: []string{"a", "a"}},
		"worker_timeout is 999ms":                  {WorkerTimeout: 999 * time.Millisecond},
		"ping_interval is 501ms":                   {WorkerTimeout: time.Second, PingInterval: 501 * time.Millisecond},
		"workers has 65 ids":                       {SpecificWorkerIDs: many},
		"retry.sequence is empty":                  {Retry: &Retry{Strategy: RetrySequence}},
		"retry.sequence is given":                  {Retry: &Retry{Strategy: RetryFixed, Sequence: []time.Duration{time.Second}}},
		"retry.sequence has 101":                   {Retry: &Retry{Strategy: RetrySequence, Sequence: slices.Repeat([]time.Duration{time.Second}, 101)}},
		"retry.max_errors is 1, but the strategy":  {Retry: &Retry{Strategy: RetryNone, MaxErrors: new(1)}},
		"retry.factor is NaN":                      {Retry: &Retry{Factor: math.NaN()}},
		"retry.jitter is NaN":                      {Retry: &Retry{Jitter: math.NaN()}},
		"retention is 1ns; the unit":               {Retention: 1},
		"execution_timeout is 87601h0m0s; at most": {ExecutionTimeout: MaxDuration + time.Hour},
	} {
		require.ErrorContains(t, o.Validate(), field)
	}
	require.NoError(t, new(Options{}).Validate())
}

func TestTheFirstLayerThatSaysSomethingWins(t *testing.T) {
	task := Options{Retry: &Retry{Interval: time.Minute}, NeedManual: new(false)}
	typ := Options{Retry: &Retry{Strategy: RetryFixed, Interval: time.Hour, MaxErrors: new(0)}, NeedManual: new(true), WorkerTimeout: 3 * time.Second, MaxLapses: new(0)}
	handler := Options{PingInterval: 2 * time.Second, MaxLapses: new(7), Retention: time.Hour, ExecutionTimeout: time.Minute}
	e := ResolveOptions(task, typ, handler)
	require.Equal(t, RetryFixed, e.Retry.Strategy)
	require.Equal(t, time.Minute, e.Retry.Interval)
	require.Equal(t, 0, *e.Retry.MaxErrors)
	require.Equal(t, 0, e.MaxLapses)
	require.False(t, e.NeedManual)
	require.Equal(t, 3*time.Second, e.Lease)
	require.Equal(t, time.Second, e.PingInterval, "the ping interval yields: three fit a lease")
	require.Equal(t, time.Hour, e.Retention)
	require.Equal(t, time.Minute, e.ExecutionTimeout)

	d := ResolveOptions()
	require.Equal(t, []time.Duration{10 * time.Second, 30 * time.Second, 7 * 24 * time.Hour, 0}, []time.Duration{d.PingInterval, d.Lease, d.Retention, d.ExecutionTimeout})
	require.Equal(t, []int{10, 3, 0}, []int{*d.Retry.MaxErrors, d.MaxLapses, d.Retry.Local.Count})
	require.Equal(t, RetryExponential, d.Retry.Strategy)
	require.Equal(t, []time.Duration{time.Second, time.Hour}, []time.Duration{d.Retry.Interval, d.Retry.MaxInterval})
	require.Equal(t, 30*time.Second, ResolveOptions(Options{PingInterval: 10 * time.Second}).Lease)
	require.Equal(t, time.Minute, ResolveOptions(Options{PingInterval: 20 * time.Second}).Lease, "three pings fit a lease")
}

func TestLongTextsAreCutAtARune(t *testing.T) {
	require.Equal(t, "ab", clip("ab", 2))
	require.Equal(t, "a… (3 bytes more)", clip("aéz", 2))
	require.Equal(t, "a\uFFFD", clip("a\xff", 10), "BSON strings are UTF-8")
	task := NewTask(Draft{Type: "t", Key: "k"}, epoch)
	task, _ = Claim(task, Claimant{WorkerID: "w", ExecID: "e"}, ResolveOptions(), epoch)
	task, err := Finish(task, "e", Failed(FailError, strings.Repeat("x", 1<<20)), ResolveOptions(), epoch, 0)
	require.NoError(t, err)
	require.Less(t, len(task.ErrorInfo)+len(task.WorkerStates[0].FailReason), 2*maxReasonBytes+100)
}

func TestErrorsReadAsSentences(t *testing.T) {
	require.EqualError(t, &TaskError{ID: "i", Status: StatusFailure, Info: "boom"}, "task i ended as Failure: boom")
	require.EqualError(t, &TaskError{ID: "i", Status: StatusCancelled}, "task i ended as Cancelled")
	require.PanicsWithValue(t, `model.NewType: type is "a/b"; want 1 to 100 of a-z A-Z 0-9 . _ -`, func() { NewType[None, None]("a/b") })
	require.Equal(t, "a", NewType[None, None]("a").Name())
}

func TestStatusesOfALaterReleaseAreNotMine(t *testing.T) {
	require.False(t, Status("Frozen").Known())
	require.False(t, Status("Frozen").Ended())
	for _, s := range Statuses {
		require.True(t, s.Known())
		require.Equal(t, s.Archivable(), s.Ended() && s != StatusPending)
		if s.Succeeded() {
			require.True(t, s.Ended())
		}
	}
}

func TestDurationsWrittenByAShellAreRead(t *testing.T) {
	for _, v := range []any{int32(1500), int64(1500), 1500.0} {
		raw, err := bson.Marshal(bson.D{{Key: "worker_timeout_ms", Value: v}})
		require.NoError(t, err)
		var o Options
		dec := bson.NewDecoder(bson.NewDocumentReader(bytes.NewReader(raw)))
		dec.SetRegistry(Registry())
		require.NoError(t, dec.Decode(&o))
		require.Equal(t, 1500*time.Millisecond, o.WorkerTimeout)
	}
	raw, _ := bson.Marshal(bson.D{{Key: "worker_timeout_ms", Value: "1.5s"}})
	var o Options
	dec := bson.NewDecoder(bson.NewDocumentReader(bytes.NewReader(raw)))
	dec.SetRegistry(Registry())
	require.ErrorContains(t, dec.Decode(&o), "a duration in milliseconds cannot be a string")
}
