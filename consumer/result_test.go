package consumer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

func TestWhatAHandlerReturnedDecidesTheOutcome(t *testing.T) {
	plain := errors.New("it broke")
	fifteen := 15 * time.Second
	zero := time.Duration(0)
	for _, c := range []struct {
		name  string
		err   error
		cause error
		want  lifecycle.Outcome
	}{
		{"success", nil, nil, lifecycle.Outcome{}},
		{"a success is one although the context had ended", nil, ErrLeaseLost, lifecycle.Outcome{}},
		{"an error", plain, nil, lifecycle.Outcome{Kind: failkind.Error, Reason: "it broke"}},
		{"fatal, found through wrapping", fmt.Errorf("mail: %w", Fatal(plain)), nil, lifecycle.Outcome{Kind: failkind.Fatal, Reason: "it broke"}},
		{"retry after", RetryAfter(fifteen, plain), nil, lifecycle.Outcome{Kind: failkind.Error, Reason: "it broke", Delay: &fifteen}},
		{"retry after a negative time", RetryAfter(-fifteen, plain), nil, lifecycle.Outcome{Kind: failkind.Error, Reason: "it broke", Delay: &zero}},
		{"retry not before", later(fifteen, plain), nil, lifecycle.Outcome{Kind: failkind.Error, Reason: "it broke", AtLeast: fifteen}},
		{"retry not before a negative time", later(-fifteen, plain), nil, lifecycle.Outcome{Kind: failkind.Error, Reason: "it broke"}},
		{"snooze", Snooze(fifteen), nil, lifecycle.Outcome{Kind: failkind.Released, Reason: "snoozed for 15s", Delay: &fifteen}},
		{"release", Release(), nil, lifecycle.Outcome{Kind: failkind.Released, Reason: "released by the handler"}},
		{"cancel", Cancel("no longer needed"), nil, lifecycle.Outcome{Kind: failkind.Cancelled, Reason: "no longer needed", CancelTask: true}},
		{"panic", &panicError{text: "panic: oops", stack: "here"}, nil, lifecycle.Outcome{Kind: failkind.Panic, Reason: "panic: oops\nhere"}},
		{"shutdown", context.Canceled, ErrShutdown, lifecycle.Outcome{Kind: failkind.Released, Reason: ErrShutdown.Error()}},
		{"the margin", plain, ErrLeaseLost, lifecycle.Outcome{Kind: failkind.Released, Reason: ErrLeaseLost.Error()}},
		{"excluded", plain, errExcluded, lifecycle.Outcome{Kind: failkind.Released, Reason: "the worker filter no longer names this worker"}},
		{"cancelled", plain, ErrCancelled, lifecycle.Outcome{Kind: failkind.Released, Reason: ErrCancelled.Error()}},
		{"the deadline", plain, ErrTimeout, lifecycle.Outcome{Kind: failkind.Timeout, Reason: ErrTimeout.Error() + ": it broke"}},
		{"timed out", TimedOut(plain), nil, lifecycle.Outcome{Kind: failkind.Timeout, Reason: plain.Error()}},
		{"the cause weighs more than the verdict", Fatal(plain), ErrShutdown, lifecycle.Outcome{Kind: failkind.Released, Reason: ErrShutdown.Error()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := judge(&model.Task{}, bson.RawValue{}, c.err, c.cause, time.Hour, time.Now())
			require.Equal(t, c.want, got)
		})
	}
}

func TestArgumentsThatNobodyUnderstandsAreGivenBackForTheGrace(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	err := fmt.Errorf("handler: %w", &undecodableError{what: "the arguments", err: errors.New("no such field")})
	for _, c := range []struct {
		since time.Duration
		kind  string
		delay time.Duration
	}{
		{-1, failkind.Undecodable, time.Second},
		{20 * time.Second, failkind.Undecodable, 20 * time.Second},
		{59 * time.Minute, failkind.Undecodable, time.Minute},
		{time.Hour, failkind.Fatal, 0},
	} {
		task := &model.Task{}
		if c.since >= 0 {
			task.UndecodableSince = now.Add(-c.since)
		}
		got := judge(task, bson.RawValue{}, err, nil, time.Hour, now)
		require.Equal(t, c.kind, got.Kind, c.since)
		if c.delay > 0 {
			require.Equal(t, c.delay, *got.Delay)
		}
	}
}

