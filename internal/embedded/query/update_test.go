package query

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
)

// A line is a document, an update, what becomes of the document (or "same", or
// the code of an error), and perhaps array filters. `$` stands for element 1.
const updates = `
{"c": 1} | {"$set": {"b": 2, "10": 1, "9": 1}, "$inc": {"a": 1}} | {"c": 1, "9": 1, "10": 1, "a": 1, "b": 2}
{"a": {"b": 1}} | {"$set": {"a.c.d": 1, "a.c.e": 2}, "$unset": {"a.b": 1}} | {"a": {"c": {"d": 1, "e": 2}}}
{"a": [1]} | {"$set": {"a.3": 4}} | {"a": [1, null, null, 4]}
{"a": [1]} | {"$set": {"a.2000000": 4}} | 28
{"a": [1, 2]} | {"$unset": {"a.0": 1, "a.7": 1}} | {"a": [null, 2]}
{"a": 1} | {"$unset": {"a.b": 1}} | same
{"a": 1} | {"$pop": {"a.b": 1}} | 28
{"a": null} | {"$set": {"a.b": 1}} | 28
{"a": 1} | {"$set": {"a": 1}} | same
{"a": 1} | {"$inc": {"a": 0}} | same
{"a": 1} | {"$inc": {"a": 0.0}} | {"a": 1.0}
{"a": {"$numberLong": "9223372036854775807"}} | {"$inc": {"a": 1}} | 2
{} | {"$mul": {"a": 2.5}, "$min": {"b": 1}, "$setOnInsert": {"c": 1}} | {"a": 0.0, "b": 1}
{"a": "x"} | {"$max": {"a": 5}} | same
{"_id": 1} | {"$set": {"_id": 2}} | 66
{"_id": 1} | {"$unset": {"_id": 1}} | 66
{"_id": {"a": 1}} | {"$set": {"_id.a": 2}} | 66
{"_id": 1, "a": 2} | {"b": 3} | {"_id": 1, "b": 3}
{"_id": 1, "a": 2} | {"b": 3, "_id": 1} | {"_id": 1, "b": 3}
{"_id": 1, "a": 2} | {"_id": 2} | 66
{"a": {"x": 1}, "c": 0} | {"$rename": {"a.x": "n.x"}} | {"a": {}, "c": 0, "n": {"x": 1}}
{"a": [{"x": 1}]} | {"$rename": {"a.0.x": "b"}} | 2
{"a": [1], "b": 2} | {"$rename": {"b": "a.0"}} | 2
{"a": [3, 1]} | {"$push": {"a": {"$each": [2, 5], "$sort": -1, "$slice": 3}}} | {"a": [5, 3, 2]}
{"a": [1, 2]} | {"$push": {"a": {"$each": [9], "$position": -1, "$slice": -2}}} | {"a": [9, 2]}
{"a": [{"k": 2}, 7, {"k": 1}]} | {"$push": {"a": {"$each": [], "$sort": {"k": 1}}}} | {"a": [7, {"k": 1}, {"k": 2}]}
{"a": [1]} | {"$addToSet": {"a": {"$each": [1.0, 2, 2]}}} | {"a": [1, 2]}
{"a": [{"k": 1, "v": 2}, {"k": 2}, 3]} | {"$pull": {"a": {"k": {"$gte": 2}}}} | {"a": [{"k": 1, "v": 2}, 3]}
{"a": [1, 5, [6], "x"]} | {"$pull": {"a": {"$gt": 4}}} | {"a": [1, "x"]}
{"a": [{"b": 1}, {"b": 2}]} | {"$set": {"a.$.b": 9, "a.$.c": 8}} | {"a": [{"b": 1}, {"b": 9, "c": 8}]}
{"a": [1, {"b": 1}]} | {"$set": {"a.$.b": 9, "a.1.b": 8}} | 40
{"a": [1, {"b": 1}]} | {"$set": {"a.$.b": 9, "a.1.c": 8}} | {"a": [1, {"b": 9, "c": 8}]}
{"a": [1, 2, 3]} | {"$inc": {"a.$[]": 1}} | {"a": [2, 3, 4]}
{"a": [{"k": [1, 5]}, {"k": [6]}]} | {"$set": {"a.$[x].k.$[y]": 0}} | {"a": [{"k": [1, 0]}, {"k": [6]}]} | [{"x.k": 1}, {"y": 5}]
{"a": [1, 2]} | {"$set": {"a.$[x]": 0, "a.$[y]": 0}} | {"a": [0, 0]} | [{"x": 1}, {"y": 2}]
{"a": [1, 2]} | {"$set": {"a.$[x]": 0, "a.$[y]": 0}} | 40 | [{"x": 1}, {"y": {"$lt": 5}}]
{"b": 1} | {"$set": {"a.$[]": 0}} | 2
{} | {"$set": {"b": 0}} | 9 | [{"x": 1}]
{} | {"$set": {"b.$[x]": 0}} | 9 | [{"x": 1}, {"x": 2}]
{} | {"$set": {"b.$[x]": 0}} | 9 | [{"x": 1, "y": 2}]
{} | {"$currentDate": {"a": true}} | {"a": {"$date": {"$numberLong": "7"}}}
{} | {"$currentDate": {"b": {"$type": "timestamp"}}} | {"b": {"$timestamp": {"t": 8, "i": 9}}}
{"a": {"$numberDecimal": "1"}} | {"$inc": {"a": 1}} | 238`

