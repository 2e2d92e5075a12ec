package health

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
)

var errAway = fmt.Errorf("no answer: %w", context.DeadlineExceeded)

// exact is the time of a database that never goes wrong.
type exact struct{}

func (exact) Age() time.Duration                                { return 0 }
func (exact) Error() time.Duration                              { return 0 }
func (exact) Jumped(time.Duration) (ago time.Duration, ok bool) { return 0, false }

func newMonitor(lost func(error), back func()) *Monitor {
	return New(claim.NewTrust(exact{}, clock.System()), lost, back)
}

func TestAnOutageIsToldOnceWhenItBeginsAndOnceWhenItEnds(t *testing.T) {
	var told []string
	m := newMonitor(func(err error) { told = append(told, err.Error()) }, func() { told = append(told, "back") })
	m.Report(nil)
	for range 2 {
		m.Report(errAway)
		require.True(t, m.Down())
	}
	for range 2 {
		m.Report(nil)
		require.False(t, m.Down())
	}
	require.Equal(t, []string{errAway.Error(), "back"}, told)
}

func TestAnErrorThatSaysNothingAboutTheServerIsNoOutage(t *testing.T) {
	var told []error
	m := newMonitor(func(err error) { told = append(told, err) }, func() {})
	for _, err := range []error{errors.New("MaxAwaitTime must be less than the operation timeout"), store.ErrStreamEnded} {
		m.Report(nil)
		m.Report(err)
		require.False(t, m.Down(), "%v", err)
		m.Report(errAway)
		m.Report(err)
		require.True(t, m.Down(), "%v", err)
	}
	require.Equal(t, []error{errAway, errAway}, told)
}

func TestWhoBacksOffGoesOnAsSoonAsTheDatabaseAnswersAnybody(t *testing.T) {
	m := newMonitor(func(error) {}, func() {})
	wait := m.NewBackOff()
	wait.d = time.Hour
	m.Report(errAway)
	slept := make(chan struct{})
	go func() {
		wait.Sleep(t.Context())
		close(slept)
	}()
	m.Report(nil)
	<-slept
	require.Equal(t, shortestBackOff, wait.d)

	m.Report(errAway)
	m.Report(nil)
	wait.d = time.Hour
	wait.Sleep(t.Context()) // the last try was before that
}

func TestACallOnAConnectionOfBeforeTheOutageEndsWithIt(t *testing.T) {
	m := newMonitor(func(error) {}, func() {})
	before, cancel := m.Call(t.Context(), time.Hour)
	defer cancel()
	m.Report(nil)
	require.NoError(t, before.Err(), "nothing was wrong")
	m.Report(errAway)
	require.NoError(t, before.Err())
	m.Report(nil)
	<-before.Done() // a second after it was sent
	after, cancel := m.Call(t.Context(), time.Hour)
	defer cancel()
	require.NoError(t, after.Err())
}
