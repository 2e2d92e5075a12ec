package consumer

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

func TestOfTheWatchersOfAnEventExactlyOneWritesAtOnce(t *testing.T) {
	first := map[int]int{}
	for i := range 1000 {
		id, writers := fmt.Sprintf("-/t/%d", i), 0
		for rank := range store.StreamsPerTypes {
			if rankOf(id, rank) == 0 {
				writers++
				first[rank]++
			}
		}
		require.Equal(t, 1, writers, id)
	}
	for rank := range store.StreamsPerTypes {
		require.InDelta(t, 1000/store.StreamsPerTypes, first[rank], 100, "the tasks are shared evenly")
	}
}

func TestAnEventsTaskIsForItsAudience(t *testing.T) {
	for _, c := range []struct {
		audience []string
		mine     bool
	}{
		{[]string{model.AudienceAll}, true},
		{[]string{model.AudienceMany}, true},
		{[]string{"other", "me"}, true},
		{[]string{"other"}, false},
		{nil, false},
	} {
		require.Equal(t, c.mine, mayBeFor(&model.Task{Audience: c.audience}, "me"), "%v", c.audience)
	}
}
