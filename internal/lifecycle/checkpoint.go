package lifecycle

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/model"
)

// CheckpointOf is what the previous execution saved for the next one; with several
// workers each has its own.
func CheckpointOf(t *model.Task, workerID string) bson.RawValue {
	if Wanted(t) == 1 {
		return t.Checkpoint
	}
	var newest *model.WorkerState
	for i := range t.WorkerStates {
		w := &t.WorkerStates[i]
		if w.WorkerID == workerID && w.Checkpoint.Type != 0 && (newest == nil || w.ClaimedAt.After(newest.ClaimedAt)) {
			newest = w
		}
	}
	if newest == nil {
		return bson.RawValue{}
	}
	return newest.Checkpoint
}
