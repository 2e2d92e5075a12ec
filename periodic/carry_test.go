package periodic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/model"
)

func TestATargetIsCalledOnceWhereNobodySaysHowItIsRetried(t *testing.T) {
	retry := &model.Retry{Strategy: model.RetryFixed}
	for name, c := range map[string]struct {
		task model.Task
		typ  *model.TaskType
		want *model.Retry
	}{
		"nobody":       {task: model.Task{Type: "mscheduler.http"}, want: &model.Retry{Strategy: model.RetryNone}},
		"type, not it": {task: model.Task{Type: "mscheduler.http"}, typ: &model.TaskType{}, want: &model.Retry{Strategy: model.RetryNone}},
		"the rule":     {task: model.Task{Type: "mscheduler.http", Options: model.Options{Retry: retry}}, want: retry},
		"the type":     {task: model.Task{Type: "mscheduler.http"}, typ: &model.TaskType{Options: model.Options{Retry: retry}}},
		"no target":    {task: model.Task{Type: "report"}},
	} {
		callOnce(&c.task, c.typ)
		require.Equal(t, c.want, c.task.Options.Retry, name)
	}
}
