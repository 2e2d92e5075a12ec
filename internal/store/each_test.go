package store

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/codec"
)

func TestEqualChangesAreOneStatement(t *testing.T) {
	t.Parallel()
	one, two := bson.D{d("rev", 1)}, bson.D{d("rev", 2)}
	set, other := bson.D{d("$set", bson.D{d("status", "a")})}, bson.D{d("$set", bson.D{d("status", "b")})}
	var got [][]string
	statements, err := statementsOf([]change{
		{id: "a", guard: one, update: set},
		{id: "b", guard: two, update: set},
		{id: "c", guard: one, update: other},
		{id: "d", guard: one, update: set},
		{id: "e", guard: one},
		{id: "f", guard: one},
		{id: "g", guard: one, update: set, upsert: true},
		{id: "h", guard: one, update: set, upsert: true},
		{id: "i", update: set},
	})
	require.NoError(t, err)
	for _, st := range statements {
		got = append(got, st.ids)
		require.Equal(t, len(st.ids) == 1 && (st.ids[0] == "g" || st.ids[0] == "h"), st.upsert)
		require.Equal(t, st.ids[0] == "e", st.update == nil)
	}
	require.Equal(t, [][]string{{"a", "d"}, {"b"}, {"c"}, {"e", "f"}, {"g"}, {"h"}, {"i"}}, got)
}

// Without its update a change would delete its document.
func TestAnUpdateThatCannotBeEncodedIsAnErrorAndNoDelete(t *testing.T) {
	t.Parallel()
	broken := bson.RawValue{Type: bson.TypeString, Value: []byte("abc")}
	_, err := statementsOf([]change{{id: "a", update: bson.D{d("$set", bson.Raw{13, 0, 0, 0, 2, 'x', 0, 9, 0, 0, 0, 'a', 0})}}})
	require.ErrorContains(t, err, "encoding an update of a")
	before, after := graph.State{Status: graph.NodeWait}, graph.State{Status: graph.NodeWait, Context: broken}
	doc, err := codec.Encode(&after)
	require.NoError(t, err)
	_, err = changed(&before, &before, d("states.0", doc))
	require.Error(t, err)
}
