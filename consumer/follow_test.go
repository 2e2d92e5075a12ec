package consumer

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/stream"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestAnEventOfWhatWasTriedAMomentAgoIsNoNews(t *testing.T) {
	var r recently
	seen := &model.Task{ID: "-/t/1", Generation: 5, Rev: 3}
	require.False(t, r.has(seen))
	r.add([]*model.Task{seen}, time.Second)
	require.True(t, r.has(seen), "the event that comes after the fetch")
	require.False(t, r.has(&model.Task{ID: "-/t/1", Generation: 5, Rev: 4}), "it has changed since")
	require.False(t, r.has(&model.Task{ID: "-/t/1", Generation: 6, Rev: 1}), "a life that began since")
	require.True(t, r.has(&model.Task{ID: "-/t/1", Generation: 4, Rev: 9}), "a life that has ended since")
	other := []*model.Task{{ID: "-/t/2", Rev: 1}}
	r.add(other, time.Second+recentSpan+1)
	require.True(t, r.has(seen), "less than two spans ago")
	r.add(other, time.Second+2*recentSpan+2)
	require.False(t, r.has(seen), "it forgets")
	require.True(t, r.has(other[0]))
}

func TestAnEventsTaskIsForItsAudience(t *testing.T) {
	for _, c := range []struct {
		audience []string
		mine     bool
	}{
		{[]string{lifecycle.AudienceAll}, true},
		{[]string{lifecycle.AudienceMany}, true},
		{[]string{"other", "me"}, true},
		{[]string{"other"}, false},
		{nil, false},
	} {
		require.Equal(t, c.mine, mayBeFor(&model.Task{Audience: c.audience}, "me"), "%v", c.audience)
	}
}

func TestATaskThatIsDueAtOnceDoesNotWaitForAnEstimateThatLags(t *testing.T) {
	c, _ := prepared(t, testdb.New(t))
	f := newFollower(c, stream.NewRanks())
	now, behind := c.store.Clock.Now(), 5*time.Millisecond
	var woken []store.Woken
	for i, after := range []time.Duration{behind, 100 * time.Millisecond} {
		sent, id := now.Add(after), "-/"+quietType+"/"+strconv.Itoa(i)
		woken = append(woken, store.Woken{ID: id, Task: &model.Task{ID: id, CreatedAt: sent, DueAt: sent}})
	}
	mine, read, late := f.sort(woken, store.Stamp{Now: now, Behind: behind})
	require.Equal(t, []*model.Task{woken[0].Task}, mine)
	require.Empty(t, read)
	require.Len(t, late, 1, "a clock that is wrong is not believed")
	require.Equal(t, woken[1].Task.DueAt, late[0].at)
}

// A task that was woken twice within a moment has two events in one batch.
func TestATaskWithTwoEventsIsClaimedOnce(t *testing.T) {
	c, _ := prepared(t, testdb.New(t))
	task := put(t, c, "k", nil)
	older := *task
	older.Rev--
	f := newFollower(c, stream.NewRanks())
	require.NoError(t, f.claim(t.Context(), []*model.Task{&older, task, task}))
	require.EqualValues(t, 1, c.stats.won.Load())
	require.EqualValues(t, 1, c.stats.attempted.Load())
}
