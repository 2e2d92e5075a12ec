package consumer

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

var charted = model.NewType[int, model.None]("charted")

// charts is a database whose series a test reads.
type charts struct {
	t     *testing.T
	db    *mongo.Database
	store *store.Store
	sends *producer.Producer
}

func newCharts(t *testing.T) *charts {
	t.Helper()
	ch := &charts{t: t, db: testdb.New(t)}
	var err error
	ch.store, err = store.Open(store.Config{Database: ch.db})
	require.NoError(t, err)
	ch.sends, err = producer.New(producer.Config{Database: ch.db})
	require.NoError(t, err)
	return ch
}

// worker is one whose handler fails for good for odd arguments.
func (ch *charts) worker() *Consumer {
	ch.t.Helper()
	c, err := New(Config{Database: ch.db})
	require.NoError(ch.t, err)
	c.store.Series.Within = testdb.Patience // or what a slow record had is lost
	require.NoError(ch.t, Handle(c, charted, func(_ context.Context, task *Task[int]) (model.None, error) {
		if task.Args%2 == 1 {
			return model.None{}, Fatal(errors.New("odd"))
		}
		return model.None{}, nil
	}, Defaults(model.Options{PingInterval: time.Minute, WorkerTimeout: time.Hour}))) // the clock of one worker is minutes ahead of the others'
	return c
}

func (ch *charts) send(from, to int) {
	ch.t.Helper()
	for i := from; i < to; i++ {
		_, err := producer.Send(ch.t.Context(), ch.sends, charted, i, producer.Key(strconv.Itoa(i)))
		require.NoError(ch.t, err)
	}
}

// read is what the series have by now: how executions ended, and how many delays and durations there are.
func (ch *charts) read() (ended map[string]int64, delays, ran int64) {
	ch.t.Helper()
	require.NoError(ch.t, ch.store.ReadClock(ch.t.Context()))
	ended = map[string]int64{}
	fine, now := measure.Resolutions[0], ch.store.Clock.Now()
	slots, err := ch.store.Series.Of(ch.t.Context(), fine, charted.Name(), now.Add(-fine.Kept), now.Add(fine.Kept))
	require.NoError(ch.t, err)
	for _, s := range slots {
		for outcome, n := range s.Ended {
			ended[outcome] += n
		}
		delays, ran = delays+s.Delay.Count(), ran+s.Ran.Count()
	}
	return ended, delays, ran
}

func TestAStopRecordsTheLastOfTheSeries(t *testing.T) {
	ch := newCharts(t)
	ch.send(0, 6)
	got, err := ch.worker().Drain(t.Context(), false)
	require.NoError(t, err)
	require.Equal(t, 6, got.Executions)
	ended, delays, ran := ch.read()
	require.Equal(t, map[string]int64{"success": 3, "fatal": 3}, ended)
	require.EqualValues(t, 6, delays)
	require.EqualValues(t, 6, ran)
}

// The workers of a process count together, and what each of them records counts once. While they work, minutes
// pass for one of them.
func TestWorkersOfAProcessRecordOnce(t *testing.T) {
	ch := newCharts(t)
	workers := []*Consumer{ch.worker(), ch.worker()}
	require.Same(t, workers[0].store.Measure, workers[1].store.Measure)
	ended := make(chan error, len(workers))
	for _, c := range workers {
		go func() { ended <- c.Run(context.Background()) }()
	}
	const minutes, each = 3, 10
	for m := range minutes {
		ch.send(m*each, (m+1)*each)
		require.Eventually(t, func() bool {
			return workers[0].Stats().Finished+workers[1].Stats().Finished == int64((m+1)*each)
		}, testdb.Patience, 5*time.Millisecond)
		workers[0].store.Clock.Skip(measure.Every)
		require.Eventually(t, func() bool {
			ended, _, _ := ch.read()
			return ended["success"]+ended["fatal"] == int64((m+1)*each)
		}, testdb.Patience, 20*time.Millisecond, "it does not wait for the stop")
	}
	for _, c := range workers {
		require.NoError(t, c.Stop(t.Context()))
		require.NoError(t, inTime(t, ended))
	}
	outcomes, delays, ran := ch.read()
	require.Equal(t, map[string]int64{"success": minutes * each / 2, "fatal": minutes * each / 2}, outcomes)
	require.EqualValues(t, minutes*each, delays)
	require.EqualValues(t, minutes*each, ran)
}
