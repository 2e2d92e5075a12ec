package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/model"
)

func TestStepsAreShownAndATaskIsRetriedFromOne(t *testing.T) {
	s := newSession(t)
	s.ok("send", "order", "--key", "k", "--args", `{}`)
	c, err := consumer.New(consumer.Config{Database: database(t, s), WorkerID: "w"})
	require.NoError(t, err)
	err = consumer.Handle(c, model.NewType[map[string]any, model.None]("order"), func(ctx context.Context, _ *consumer.Task[map[string]any]) (model.None, error) {
		if _, err := consumer.Step(ctx, "reserve", func(context.Context) (int, error) { return 17, nil }); err != nil {
			return model.None{}, err
		}
		if _, err := consumer.Step(ctx, "invoice", func(context.Context) (string, error) { return strings.Repeat("x", 100), nil }); err != nil {
			return model.None{}, err
		}
		return model.None{}, consumer.Fatal(errors.New("no stock"))
	})
	require.NoError(t, err)
	_, err = c.Drain(t.Context(), false)
	require.NoError(t, err)

	shown := s.ok("task", "show", "order/k").stdout
	require.Regexp(t, `(?m)^STEP +TRY +WORKER +DONE +VALUE$`, shown)
	require.Regexp(t, `(?m)^reserve +1 +w .* 17$`, shown)
	require.Regexp(t, `(?m)^invoice +1 +w .* 102 bytes$`, shown)
	var raw struct {
		Steps []struct {
			Name  string
			Value any
		}
	}
	s.ok("task", "show", "order/k", "-o", "json").json(&raw)
	require.Len(t, raw.Steps, 2)
	require.EqualValues(t, 17, raw.Steps[0].Value)

	s.fails(ExitRefused, []string{"it has no step pay; it has reserve, invoice"}, "task", "retry", "order/k", "--from-step", "pay")
	s.ok("send", "other", "--held")
	s.ok("task", "cancel", "--type", "other", "--yes")
	out := s.ok("task", "retry", "--status", "Failure,Cancelled", "--from-step", "pay", "--yes").stdout
	require.Equal(t, "0 tasks retried, 2 skipped:\n  1: it has no step pay; it has none at all\n  1: it has no step pay; it has reserve, invoice\n", out)
	out = s.ok("task", "retry", "--type", "order", "--from-step", "pay", "--yes").stdout
	require.Equal(t, "0 tasks retried, 1 skipped: it has no step pay; it has reserve, invoice\n", out)
	out = s.ok("task", "retry", "--type", "order", "--from-step", "pay", "--yes", "-o", "json").stdout
	require.JSONEq(t, `{"matched": 1, "changed": 0, "skipped": 1, "reasons": {"it has no step pay; it has reserve, invoice": 1}}`, out)
	s.fails(ExitUsage, []string{`step is "a/b"`}, "task", "retry", "order/k", "--from-step", "a/b")
	require.Equal(t, "order/k  New\n", s.ok("task", "retry", "order/k", "--from-step", "invoice").stdout)
	shown = s.ok("task", "show", "order/k").stdout
	require.Contains(t, shown, "reserve")
	require.NotContains(t, shown, "invoice")
}
