package producer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/model"
)

func TestOptionsPrintAsTheyAreWritten(t *testing.T) {
	for want, o := range map[string]Option{
		`Key("a b")`:               Key("a b"),
		`At(2026-01-02T03:04:05Z)`: At(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
		`In(1m30s)`:                In(90 * time.Second),
		`Priority(9)`:              Priority(9),
		`Tenant("acme")`:           Tenant("acme"),
		`Creator("web")`:           Creator("web"),
		`Category("bulk")`:         Category("bulk"),
		`ConcurrentWorkers(2)`:     ConcurrentWorkers(2),
		`Workers("w1", "w2")`:      Workers("w1", "w2"),
		`AnyWorker()`:              AnyWorker(),
		`Lease(1s, 5s)`:            Lease(time.Second, 5*time.Second),
		`Timeout(1m0s)`:            Timeout(time.Minute),
		`Retry(sequence, sequence [1s 2s], max_errors 0, local 2 every 1s)`: Retry(model.Retry{
			Strategy: model.RetrySequence, Sequence: []time.Duration{time.Second, 2 * time.Second},
			MaxErrors: new(0), Local: &model.LocalRetry{Count: 2, Interval: time.Second}}),
		`Retry(interval 1s, factor 1.5, max_interval 1h0m0s, jitter 0.2)`: Retry(model.Retry{
			Interval: time.Second, Factor: 1.5, MaxInterval: time.Hour, Jitter: 0.2}),
		`MaxLapses(1)`:                    MaxLapses(1),
		`MaxErrorsPerWorker(2)`:           MaxErrorsPerWorker(2),
		`NeedManual(true)`:                NeedManual(true),
		`Retention(1h0m0s)`:               Retention(time.Hour),
		`ExpiresAt(2026-01-02T03:04:05Z)`: ExpiresAt(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
		`ExpiresIn(1h0m0s)`:               ExpiresIn(time.Hour),
		`OnExisting(UpdateArgs|RestartFailed, RestartSucceeded)`: OnExisting(model.UpdateArgs|model.RestartFailed, model.RestartSucceeded),
		`OnExisting(UpdateIdle|128)`:                             OnExisting(model.UpdateIdle | 128),
		`Held()`:                                                 Held(),
		`OutsideTransaction()`:                                   OutsideTransaction(),
		`Args(7)`:                                                Args(7),
	} {
		require.Equal(t, want, o.String())
	}
}

func TestOfTwoOptionsThatContradictTheLaterWins(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s := gather(Draft{}, []Option{In(time.Hour), At(at), Priority(1), Priority(2), OnExisting(model.UpdateArgs), OnExisting()})
	require.Zero(t, s.draft.In)
	require.Equal(t, at, s.draft.Start)
	require.Equal(t, 2, *s.draft.Priority)
	require.Zero(t, s.draft.OnExisting)
	s = gather(Draft{}, []Option{At(at), In(time.Hour), Workers("w"), AnyWorker()})
	require.Zero(t, s.draft.Start)
	require.Equal(t, time.Hour, s.draft.In)
	require.Empty(t, s.draft.Options.SpecificWorkerIDs)
}

func TestAnOptionMayBeUsedForManyTasks(t *testing.T) {
	ids := []string{"w1"}
	o := Workers(ids...)
	ids[0] = "changed later"
	first := gather(Draft{}, []Option{o})
	first.draft.Options.SpecificWorkerIDs[0] = "changed by middleware"
	second := gather(Draft{}, []Option{o})
	require.Equal(t, []string{"w1"}, second.draft.Options.SpecificWorkerIDs)
}

func TestSecretsOfAnOptionAreNotPrinted(t *testing.T) {
	o := Callback(model.Callback{Success: &model.CallbackTarget{URL: "https://example.org/"}, Security: &model.CallbackSecurity{
		Type: model.SecurityAKSK, Keys: []callback.Key{{AccessKey: "shop", Secret: "hunter2"}},
	}})
	require.Contains(t, o.String(), "https://example.org/")
	require.NotContains(t, o.String(), "hunter2")
}
