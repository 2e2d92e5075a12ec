package pull

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/producer"
)

// Nothing else happens in the process, which has no loop that would record.
func TestWhatIsPulledIsInTheSeriesWhenTheMinuteIsOver(t *testing.T) {
	p := newProcess(t)
	_, err := p.sender.SendJSON(t.Context(), "t", nil, producer.Key("k"))
	require.NoError(t, err)
	st := p.room.Store
	p.pass(st.Measure.UntilRecord(st.Clock.Now()) + time.Millisecond) // to which the time is cut
	require.Len(t, p.fetch("worker"), 1)
	require.Eventually(t, func() bool {
		slots, err := st.Series.Of(t.Context(), measure.Resolutions[0], "t", st.Clock.Now().Add(-time.Hour), st.Clock.Now())
		require.NoError(t, err)
		return len(slots) == 1 && slots[0].Delay.Count() == 1
	}, testdb.Patience, 20*time.Millisecond)
}

// A worker that pulls counts nothing itself, so the process that it pulls from does.
func TestWhatIsPulledIsInTheSeriesWhenTheProducerHasClosed(t *testing.T) {
	p := newProcess(t)
	for i := range 3 {
		_, err := p.sender.SendJSON(t.Context(), "t", nil, producer.Key(fmt.Sprint(i)))
		require.NoError(t, err)
	}
	p.pass(3 * time.Second)
	got := p.fetch("worker")
	require.Len(t, got, 3)
	p.pass(40 * time.Second)
	_, err := p.Complete(t.Context(), got[0].Handle, nil)
	require.NoError(t, err)
	_, err = p.Complete(t.Context(), got[0].Handle, nil) // again: its answer was lost, perhaps
	require.NoError(t, err)
	_, err = p.Fail(t.Context(), got[1].Handle, "no", producer.Failure{Fatal: true})
	require.NoError(t, err)
	_, err = p.GiveBack(t.Context(), got[2].Handle, "stopping")
	require.NoError(t, err)
	require.NoError(t, p.sender.Close(context.Background()))

	st, err := store.Open(store.Config{Database: p.database})
	require.NoError(t, err)
	day, at := measure.Resolutions[2], p.serverTime()
	slots, err := st.Series.Of(t.Context(), day, "t", at.Add(-day.Slot), at.Add(day.Slot))
	require.NoError(t, err)
	require.Len(t, slots, 1)
	require.Equal(t, map[string]int64{"success": 1, "fatal": 1, "released": 1}, slots[0].Ended)
	require.Equal(t, measure.Histogram{"to_5000": 3}, slots[0].Delay)
	require.Equal(t, measure.Histogram{"to_60000": 2}, slots[0].Ran, "what is given back has not begun")
}
