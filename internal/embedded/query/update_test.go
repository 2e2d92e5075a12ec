package query

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
)

func TestUpdatesChangeDocumentsAsMongoDBs(t *testing.T) {
	for _, c := range []struct {
		doc, update, want string // want: the same as doc when empty
		filters           []string
		pos               int
		code              int32
	}{
		// New fields come in the order of their names, numbers by value.
		{doc: `{"_id": 1, "c": 1}`, update: `{"$set": {"b": 2, "10": 1, "9": 1, "c": 3}, "$inc": {"a": 1}}`, want: `{"_id": 1, "c": 3, "9": 1, "10": 1, "a": 1, "b": 2}`},
		{doc: `{"a": {"b": 1}}`, update: `{"$set": {"a.c.d": 1, "a.c.e": 2}, "$unset": {"a.b": 1}}`, want: `{"a": {"c": {"d": 1, "e": 2}}}`},
		{doc: `{"a": [1]}`, update: `{"$set": {"a.3": 4}}`, want: `{"a": [1, null, null, 4]}`},
		{doc: `{"a": [1]}`, update: `{"$set": {"a.2000000": 4}}`, code: mongoerr.PathNotViable},
		{doc: `{"a": [1, 2]}`, update: `{"$unset": {"a.0": 1, "a.7": 1}}`, want: `{"a": [null, 2]}`},
		{doc: `{"a": 1}`, update: `{"$unset": {"a.b": 1}}`},
		{doc: `{"a": 1}`, update: `{"$pop": {"a.b": 1}}`, code: mongoerr.PathNotViable},
		{doc: `{"a": null}`, update: `{"$set": {"a.b": 1}}`, code: mongoerr.PathNotViable},
		{doc: `{"a": 1}`, update: `{"$set": {"a": 1}}`},
		{doc: `{"a": 1}`, update: `{"$inc": {"a": 0}}`},
		{doc: `{"a": 1}`, update: `{"$inc": {"a": 0.0}}`, want: `{"a": 1.0}`},
		{doc: `{"a": {"$numberLong": "9223372036854775807"}}`, update: `{"$inc": {"a": 1}}`, code: mongoerr.BadValue},
		{doc: `{}`, update: `{"$mul": {"a": 2.5}, "$min": {"b": 1}, "$setOnInsert": {"c": 1}}`, want: `{"a": 0.0, "b": 1}`},
		{doc: `{"a": "x"}`, update: `{"$max": {"a": 5}}`},
		{doc: `{"_id": 1}`, update: `{"$set": {"_id": 2}}`, code: mongoerr.ImmutableField},
		{doc: `{"_id": 1}`, update: `{"$unset": {"_id": 1}}`, code: mongoerr.ImmutableField},
		{doc: `{"_id": {"a": 1}}`, update: `{"$set": {"_id.a": 2}}`, code: mongoerr.ImmutableField},
		{doc: `{"_id": 1, "a": 2}`, update: `{"b": 3}`, want: `{"_id": 1, "b": 3}`},
		{doc: `{"_id": 1, "a": 2}`, update: `{"b": 3, "_id": 1}`, want: `{"_id": 1, "b": 3}`},
		{doc: `{"_id": 1, "a": 2}`, update: `{"_id": 2}`, code: mongoerr.ImmutableField},
		{doc: `{"a": 1, "b": 2}`, update: `{"$rename": {"a": "b"}}`, want: `{"b": 1}`},
		{doc: `{"a": {"x": 1}, "c": 0}`, update: `{"$rename": {"a.x": "n.x"}}`, want: `{"a": {}, "c": 0, "n": {"x": 1}}`},
		{doc: `{"a": [{"x": 1}]}`, update: `{"$rename": {"a.0.x": "b"}}`, code: mongoerr.BadValue},
		{doc: `{"a": [1], "b": 2}`, update: `{"$rename": {"b": "a.0"}}`, code: mongoerr.BadValue},
		{doc: `{"a": [3, 1]}`, update: `{"$push": {"a": {"$each": [2, 5], "$sort": -1, "$slice": 3}}}`, want: `{"a": [5, 3, 2]}`},
		{doc: `{"a": [1, 2]}`, update: `{"$push": {"a": {"$each": [9], "$position": -1, "$slice": -2}}}`, want: `{"a": [9, 2]}`},
		{doc: `{"a": [{"k": 2}, 7, {"k": 1}]}`, update: `{"$push": {"a": {"$each": [], "$sort": {"k": 1}}}}`, want: `{"a": [7, {"k": 1}, {"k": 2}]}`},
		{doc: `{"a": [1]}`, update: `{"$addToSet": {"a": {"$each": [1.0, 2, 2]}}}`, want: `{"a": [1, 2]}`},
		{doc: `{"a": [{"k": 1, "v": 2}, {"k": 2}, 3]}`, update: `{"$pull": {"a": {"k": {"$gte": 2}}}}`, want: `{"a": [{"k": 1, "v": 2}, 3]}`},
		{doc: `{"a": [1, 5, [6], "x"]}`, update: `{"$pull": {"a": {"$gt": 4}}}`, want: `{"a": [1, "x"]}`},
		{doc: `{"a": [1, 2, 1.0]}`, update: `{"$pullAll": {"a": [1]}}`, want: `{"a": [2]}`},
		{doc: `{"a": [{"b": 1}, {"b": 2}]}`, update: `{"$set": {"a.$.b": 9, "a.$.c": 8}}`, pos: 1, want: `{"a": [{"b": 1}, {"b": 9, "c": 8}]}`},
		{doc: `{"a": [{"b": 1}]}`, update: `{"$set": {"a.$.b": 9}}`, pos: -1, code: mongoerr.BadValue},
		{doc: `{"a": [{"b": 1}]}`, update: `{"$set": {"a.$.b": 9, "a.0.b": 8}}`, code: mongoerr.ConflictingUpdateOperators},
		{doc: `{"a": [{"b": 1}]}`, update: `{"$set": {"a.$.b": 9, "a.0.c": 8}}`, want: `{"a": [{"b": 9, "c": 8}]}`},
		{doc: `{"a": [1, 2, 3]}`, update: `{"$inc": {"a.$[]": 1}}`, want: `{"a": [2, 3, 4]}`},
		{doc: `{"a": [{"k": 1, "b": [1, 5]}, {"k": 2, "b": [6]}]}`, update: `{"$set": {"a.$[x].b.$[y]": 0}}`, filters: []string{`{"x.k": 1}`, `{"y": {"$gt": 4}}`}, want: `{"a": [{"k": 1, "b": [1, 0]}, {"k": 2, "b": [6]}]}`},
		{doc: `{"a": [1, 2]}`, update: `{"$set": {"a.$[x]": 0, "a.$[y]": 0}}`, filters: []string{`{"x": 1}`, `{"y": 2}`}, want: `{"a": [0, 0]}`},
		{doc: `{"a": [1, 2]}`, update: `{"$set": {"a.$[x]": 0, "a.$[y]": 0}}`, filters: []string{`{"x": 1}`, `{"y": {"$lt": 5}}`}, code: mongoerr.ConflictingUpdateOperators},
		{doc: `{"b": 1}`, update: `{"$set": {"a.$[]": 0}}`, code: mongoerr.BadValue},
		{doc: `{}`, update: `{"$set": {"b": 0}}`, filters: []string{`{"x": 1}`}, code: mongoerr.FailedToParse},
		{doc: `{}`, update: `{"$set": {"b.$[x]": 0}}`, filters: []string{`{"x": 1}`, `{"x": 2}`}, code: mongoerr.FailedToParse},
		{doc: `{}`, update: `{"$set": {"b.$[x]": 0}}`, filters: []string{`{"x": 1, "y": 2}`}, code: mongoerr.FailedToParse},
		{doc: `{}`, update: `{"$currentDate": {"a": true, "b": {"$type": "timestamp"}}}`, want: `{"a": {"$date": {"$numberLong": "7"}}, "b": {"$timestamp": {"t": 8, "i": 9}}}`},
		{doc: `{"a": {"$numberDecimal": "1"}}`, update: `{"$inc": {"a": 1}}`, code: mongoerr.NotImplementedCode},
	} {
		var filters []bson.Raw
		for _, f := range c.filters {
			filters = append(filters, raw(t, f))
		}
		doc := raw(t, c.doc)
		u, err := CompileUpdate(raw(t, c.update), filters)
		var got bson.Raw
		modified := false
		if err == nil {
			got, modified, err = u.Apply(doc, ApplyContext{Positional: c.pos, Now: 7, Timestamp: bson.Timestamp{T: 8, I: 9}})
		}
		require.Equal(t, c.code, mongoerr.Code(err), "%s on %s: %v", c.update, c.doc, err)
		if err != nil {
			continue
		}
		require.Equal(t, c.want != "", modified, "%s on %s", c.update, c.doc)
		if c.want == "" {
			c.want = c.doc
		}
		require.Equal(t, raw(t, c.want), got, "%s on %s", c.update, c.doc)
		require.Equal(t, raw(t, c.doc), doc, "the document handed in is left alone")
		require.NoError(t, got.Validate())
	}
}

