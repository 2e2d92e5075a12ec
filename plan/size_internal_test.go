package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/plan/repeat"
)

func TestTheSizeOfAPlanCountsItsMessages(t *testing.T) {
	plan := &repeat.Plan{Status: repeat.StatusRunning, Messages: bson.RawValue{Value: make([]byte, 1<<20)}}
	require.Greater(t, sizeOf(plan), 1<<20)
	plan.Status = repeat.StatusFinish
	require.True(t, isOver(plan), "nothing is decided about it any more")
}
