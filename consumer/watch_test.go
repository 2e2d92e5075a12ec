package consumer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

func TestAStreamIsGivenUpWhileABacklogIsDrained(t *testing.T) {
	var b busyness
	for range 100 {
		require.False(t, b.tick(false, true), "it waits for work")
	}
	require.False(t, b.tick(true, false), "one full fetch is no backlog yet")
	require.False(t, b.tick(false, true))
	require.False(t, b.tick(true, false))
	require.True(t, b.tick(true, false))
	b = busyness{}
	for range busyTicks - 1 {
		require.False(t, b.tick(false, false), "no slot is free for a moment")
	}
	require.True(t, b.tick(false, false))
}

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
