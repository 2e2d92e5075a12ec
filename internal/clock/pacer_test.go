package clock

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// still stands until it is moved.
type still struct{ at time.Duration }

func (s *still) Now() time.Time           { return time.Unix(0, 0).Add(s.at) }
func (s *still) Monotonic() time.Duration { return s.at }

// takes is a query that takes so long.
func (s *still) takes(d time.Duration) func() error {
	return func() error { s.at += d; return nil }
}

func TestAQueryIsRepeatedAfterTwentyTimesItsDuration(t *testing.T) {
	c := &still{at: time.Hour}
	p := NewPacer(c, 0, time.Minute)
	require.Zero(t, p.Left(), "the first may run at once")
	require.NoError(t, p.Do(c.takes(30*time.Millisecond)))
	require.Equal(t, 600*time.Millisecond, p.Left())
	c.at += 599 * time.Millisecond
	ran, err := p.Try(c.takes(time.Second))
	require.NoError(t, err)
	require.False(t, ran)
	c.at += time.Millisecond
	ran, err = p.Try(c.takes(time.Millisecond))
	require.NoError(t, err)
	require.True(t, ran)
	require.Equal(t, 20*time.Millisecond, p.Left())
	require.NoError(t, p.Do(c.takes(2*time.Millisecond)), "whoever knows of work does not wait")
	require.Equal(t, 40*time.Millisecond, p.Left(), "the last answer counts")
}

func TestThePauseHasBounds(t *testing.T) {
	c := &still{at: time.Hour}
	p := NewPacer(c, 250*time.Millisecond, 5*time.Second)
	require.NoError(t, p.Do(c.takes(time.Millisecond)))
	require.Equal(t, 250*time.Millisecond, p.Left())
	require.NoError(t, p.Do(c.takes(time.Minute)))
	require.Equal(t, 5*time.Second, p.Left())
}

func TestAQueryThatFailsCostsItsTime(t *testing.T) {
	c := &still{at: time.Hour}
	p := NewPacer(c, 0, time.Minute)
	wrong := errors.New("wrong")
	ran, err := p.Try(func() error { c.at += 100 * time.Millisecond; return wrong })
	require.True(t, ran)
	require.ErrorIs(t, err, wrong)
	require.Equal(t, 2*time.Second, p.Left())
}

func TestOnlyOneAtATimeTries(t *testing.T) {
	c := &still{at: time.Hour}
	p := NewPacer(c, 0, time.Minute)
	require.NoError(t, p.Do(func() error {
		ran, err := p.Try(c.takes(time.Second))
		require.NoError(t, err)
		require.False(t, ran, "another is under way")
		return nil
	}))
	ran, err := p.Try(c.takes(0))
	require.NoError(t, err)
	require.True(t, ran)
}
