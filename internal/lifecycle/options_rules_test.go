package lifecycle

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

func TestRetryDelaysStayInTheirBounds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		o := model.Options{Retry: &model.Retry{
			Strategy:    rapid.SampledFrom([]model.RetryStrategy{"", model.RetryNone, model.RetryFixed, model.RetrySequence, model.RetryExponential}).Draw(r, "strategy"),
			Interval:    time.Duration(rapid.Int64Range(0, int64(input.MaxDuration/time.Millisecond)).Draw(r, "interval")) * time.Millisecond,
			MaxInterval: time.Duration(rapid.Int64Range(0, int64(input.MaxDuration/time.Millisecond)).Draw(r, "max")) * time.Millisecond,
			Factor:      rapid.SampledFrom([]float64{0, 1, 1.5, 100}).Draw(r, "factor"),
			Jitter:      rapid.SampledFrom([]float64{0, -1}).Draw(r, "jitter"),
		}}
		if o.Retry.Strategy == "" || o.Retry.Strategy == model.RetryExponential {
			o.Retry.Jitter = rapid.SampledFrom([]float64{0, -1, 0.5, 1}).Draw(r, "jitter of exponential")
		}
		if o.Retry.Strategy == model.RetrySequence {
			o.Retry.Sequence = rapid.SliceOfN(rapid.Map(rapid.IntRange(1, 1000), func(n int) time.Duration { return time.Duration(n) * time.Second }), 1, 5).Draw(r, "sequence")
		}
		require.NoError(r, input.Options(&o))
		retry := ResolveOptions(o).Retry
		errs := rapid.IntRange(0, 1_000_000).Draw(r, "errors")
		d := RetryDelay(retry, errs, rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(r, "random"))
		require.GreaterOrEqual(r, d, time.Duration(0))
		require.LessOrEqual(r, d, input.MaxDuration)
		switch retry.Strategy {
		case model.RetryNone:
			require.Zero(r, d)
			require.Zero(r, *retry.MaxErrors, "the first error ends it")
		case model.RetryFixed:
			require.Equal(r, retry.Interval, d)
		case model.RetrySequence:
			if errs >= len(retry.Sequence) {
				require.Equal(r, retry.Sequence[len(retry.Sequence)-1], d, "past its end the last")
			} else {
				require.Equal(r, retry.Sequence[max(errs, 1)-1], d)
			}
		default:
			calm := retry
			calm.Jitter = -1
			mid, share := RetryDelay(calm, errs, 0.5), max(retry.Jitter, 0)
			require.LessOrEqual(r, mid, retry.MaxInterval)
			require.GreaterOrEqual(r, mid, min(retry.Interval, retry.MaxInterval)-time.Millisecond)
			require.InDelta(r, float64(mid), float64(d), float64(mid)*share+float64(time.Millisecond), "jitter within its share")
			require.LessOrEqual(r, d, retry.MaxInterval, "at most")
		}
	})
}

func TestExponentialDelaysGrowByTheirFactor(t *testing.T) {
	r := model.Retry{Strategy: model.RetryExponential, Interval: time.Second, Factor: 3, MaxInterval: 20 * time.Second}
	var got []time.Duration
	for n := range 5 {
		got = append(got, RetryDelay(r, n+1, 0))
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
	var inv *model.InvalidError
	if errors.As(err, &inv) {
		return []string{inv.Field}
	}
	return []string{"not an InvalidError: " + err.Error()}
}

func TestValidateNamesEveryWrongField(t *testing.T) {
	d := Draft{
		Tenant: "a/b", Type: "", Key: strings.Repeat("k", 401), Category: strings.Repeat("c", 201), Creator: "\x00",
		Start: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), Priority: new(10),
		Options: model.Options{
			ConcurrentWorkerCount: 65, PingInterval: 20 * time.Second, WorkerTimeout: 30 * time.Second,
			ExecutionTimeout: -1, Retention: 11 * 365 * 24 * time.Hour,
			SpecificWorkerIDs: []string{"*", "", strings.Repeat("w", 201), "#x", "a\xff"},
			MaxLapses:         new(-1), MaxErrorsPerWorker: 11,
			Retry: &model.Retry{Strategy: "often", Interval: time.Microsecond, MaxInterval: -time.Second, Factor: 0.5, Jitter: 1.5,
				Sequence: []time.Duration{-1}, MaxErrors: new(1_000_001), Local: &model.LocalRetry{Count: 1001, Interval: -1}},
		},
	}
	err := d.Validate()
	require.ErrorIs(t, err, model.ErrInvalid)
	got := each(err)
	for _, field := range []string{
		"tenant", "type", "key", "category", "creator", "start_time", "priority",
		"concurrent_worker_count", "ping_interval", "timeout", "retention",
		"specific_worker_ids[0]", "specific_worker_ids[1]", "specific_worker_ids[2]", "specific_worker_ids[3]", "specific_worker_ids[4]", "max_lapses", "max_errors_per_worker",
		"retry.strategy", "retry.interval", "retry.max_interval", "retry.factor", "retry.jitter", "retry.sequence[0]",
		"retry.max_errors", "retry.local.count", "retry.local.interval",
	} {
		require.Contains(t, got, field)
	}
	require.NotContains(t, strings.Join(got, " "), "not an InvalidError")
}

