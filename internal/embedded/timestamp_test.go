package embedded

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The clock stands still, and the times differ all the same.
func TestEachTimestampOfTheServerIsAnother(t *testing.T) {
	c := newDB(t, Options{Now: (&testClock{now: time.Unix(1_700_000_000, 0)}).Now}).Collection("c")
	ctx, upsert, empty := t.Context(), options.UpdateOne().SetUpsert(true), bson.Timestamp{}
	var times []bson.Timestamp
	read := func(id any, fields ...string) {
		t.Helper()
		doc, err := c.FindOne(ctx, byID(id)).Raw()
		require.NoError(t, err)
		for _, field := range fields {
			sec, i, ok := doc.Lookup(field).TimestampOK()
			require.True(t, ok, "%s of %s", field, doc)
			times = append(times, bson.Timestamp{T: sec, I: i})
		}
	}
	_, err := c.InsertMany(ctx, []any{
		bson.D{{Key: "_id", Value: 1}, {Key: "t", Value: empty}, {Key: "u", Value: empty}}, bson.D{{Key: "_id", Value: 2}, {Key: "t", Value: empty}},
	})
	require.NoError(t, err)
	read(1, "t", "u")
	read(2, "t")
	dates := bson.D{{Key: "$currentDate", Value: bson.D{{Key: "t", Value: bson.D{{Key: "$type", Value: "timestamp"}}}, {Key: "u", Value: bson.D{{Key: "$type", Value: "timestamp"}}}}}}
	for _, id := range []int{1, 2, 3} { // 3 is new
		_, err := c.UpdateOne(ctx, byID(id), dates, upsert)
		require.NoError(t, err)
		read(id, "t", "u")
	}
	_, err = c.UpdateMany(ctx, bson.D{}, dates)
	require.NoError(t, err)
	for _, id := range []int{1, 2, 3} {
		read(id, "t", "u")
	}
	for _, id := range []int{3, 4} {
		_, err = c.ReplaceOne(ctx, byID(id), bson.D{{Key: "t", Value: empty}, {Key: "u", Value: empty}}, options.Replace().SetUpsert(true))
		require.NoError(t, err)
		read(id, "t", "u")
	}
	require.Len(t, times, 19)
	for i := range times[1:] {
		require.True(t, times[i+1].After(times[i]), "%d: %v, then %v", i, times[i], times[i+1])
	}
	last := operationTime(t, c)
	require.True(t, last.After(times[len(times)-1]), "the write itself is later still")
}