// later is the error of a handler whose call was answered with Retry-After.
func later(d time.Duration, err error) error {
	return heeded(&httpcall.VerdictError{Err: err, Later: true, RetryAfter: d})
}

func TestWhatAHandlerSaysComesBeforeWhatACallSays(t *testing.T) {
	plain := errors.New("it broke")
	require.Equal(t, plain, heeded(plain))
	require.NoError(t, heeded(nil))
	said := Fatal(&httpcall.VerdictError{Err: plain, Later: true, RetryAfter: time.Hour})
	require.Equal(t, said, heeded(said))
	ended := &httpcall.VerdictError{Err: plain, Fatal: true}
	require.Equal(t, error(ended), heeded(ended))
}

func TestOnlyAPlainErrorIsRetriedInsideTheExecution(t *testing.T) {
	plain := errors.New("it broke")
	require.True(t, retryableHere(plain))
	require.True(t, retryableHere(&panicError{}))
	require.True(t, retryableHere(TimedOut(plain)))
	for _, err := range []error{Fatal(plain), RetryAfter(1, plain), later(1, plain), Snooze(1), Release(), Cancel(""), Park(time.Now()), &undecodableError{what: "x", err: plain}} {
		require.False(t, retryableHere(fmt.Errorf("wrapped: %w", err)), "%v", err)
	}
}

func TestTimesThatHandlersSayLieWithinTenYears(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	last := now.Add(input.MaxDuration)
	for _, c := range []struct {
		err  error
		want time.Time
	}{
		{Park(time.Unix(1<<50, 0)), last},
		{Park(last.Add(1)), last},
		{Park(last), last},
		{Park(now), now},
		{Park(now.Add(-1)), now},
		{Park(time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC)), now},
		{Park(time.Time{}), now},
		{Park(now.Add(math.MaxInt64)), last},
	} {
		until, parked := parkedUntil(c.err, now)
		require.True(t, parked, "%v", c.err)
		require.Equal(t, c.want, until, "%v", c.err)
	}
	for _, err := range []error{Snooze(math.MaxInt64), snooze(math.MaxInt64, "busy"), RetryAfter(math.MaxInt64, errors.New("it broke"))} {
		require.Equal(t, input.MaxDuration, *judge(&model.Task{}, bson.RawValue{}, err, nil, time.Hour, now).Delay, "%v", err)
	}
	endless := later(math.MaxInt64, errors.New("it broke"))
	require.Equal(t, input.MaxDuration, judge(&model.Task{}, bson.RawValue{}, endless, nil, time.Hour, now).AtLeast)
	require.EqualError(t, Snooze(math.MaxInt64), "snoozed for "+input.MaxDuration.String())
}

func TestParkIsNoOutcome(t *testing.T) {
	at := time.Now().Add(time.Hour)
	until, parked := parkedUntil(fmt.Errorf("waiting for the bank: %w", Park(at)), at)
	require.True(t, parked)
	require.Equal(t, at, until)
	_, parked = parkedUntil(Snooze(time.Hour), at)
	require.False(t, parked)
	_, parked = parkedUntil(nil, at)
	require.False(t, parked)
}

func TestAResultMayBeAFloatBeyondTheIntegers(t *testing.T) {
	r, err := encodeResult(struct{ Area float64 }{1e19})
	require.NoError(t, err, "the work was done")
	require.JSONEq(t, `{"Area":10000000000000000000}`, string(codec.ValueJSON(r)))
}
