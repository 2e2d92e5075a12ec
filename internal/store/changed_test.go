package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/periodic/schedule"
)

func TestAnUpdateSaysOnlyWhatHasChanged(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000).UTC()
	before := schedule.Rule{
		ID: "r", Name: "nightly", Rev: 3, Version: 1, Runs: 7, UpdatedAt: at, Active: []schedule.RunRef{{}}, Last: &schedule.LastRun{}, PauseNote: "wait", FailSkips: true,
	}
	after := before
	after.Rev, after.UpdatedAt, after.PauseNote, after.FailSkips = 4, at.Add(time.Second), "", false
	after.Active = []schedule.RunRef{{}} // equal, and another one in memory

	update, err := changed(&before, &after)
	require.NoError(t, err)
	raw, err := bson.Marshal(update)
	require.NoError(t, err)
	require.JSONEq(t, `{
		"$set": {"rev": {"$numberLong": "4"}, "updated_at": {"$date": {"$numberLong": "1700000001000"}}},
		"$unset": {"pause_note": "", "fail_skips": ""}
	}`, bson.Raw(raw).String())
	require.Equal(t, "nightly", before.Name, "the caller's values stay")

	update, err = changed(&before, &before)
	require.NoError(t, err)
	require.Empty(t, update)
}
