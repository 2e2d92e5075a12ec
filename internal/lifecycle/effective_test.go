package lifecycle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/model"
)

func TestDelaysWithoutAStrategyAreASequence(t *testing.T) {
	delays := []time.Duration{time.Minute, time.Hour}
	with := func(s model.RetryStrategy, delays []time.Duration) model.Options {
		return model.Options{Retry: &model.Retry{Strategy: s, Sequence: delays}}
	}
	require.Equal(t, model.RetrySequence, ResolveOptions(with("", delays)).Retry.Strategy)
	require.Equal(t, model.RetrySequence, ResolveOptions(with("", delays), with(model.RetryFixed, nil)).Retry.Strategy, "the task's go before its type's")
	require.Equal(t, model.RetryFixed, ResolveOptions(with(model.RetryFixed, nil), with("", delays)).Retry.Strategy)
	require.Equal(t, model.RetryExponential, ResolveOptions(with("", nil)).Retry.Strategy)
}
