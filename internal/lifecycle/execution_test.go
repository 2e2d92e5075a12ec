package lifecycle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/model"
)

func TestExecTimeIsThatOfTheExecutionThatEndedLast(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	task := &model.Task{}
	require.Zero(t, ExecTime(task))
	task.WorkerStates = []model.WorkerState{
		{ClaimedAt: at(5), FailTime: at(12)},
		{ClaimedAt: at(1), FailTime: at(3)},
		{ClaimedAt: at(20), FailTime: at(30), Unstarted: true},
		{ClaimedAt: at(40)},
	}
	require.Equal(t, 7*time.Second, ExecTime(task))
	task.WorkerStates[3].SuccessTime = at(41)
	require.Equal(t, time.Second, ExecTime(task))
}
