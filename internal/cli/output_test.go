package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
)

func TestATaskAsJSONSaysHowLongItsLastExecutionTook(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000)
	task := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: "k"}, at)
	j, err := view.Task(codec.AppendTask(nil, task))
	require.NoError(t, err)
	require.NotContains(t, string(j), "exec_time")
	task.WorkerStates = []model.WorkerState{{ExecID: "e", WorkerID: "w", ClaimedAt: at, SuccessTime: at.Add(1500 * time.Millisecond)}}
	j, err = view.Task(codec.AppendTask(nil, task))
	require.NoError(t, err)
	require.Contains(t, string(j), `"exec_time_ms":1500`)
}
