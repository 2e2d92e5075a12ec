package lifecycle

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

func stepOf(name string, bytes int) model.Step {
	return model.Step{Name: name, WorkerID: "w", Value: bson.RawValue{Type: bson.TypeString, Value: make([]byte, bytes)}}
}

func TestStepsAreBoundedInNumberAndTogether(t *testing.T) {
	var done []model.Step
	for i := range input.MaxSteps {
		s := stepOf(fmt.Sprint(i), 10)
		require.NoError(t, input.StepRoom(done, s, 1))
		done = append(done, s)
	}
	require.ErrorContains(t, input.StepRoom(done, stepOf("more", 1), 1), "steps has 1000 entries already")

	done = nil
	for i := range 3 {
		done = append(done, stepOf(fmt.Sprint(i), input.MaxStepBytes))
	}
	require.NoError(t, input.StepRoom(done, stepOf("fits", input.MaxStepBytes-1000), 1))
	err := input.StepRoom(done, stepOf("large", input.MaxStepBytes), 1)
	require.ErrorIs(t, err, model.ErrInvalid)
	require.ErrorContains(t, err, "with step large")
	require.ErrorContains(t, input.StepRoom(done[:1], stepOf("large", input.MaxStepBytes), 2), "2097152 for each of 2 workers")
}

// All that may gather in one document stays below the 16 MB that MongoDB stores.
func TestATaskFullOfStepsFitsADocument(t *testing.T) {
	task := NewTask(Draft{Type: "t", Key: "k"}, epoch)
	for i := 0; ; i++ {
		s := stepOf(fmt.Sprintf("%s%d", strings.Repeat("n", 90), i), 4000)
		if input.StepRoom(task.Steps, s, 1) != nil {
			break
		}
		task.Steps = append(task.Steps, s)
	}
	require.Less(t, len(codec.AppendTask(nil, task)), input.MaxStepsBytes+4096)
	require.Greater(t, len(codec.AppendTask(nil, task)), input.MaxStepsBytes*9/10)
}

func TestAStepsNameIsShortAndPlain(t *testing.T) {
	require.NoError(t, input.StepName("step", "charge.card-2_x"))
	for _, bad := range []string{"", "a b", "a/b", "é", strings.Repeat("x", 101)} {
		require.ErrorIs(t, input.StepName("step", bad), model.ErrInvalid, bad)
	}
}
