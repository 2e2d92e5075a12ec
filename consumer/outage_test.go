package consumer

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/workerevent"
)

// lines takes each line of a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

func TestADatabaseThatComesAndGoesIsLoggedOnceAMinute(t *testing.T) {
	w := newWorld(t, nil)
	log := make(lines, 100)
	w.c.log = zerolog.New(log).Level(zerolog.WarnLevel) // who reads that an outage began also reads that it is over
	events := 0
	w.c.cfg.OnEvent = func(e Event) {
		if e.Kind == workerevent.Outage || e.Kind == workerevent.Restored {
			events++
		}
	}
	const unavailable, again = "the database is unavailable", "the database is available again"
	for range 10 {
		w.c.health.Report(errAway)
		w.c.health.Report(nil)
		w.pass(time.Second)
	}
	require.Contains(t, inTime(t, log), unavailable)
	require.Contains(t, inTime(t, log), again)
	require.Equal(t, 20, events)

	w.c.health.Report(errAway)
	require.Empty(t, log, "it may end at once")
	w.pass(time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var loop sync.WaitGroup
	loop.Go(func() { w.c.housekeepingLoop(ctx) })
	require.Contains(t, inTime(t, log), unavailable, "it lasts")
	require.Contains(t, inTime(t, log), again, "its heartbeat was answered")
	cancel()
	loop.Wait()
	require.Empty(t, log)

	w.pass(time.Minute)
	w.c.health.Report(errAway)
	require.Contains(t, inTime(t, log), unavailable)
	w.pass(time.Minute)
	w.c.logOutage()
	require.Empty(t, log, "the outage is logged already")
}