func TestUpsertsStartFromWhatTheFilterRequires(t *testing.T) {
	for _, c := range []struct {
		filter, update, want string
		code                 int32
	}{
		{filter: `{"b": 1, "a.x": 2, "c": {"$gt": 1}, "_id": 7}`, update: `{"$set": {"z": 1}, "$setOnInsert": {"s": 1}}`, want: `{"_id": 7, "a": {"x": 2}, "b": 1, "s": 1, "z": 1}`},
		{filter: `{"$and": [{"a": {"$all": [1]}}, {"b": {"$in": [2]}}], "$or": [{"c": 3}]}`, update: `{"$inc": {"a": 1}}`, want: `{"a": 2, "b": 2, "c": 3}`},
		{filter: `{"$or": [{"c": 3}, {"c": 4}], "d": {"$ne": 1}}`, update: `{"$set": {"_id": 1}}`, want: `{"_id": 1}`},
		{filter: `{"a": 1, "_id": 2}`, update: `{"b": 1}`, want: `{"_id": 2, "b": 1}`},
		{filter: `{"_id": 2}`, update: `{"$set": {"_id": 3}}`, code: mongoerr.ImmutableField},
		{filter: `{"a": {"$all": [1, 2]}}`, update: `{"$set": {"b": 3}}`, code: mongoerr.NotSingleValueField},
		{filter: `{"a": 1, "a.b": 2}`, update: `{"$set": {"b": 3}}`, code: mongoerr.NotSingleValueField},
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
