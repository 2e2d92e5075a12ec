package embedded

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

// TestDistinctSeesWhatMongoDBReads: an index alone has the key null for a document
// without the field, so a distinct that reads no document lists a null.
func TestDistinctSeesWhatMongoDBReads(t *testing.T) {
	const docs = `[{"_id": 1, "a": 1, "b": "x", "t": ["p"]}, {"_id": 2, "b": "x", "c": 5}, {"_id": 3, "a": 2, "b": "y"}, {"_id": 4, "c": {"x": 7}}]`
	db := newDB(t, Options{})
	for i, c := range []struct {
		about, docs, indexes, query, key, want string // want: the values, or "refused"
	}{
		{"no index", docs, `[]`, `{}`, "a", `[1, 2]`},
		{"an index without the field", docs, `[{"b": 1}]`, `{}`, "a", `[1, 2]`},
		{"the index of the field", docs, `[{"a": 1}]`, `{}`, "a", `[null, 1, 2]`},
		{"backwards", docs, `[{"a": -1}]`, `{}`, "a", `[null, 1, 2]`},
		{"the first field of an index", docs, `[{"a": 1, "b": 1}]`, `{}`, "a", `[null, 1, 2]`},
		{"not its first field", docs, `[{"b": 1, "a": 1}]`, `{}`, "a", `[1, 2]`},
		{"another field of the index is an array", docs, `[{"a": 1, "t": 1}]`, `{}`, "a", `[null, 1, 2]`},
		{"a field of a document", docs, `[{"c.x": 1}]`, `{}`, "c.x", `[null, 7]`},
		{"a partial index lacks documents", docs, `[{"a": 1, "partial": {"b": "x"}}]`, `{}`, "a", `[1, 2]`},
		{"a sparse index has no key for them", docs, `[{"a": 1, "sparse": true}]`, `{}`, "a", `[1, 2]`},
		{"a sparse index has them for another field", docs, `[{"a": 1, "b": 1, "sparse": true}]`, `{}`, "a", `[null, 1, 2]`},
		{"the shortest index decides", docs, `[{"a": 1, "b": 1}, {"a": 1, "sparse": true}]`, `{}`, "a", `[1, 2]`},
		{"a filter on the field", docs, `[{"a": 1}]`, `{"a": {"$ne": 1}}`, "a", `[null, 2]`},
		{"a $nor of one", docs, `[{"a": 1}]`, `{"$nor": [{"a": {"$gt": 1}}]}`, "a", `[null, 1]`},
		{"a filter that excludes it", docs, `[{"a": 1}]`, `{"a": {"$gte": 1}}`, "a", `[1, 2]`},
		{"a filter on another field of the index", docs, `[{"b": 1, "a": 1}]`, `{"b": "x"}`, "a", `[null, 1]`},
		{"a filter that the index does not begin with", docs, `[{"a": 1, "b": 1}]`, `{"b": "x"}`, "a", `[1]`},
		{"a filter that needs documents", docs, `[{"b": 1, "a": 1}]`, `{"b": "x", "_id": {"$gt": 0}}`, "a", `[1]`},
		{"a condition that keys do not decide", docs, `[{"b": 1, "a": 1}]`, `{"b": {"$exists": true}}`, "a", `[1, 2]`},
		{"null is also missing", docs, `[{"a": 1}]`, `{"a": null}`, "a", `[]`},
		{"a partial index that the filter implies", docs, `[{"b": 1, "a": 1, "partial": {"b": "x"}}]`, `{"b": "x"}`, "a", `[null, 1]`},
		{"perhaps covered, and it shows", docs, `[{"b": 1, "a": 1}]`, `{"b": {"$regex": "^x"}}`, "a", "refused"},
		{"perhaps covered, and it does not show", docs, `[{"b": 1, "a": 1}]`, `{"b": {"$regex": "^y"}}`, "a", `[2]`},
		{"arrays are read from documents", `[{"_id": 1, "a": [1, null]}, {"_id": 2, "a": 2}]`, `[{"a": 1}]`, `{}`, "a", `[null, 1, 2]`},
		{"arrays, and one lacks the field", `[{"_id": 1, "a": [1]}, {"_id": 2}]`, `[{"a": 1}]`, `{}`, "a", `[1]`},
		{"arrays, and the key null stands for both", `[{"_id": 1}, {"_id": 2, "a": null}, {"_id": 3, "a": [1]}]`, `[{"a": 1}]`, `{}`, "a", "refused"},
		{"documents in an array that lack the field", `[{"_id": 1, "a": [{"k": 1}, {"l": 1}, 5, [{"k": 9}]]}]`, `[{"a.k": 1}]`, `{}`, "a.k", `[1]`},
	} {
		ctx, name := t.Context(), "c"+string(rune('a'+i%26))+string(rune('a'+i/26))
		var list, specs struct{ V []bson.D }
		require.NoError(t, bson.UnmarshalExtJSON([]byte(`{"v": `+c.docs+`}`), false, &list))
		require.NoError(t, bson.UnmarshalExtJSON([]byte(`{"v": `+c.indexes+`}`), false, &specs))
		_, err := db.Collection(name).InsertMany(ctx, list.V)
		require.NoError(t, err)
		for j, spec := range specs.V {
			index := bson.D{{Key: "name", Value: "i" + string(rune('a'+j))}}
			key := bson.D{}
			for _, e := range spec {
				switch e.Key {
				case "partial":
					index = append(index, bson.E{Key: "partialFilterExpression", Value: e.Value})
				case "sparse":
					index = append(index, e)
				default:
					key = append(key, e)
				}
			}
			index = append(index, bson.E{Key: "key", Value: key})
			require.NoError(t, db.RunCommand(ctx, bson.D{{Key: "createIndexes", Value: name}, {Key: "indexes", Value: bson.A{index}}}).Err(), c.about)
		}
		var filter bson.D
		require.NoError(t, bson.UnmarshalExtJSON([]byte(c.query), false, &filter))
		raw, failed := RunRaw(ctx, db, bson.D{{Key: "distinct", Value: name}, {Key: "key", Value: c.key}, {Key: "query", Value: filter}})
		if c.want == "refused" {
			require.NotNil(t, failed, c.about)
			require.Equal(t, mongoerr.NotImplementedCode, failed.Code, c.about)
			continue
		}
		require.Nil(t, failed, c.about)
		var want struct{ V bson.RawValue }
		require.NoError(t, bson.UnmarshalExtJSON([]byte(`{"v": `+c.want+`}`), false, &want))
		require.Equal(t, want.V.String(), raw.Lookup("values").String(), c.about)
	}
}
