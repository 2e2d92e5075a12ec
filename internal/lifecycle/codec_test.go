package lifecycle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/model"
)

func TestAFreshTaskHoldsOnlyWhatWasSet(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	task := NewTask(Draft{Type: "email", Key: "k"}, now)
	require.JSONEq(t, `{"_id":"-/email/k","type":"email","key":"k","generation":1767323045000,"rev":1,
		"priority":5,"status":"New","start_time":"2026-01-02T03:04:05.000Z","due_at":"2026-01-02T03:04:05.000Z",
		"audience":["*"],"created_at":"2026-01-02T03:04:05.000Z","updated_at":"2026-01-02T03:04:05.000Z"}`,
		string(codec.DocumentJSON(codec.AppendTask(nil, task))))
}

func TestDurationsAreStoredAsMilliseconds(t *testing.T) {
	task := NewTask(Draft{Type: "email", Key: "k", Options: model.Options{WorkerTimeout: 1500 * time.Millisecond, Retry: &model.Retry{Sequence: []time.Duration{time.Second}}}}, time.UnixMilli(1).UTC())
	raw := bson.Raw(codec.AppendTask(nil, task))
	require.JSONEq(t, `{"worker_timeout_ms":1500,"retry":{"sequence_ms":[1000]}}`, string(codec.ValueJSON(raw.Lookup("options"))))

	back, err := new(codec.TaskReader).Read(raw)
	require.NoError(t, err)
	require.Equal(t, task, back)
}
