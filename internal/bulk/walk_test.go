package bulk

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

func TestOfManyReasonsToLeaveTasksAloneTheLastAreCountedTogether(t *testing.T) {
	var c Counts
	for i := range 9 {
		c.skip(&model.RefusedError{Reason: fmt.Sprint("reason ", i)})
	}
	c.skip(&model.RefusedError{Reason: "reason 3"})
	c.skip(producer.ErrNotFound)
	require.EqualValues(t, 11, c.Skipped)
	require.Equal(t, map[string]int64{otherReasons: 5, "reason 3": 2, "reason 0": 1, "reason 1": 1, "reason 2": 1, "reason 4": 1}, c.Reasons)
}