func TestUpdatesChangeDocumentsAsMongoDBs(t *testing.T) {
	for _, line := range strings.Split(strings.TrimSpace(updates), "\n") {
		c := append(strings.Split(line, " | "), "[]")
		doc, want := raw(t, c[0]), c[2]
		u, err := CompileUpdate(raw(t, c[1]), raws(t, c[3]))
		got, modified := bson.Raw(nil), false
		if err == nil {
			got, modified, err = u.Apply(doc, ApplyContext{Positional: 1, Now: 7, Timestamp: bson.Timestamp{T: 8, I: 9}})
		}
		require.Equal(t, raw(t, c[0]), doc, "the document handed in is left alone: %s", line)
		if code, fails := strconv.Atoi(want); fails == nil {
			require.EqualValues(t, code, mongoerr.Code(err), "%s: %v", line, err)
			continue
		}
		require.NoError(t, err, line)
		require.NoError(t, got.Validate(), line)
		require.Equal(t, want != "same", modified, line)
		if want == "same" {
			want = c[0]
		}
		require.Equal(t, raw(t, want), got, line)
	}
	u, err := CompileUpdate(raw(t, `{"$set": {"a.$.b": 9}}`), nil)
	require.NoError(t, err)
	_, _, err = u.Apply(raw(t, `{"a": [{"b": 1}]}`), ApplyContext{Positional: -1})
	require.Equal(t, mongoerr.BadValue, mongoerr.Code(err), "nothing matched that `$` could stand for")
}

func TestUpsertsStartFromWhatTheFilterRequires(t *testing.T) {
	for _, c := range []struct {
		filter, update, want string
		code                 int32
	}{
		{`{"b": 1, "a.x": 2, "c": {"$gt": 1}, "_id": 7}`, `{"$set": {"z": 1}, "$setOnInsert": {"s": 1}}`,
			`{"_id": 7, "a": {"x": 2}, "b": 1, "s": 1, "z": 1}`, 0},
		{`{"$and": [{"a": {"$all": [1]}}, {"b": {"$in": [2]}}], "$or": [{"c": 3}]}`, `{"$inc": {"a": 1}}`,
			`{"a": 2, "b": 2, "c": 3}`, 0},
		{`{"$or": [{"c": 3}, {"c": 4}], "d": {"$ne": 1}}`, `{"$set": {"_id": 1}}`, `{"_id": 1}`, 0},
		{`{"a": 1, "_id": 2}`, `{"b": 1}`, `{"_id": 2, "b": 1}`, 0},
		{`{"_id": 2}`, `{"$set": {"_id": 3}}`, ``, mongoerr.ImmutableField},
		{`{"a": {"$all": [1, 2]}}`, `{"$set": {"b": 3}}`, ``, mongoerr.NotSingleValueField},
		{`{"a": 1, "a.b": 2}`, `{"$set": {"b": 3}}`, ``, mongoerr.NotSingleValueField},
	} {
		u, err := CompileUpdate(raw(t, c.update), nil)
		require.NoError(t, err)
		got, err := u.Upsert(compile(t, c.filter), ApplyContext{Positional: -1})
		require.Equal(t, c.code, mongoerr.Code(err), "%s %s: %v", c.filter, c.update, err)
		if err == nil {
			require.Equal(t, raw(t, c.want), got, "%s %s", c.filter, c.update)
		}
	}
}

func TestDescribeNamesTheSmallestChanges(t *testing.T) {
	d := Describe(raw(t, `{"_id": 1, "a": {"x": 1, "y": 2}, "b": [1, {"k": 1}, 3], "c": 1, "d": [1], "e": 5}`),
		raw(t, `{"_id": 1, "a": {"x": 2}, "b": [1, {"k": 2}], "d": [1, 2], "e": {"f": 1}}`))
	require.Equal(t, raw(t, `{"updatedFields": {"a.x": 2, "b.1.k": 2, "d.1": 2, "e": {"f": 1}},
		"removedFields": ["c", "a.y"], "truncatedArrays": [{"field": "b", "newSize": 2}]}`), d)
	d = Describe(raw(t, `{"a": 1, "b": 2, "c": 3}`), raw(t, `{"c": 3, "n": 1, "a": 5}`))
	require.Equal(t, raw(t, `{"updatedFields": {"n": 1, "a": 5}, "removedFields": ["b"], "truncatedArrays": []}`), d)
}
