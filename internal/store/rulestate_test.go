package store

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// A field that decisions change must be in the state, or the change is lost: each field of a
// rule is either there, as it is in the rule, or one that only an edit changes.
func TestTheStateOfARuleIsAllThatDecisionsChange(t *testing.T) {
	edited := map[string]bool{"Planned": true, "PastTypes": true} // pushed and pulled by its own; those before an edit
	for _, name := range []string{
		"ID", "Name", "Tenant", "Creator", "Category", "Description", "Ext", "Cron", "Timezone", "DST", "StartAt", "EndAt", "MaxRuns",
		"Jitter", "Task", "Overlap", "OnFailure", "MaxConcurrency", "Concurrency", "QueueLimit", "CatchUp", "Log", "RunRetention",
		"DeletedAt", "Living", "Version", "CreatedAt",
	} {
		edited[name] = true
	}
	rule, state := reflect.TypeFor[schedule.Rule](), reflect.TypeFor[ruleState]()
	full := &schedule.Rule{}
	for i := range rule.NumField() {
		f := rule.Field(i)
		if edited[f.Name] {
			continue
		}
		of, there := state.FieldByName(f.Name)
		require.True(t, there, f.Name)
		require.Equal(t, f.Type, of.Type, f.Name)
		require.Equal(t, f.Tag, of.Tag, f.Name)
		set := reflect.ValueOf(full).Elem().Field(i)
		set.Set(nonZero(f.Type))
	}
	got := reflect.ValueOf(stateOf(full)).Elem()
	for i := range state.NumField() {
		require.False(t, got.Field(i).IsZero(), "%s is not taken over", state.Field(i).Name)
	}
}

func nonZero(t reflect.Type) reflect.Value {
	v := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Int64:
		v.SetInt(1)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(t, 1, 1))
	case reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
	default: // a time
		v.Set(reflect.ValueOf(time.UnixMilli(1)))
	}
	return v
}
