package consumer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

var errAway = errors.New("no answer")

func TestWhoBacksOffGoesOnAsSoonAsTheDatabaseAnswersAnybody(t *testing.T) {
	c, _ := prepared(t, testdb.New(t))
	wait := c.newBackOff()
	wait.d = time.Hour
	c.health.report(c, errAway)
	slept := make(chan struct{})
	go func() {
		wait.sleep(t.Context())
		close(slept)
	}()
	c.health.report(c, nil)
	<-slept
	require.Equal(t, shortestBackOff, wait.d)

	c.health.report(c, errAway)
	c.health.report(c, nil)
	wait.d = time.Hour
	wait.sleep(t.Context()) // the last try was before that
}

func TestACallOnAConnectionOfBeforeTheOutageEndsWithIt(t *testing.T) {
	c, _ := prepared(t, testdb.New(t))
	before, cancel := c.health.call(t.Context(), time.Hour)
	defer cancel()
	c.health.report(c, nil)
	require.NoError(t, before.Err(), "nothing was wrong")
	c.health.report(c, errAway)
	require.NoError(t, before.Err())
	c.health.report(c, nil)
	<-before.Done() // a second after it was sent
	after, cancel := c.health.call(t.Context(), time.Hour)
	defer cancel()
	require.NoError(t, after.Err())
}

func TestAfterAnOutagePingsAndEndsGoFirst(t *testing.T) {
	c, o := prepared(t, testdb.New(t))
	require.NoError(t, c.ownFirst(t.Context()), "nothing is owed")
	put(t, c, "a", nil)
	c.health.report(c, errAway)
	c.health.report(c, nil)
	<-c.pingNow // the ping loop is woken
	before := o.count()
	fetched := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		_, err := c.fetch(context.Background())
		fetched <- err
		close(done)
	}()
	require.False(t, clock.PauseOr(t.Context(), 100*time.Millisecond, done), "the ping is not answered yet")
	require.Equal(t, before, o.count())
	c.pingAll(t.Context())
	require.NoError(t, <-fetched)
	require.EqualValues(t, 1, c.Stats().ClaimsWon)
	require.Nil(t, c.health.owed())
}