func TestEachWrongOptionIsRefused(t *testing.T) {
	many := make([]string, input.MaxSpecificWorkers+1)
	for i := range many {
		many[i] = fmt.Sprint("w", i)
	}
	for field, o := range map[string]model.Options{
		"concurrent_worker_count is -1":                                           {ConcurrentWorkerCount: -1},
		"concurrent_worker_count is 3, but only 2":                                {ConcurrentWorkerCount: 3, SpecificWorkerIDs: []string{"a", "b"}},
		"specific_worker_ids[2] is a, which specific_worker_ids[0] names already": {SpecificWorkerIDs: []string{"a", "b", "a"}},
		"worker_timeout is 999ms":                                                 {WorkerTimeout: 999 * time.Millisecond},
		"ping_interval is 501ms":                                                  {WorkerTimeout: time.Second, PingInterval: 501 * time.Millisecond},
		"specific_worker_ids has 65 ids":                                          {SpecificWorkerIDs: many},
		"retry.sequence is empty":                                                 {Retry: &model.Retry{Strategy: model.RetrySequence}},
		"retry.sequence is given":                                                 {Retry: &model.Retry{Strategy: model.RetryFixed, Sequence: []time.Duration{time.Second}}},
		"retry.sequence has 101":                                                  {Retry: &model.Retry{Strategy: model.RetrySequence, Sequence: slices.Repeat([]time.Duration{time.Second}, 101)}},
		"retry.max_errors is 1, but the strategy":                                 {Retry: &model.Retry{Strategy: model.RetryNone, MaxErrors: new(1)}},
		"retry.factor is NaN":                                                     {Retry: &model.Retry{Factor: math.NaN()}},
		"retry.jitter is NaN":                                                     {Retry: &model.Retry{Jitter: math.NaN()}},
		"retry.jitter is given, but the strategy is fixed":                        {Retry: &model.Retry{Strategy: model.RetryFixed, Jitter: 0.1}},
		"retry.jitter is given, but the strategy is none":                         {Retry: &model.Retry{Strategy: model.RetryNone, Jitter: 1}},
		"retry.jitter is given, but the strategy is sequence":                     {Retry: &model.Retry{Strategy: model.RetrySequence, Sequence: []time.Duration{time.Second}, Jitter: 0.1}},
		"retention is 1ns; the unit":                                              {Retention: 1},
		"timeout is 87601h0m0s; at most":                                          {ExecutionTimeout: input.MaxDuration + time.Hour},
	} {
		require.ErrorContains(t, input.Options(&o), field)
	}
	require.NoError(t, input.Options(new(model.Options{})))
	require.NoError(t, input.Options(&model.Options{Retry: &model.Retry{Strategy: model.RetryFixed, Jitter: -1}}))
	require.NoError(t, input.Options(&model.Options{Retry: &model.Retry{Jitter: 0.1}}), "of another layer's strategy")
}

func TestTheFirstLayerThatSaysSomethingWins(t *testing.T) {
	task := model.Options{Retry: &model.Retry{Interval: time.Minute}, NeedManual: new(false)}
	typ := model.Options{Retry: &model.Retry{Strategy: model.RetryFixed, Interval: time.Hour, MaxErrors: new(0)}, NeedManual: new(true), WorkerTimeout: 3 * time.Second, MaxLapses: new(0)}
	handler := model.Options{PingInterval: 2 * time.Second, MaxLapses: new(7), Retention: time.Hour, ExecutionTimeout: time.Minute}
	e := ResolveOptions(task, typ, handler)
	require.Equal(t, model.RetryFixed, e.Retry.Strategy)
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
	require.Equal(t, model.RetryExponential, d.Retry.Strategy)
	require.Equal(t, []time.Duration{time.Second, time.Hour}, []time.Duration{d.Retry.Interval, d.Retry.MaxInterval})
	require.Equal(t, 30*time.Second, ResolveOptions(model.Options{PingInterval: 10 * time.Second}).Lease)
	require.Equal(t, time.Minute, ResolveOptions(model.Options{PingInterval: 20 * time.Second}).Lease, "three pings fit a lease")
	require.Equal(t, 20*time.Second, ResolveOptions(model.Options{WorkerTimeout: time.Minute}).PingInterval)
	require.Equal(t, []time.Duration{DefaultPingInterval, DefaultWorkerTimeout}, []time.Duration{d.PingInterval, d.Lease})
}

func TestDurationsWrittenByAShellAreRead(t *testing.T) {
	for _, v := range []any{int32(1500), int64(1500), 1500.0} {
		raw, err := bson.Marshal(bson.D{{Key: "worker_timeout_ms", Value: v}})
		require.NoError(t, err)
		var o model.Options
		dec := bson.NewDecoder(bson.NewDocumentReader(bytes.NewReader(raw)))
		dec.SetRegistry(codec.Registry())
		require.NoError(t, dec.Decode(&o))
		require.Equal(t, 1500*time.Millisecond, o.WorkerTimeout)
	}
	raw, _ := bson.Marshal(bson.D{{Key: "worker_timeout_ms", Value: "1.5s"}})
	var o model.Options
	dec := bson.NewDecoder(bson.NewDocumentReader(bytes.NewReader(raw)))
	dec.SetRegistry(codec.Registry())
	require.ErrorContains(t, dec.Decode(&o), "a duration in milliseconds cannot be a string")
}
