package codec

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/model"
)

// The sizes that docs/operations.md counts with. The key is a generated one, and the ids are of a usual length.
func TestDocumentsOfTasksHaveTheSizesThatOperatorsCountWith(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	task := &model.Task{
		ID: "-/email.send/06h1a2vwvq19jjxr58s5b0npwr", Type: "email.send", Key: "06h1a2vwvq19jjxr58s5b0npwr", Generation: at.UnixMilli(), Priority: 5,
		Status: model.StatusNew, StartTime: at, DueAt: at, Audience: []string{"*"}, Rev: 1, CreatedAt: at, UpdatedAt: at,
	}
	waiting := len(AppendTask(nil, task))
	before := *task
	task.Status, task.DueAt, task.LapseAt, task.Attempt = model.StatusExecuting, time.Time{}, at, 1
	task.WorkerStates = []model.WorkerState{{
		ExecID: "28ab21d4-548e-4bca-9a1f-372f9ad32d6d", WorkerID: "worker-6d8f7c9b5-x2x7q-1-a1b2c3d4", ClaimedAt: at, PingExpireTime: at, Attempt: 1,
	}}
	executing := len(AppendTask(nil, task))
	claim := len(AppendDiff(nil, &before, task))
	before = *task
	before.WorkerStates = slices.Clone(task.WorkerStates)
	task.Status, task.LapseAt, task.FinishedAt, task.ArchiveAt = model.StatusSuccess, time.Time{}, at, at
	task.WorkerStates[0].SuccessTime = at
	ended := len(AppendTask(nil, task))
	end := len(AppendDiff(nil, &before, task))
	t.Logf("waiting %d, executing %d, ended %d bytes; updates of a claim %d, of an end %d", waiting, executing, ended, claim, end)
	require.InDelta(t, 300, waiting, 50)
	require.InDelta(t, 500, executing, 50)
	require.InDelta(t, 550, ended, 50)
	require.InDelta(t, 500, claim+end, 150)
}
