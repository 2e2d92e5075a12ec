package view_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// withSecrets fills each callback in a document, wherever its type has one, and is how many there are. Types that hold
// themselves are filled to a depth.
func withSecrets(v reflect.Value, depth int) (filled int) {
	if v.Type() == reflect.TypeFor[*model.Callback]() {
		v.Set(reflect.ValueOf(&model.Callback{
			Success:  &model.CallbackTarget{URL: "https://hush@example.org/?token=hush"},
			Error:    &model.CallbackTarget{URL: "https://example.org/?token=hush"},
			Security: &model.CallbackSecurity{Type: model.SecurityAKSK, Keys: []callback.Key{{AccessKey: "ak", Secret: "hush"}}},
		}))
		return 1
	}
	switch {
	case depth == 0:
	case v.Kind() == reflect.Pointer:
		inner := reflect.New(v.Type().Elem())
		if filled = withSecrets(inner.Elem(), depth-1); filled > 0 {
			v.Set(inner)
		}
	case v.Kind() == reflect.Slice:
		inner := reflect.MakeSlice(v.Type(), 1, 1)
		if filled = withSecrets(inner.Index(0), depth-1); filled > 0 {
			v.Set(inner)
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("bson") != "-" {
				filled += withSecrets(v.Field(i), depth-1)
			}
		}
	}
	return filled
}

func TestNoStoredDocumentShowsTheSecretsOfACallback(t *testing.T) {
	for _, doc := range []any{
		&model.Task{}, &model.TaskType{}, &schedule.Rule{}, &schedule.Run{}, &repeat.Plan{}, &repeat.Result{}, &graph.Flow{}, &graph.Node{},
		&store.Worker{}, &store.Token{}, &store.AuditEntry{}, &store.Answer{},
	} {
		filled := withSecrets(reflect.ValueOf(doc).Elem(), 12)
		shown, err := view.Stored(doc, "id")
		require.NoError(t, err)
		require.NotContains(t, string(shown), "hush", "%T", doc)
		require.Equal(t, filled, strings.Count(string(shown), `"ak":"ak"`), "%T: %s", doc, shown)
		require.Equal(t, filled, strings.Count(string(shown), `"sk":"***"`), "%T: %s", doc, shown)
		switch doc.(type) {
		case *repeat.Plan: // of the plan, and of its steps
			require.Equal(t, 2, filled)
		case *graph.Flow: // of the flow, of the nodes of a flow in it, and of tasks
			require.Greater(t, filled, 5)
		}
	}
}
