package store

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestEqualChangesAreOneStatement(t *testing.T) {
	t.Parallel()
	one, two := bson.D{d("rev", 1)}, bson.D{d("rev", 2)}
	set, other := bson.D{d("$set", bson.D{d("status", "a")})}, bson.D{d("$set", bson.D{d("status", "b")})}
	var got [][]string
	for _, st := range statementsOf([]change{
		{id: "a", guard: one, update: set},
		{id: "b", guard: two, update: set},
		{id: "c", guard: one, update: other},
		{id: "d", guard: one, update: set},
		{id: "e", guard: one},
		{id: "f", guard: one},
		{id: "g", guard: one, update: set, upsert: true},
		{id: "h", guard: one, update: set, upsert: true},
		{id: "i", update: set},
	}) {
		got = append(got, st.ids)
		require.Equal(t, len(st.ids) == 1 && (st.ids[0] == "g" || st.ids[0] == "h"), st.upsert)
		require.Equal(t, st.ids[0] == "e", st.update == nil)
	}
	require.Equal(t, [][]string{{"a", "d"}, {"b"}, {"c"}, {"e", "f"}, {"g"}, {"h"}, {"i"}}, got)
}
