package query

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

// A line is a document, an update, what becomes of the document (or "same", or
// the code of an error), and perhaps array filters. `$` stands for element 1.
const updates = `
{"c": 1} | {"$set": {"b": 2, "10": 1, "9": 1}, "$inc": {"a": 1}} | {"c": 1, "9": 1, "10": 1, "a": 1, "b": 2}
{"a": {"b": 1}} | {"$set": {"a.c.d": 1, "a.c.e": 2}, "$unset": {"a.b": 1}} | {"a": {"c": {"d": 1, "e": 2}}}
{"a": [1]} | {"$set": {"a.3": 4}} | {"a": [1, null, null, 4]}
{"a": [1]} | {"$set": {"a.2000000": 4}} | 34
{"a": [1]} | {"$set": {"a.20000000000000000000": 4}} | 34
{"a": [1]} | {"$unset": {"a.20000000000000000000": 4}, "$pull": {"a.2000000": 1}} | same
{"a": [1, 2]} | {"$unset": {"a.0": 1, "a.7": 1}} | {"a": [null, 2]}
{"m": {"1a": {"x": 0, "y": 0}}} | {"$set": {"m.1a.x": 1, "m.2": 1, "m.10": 1, "m.11": 1, "m.1a.y": 1}} | {"m": {"1a": {"x": 1, "y": 1}, "2": 1, "10": 1, "11": 1}}
{} | {"$set": {"1a": 1, "2": 1, "10": 1, "11": 1}, "$inc": {"1a.x": 1}} | 40
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
{"_id": 1} | {"$set": {"_id": 1}} | same
{"_id": 1} | {"$set": {"_id": 1.0}} | 66
{"_id": 1} | {"$inc": {"_id": 0}, "$set": {"b": 1}} | {"_id": 1, "b": 1}
{"_id": 1} | {"$inc": {"_id": 0.0}} | 66
{"_id": 1} | {"$max": {"_id": 1.0}} | same
{"_id": 1, "a": 2} | {"$rename": {"a": "_id"}} | 66
{"_id": 1, "a": 1} | {"$rename": {"a": "_id"}} | 66
{"_id": 1, "a": 1.0} | {"$rename": {"a": "_id"}, "$set": {"b": 1}} | 66
{"_id": 1, "c": {"a": 1}} | {"$rename": {"c.a": "_id"}, "$push": {"b": 1}} | 66
{"_id": {"x": 1}, "a": 1} | {"$rename": {"a": "_id.x"}, "$set": {"b": 1}} | 66
{"_id": {"x": 1}, "a": 1} | {"$rename": {"a": "_id.y"}} | 66
{"_id": 1} | {"$rename": {"_id": "a"}, "$set": {"b": 1}} | 66
{"_id": {"x": 1}} | {"$rename": {"_id.x": "a"}} | 66
{"_id": 1} | {"$rename": {"a": "_id"}} | same
{"_id": 1} | {"$rename": {"a": "_id"}, "$set": {"b": 1}} | {"_id": 1, "b": 1}
{"a": 1} | {"$rename": {"a": "_id"}} | {"_id": 1}
{"_id": 1, "a": 1} | {"$rename": {"a": "_id"}, "$set": {"_id": 1}} | 40
{"_id": 1, "a": 1} | {"$rename": {"a": "_id"}, "$unset": {"a": 1}} | 40
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
			got, modified, err = u.Apply(doc, ApplyContext{Positional: 1, Now: 7, Timestamp: func() bson.Timestamp { return bson.Timestamp{T: 8, I: 9} }})
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
		{`{"a.c": 1, "a-b": 2, "b.9": 3, "b.10": 4}`, `{"$set": {"9": 5, "10": 6}}`,
			`{"a-b": 2, "a": {"c": 1}, "b": {"10": 4, "9": 3}, "9": 5, "10": 6}`, 0}, // of the filter, by the whole path
		{`{"$or": [{"c": 3}, {"c": 4}], "d": {"$ne": 1}}`, `{"$set": {"_id": 1}}`, `{"_id": 1}`, 0},
		{`{"a": 1, "_id": 2}`, `{"b": 1}`, `{"_id": 2, "b": 1}`, 0},
		{`{"_id": 2}`, `{"$set": {"_id": 3}}`, ``, mongoerr.ImmutableField},
		{`{"a": {"$all": [1, 2]}}`, `{"$set": {"b": 3}}`, ``, mongoerr.NotSingleValueField},
		{`{"_id.x": 1, "_id.y": 2}`, `{"$set": {"b": 3}}`, `{"_id": {"x": 1, "y": 2}, "b": 3}`, 0},
		{`{"_id.x": 1, "_id.y": 2}`, `{"b": 3}`, ``, mongoerr.NotExactValueField},
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

func TestUpdatesNestDocumentsNoDeeperThanMongoDB(t *testing.T) {
	for levels, code := range map[int]int32{180: 0, 181: mongoerr.Overflow} {
		doc := raw(t, strings.Repeat(`{"a": `, levels)+"1"+strings.Repeat("}", levels))
		_, err := CompileUpdate(doc, nil)
		require.Equal(t, code, mongoerr.Code(err), "a replacement of %d levels", levels)
		require.Equal(t, code, mongoerr.Code(CheckDepth(doc)), "an insert of %d levels", levels)
	}
	nested := strings.Repeat(`{"a": `, 90) + "1" + strings.Repeat("}", 90)
	for parts, code := range map[int]int32{80: 0, 100: mongoerr.Overflow, 5_000_000: mongoerr.Overflow} {
		path := "b" + strings.Repeat(".a", parts-1)
		_, err := CompileUpdate(raw(t, `{"$set": {"`+path+`": `+nested+`}}`), nil)
		require.Equal(t, code, mongoerr.Code(err), "$set at %d parts", parts)
		u, err := CompileUpdate(raw(t, `{"$set": {"c": 1}}`), nil)
		require.NoError(t, err)
		_, err = u.Upsert(compile(t, `{"`+path+`": `+nested+`}`), ApplyContext{Positional: -1})
		require.Equal(t, code, mongoerr.Code(err), "upsert at %d parts", parts)
		u, err = CompileUpdate(raw(t, `{"$rename": {"a": "`+path[:min(len(path), 301)]+`"}}`), nil)
		require.NoError(t, err)
		_, _, err = u.Apply(raw(t, nested), ApplyContext{Positional: -1})
		require.Equal(t, code, mongoerr.Code(err), "$rename to %d parts", parts)
	}
}

// A line is a document, an update, what a change event names as updated, and what as
// removed, and perhaps array filters.
const described = `
{"a": {"x": 1, "y": 2}, "c": 1} | {"$set": {"a.x": 2}, "$unset": {"c": 1, "a.y": 1}} | {"a.x": 2} | ["c", "a.y"]
{"a": {"x": 1, "y": 2}} | {"$set": {"a": {"x": 1, "y": 3}}} | {"a": {"x": 1, "y": 3}} | []
{"a": 1} | {"$set": {"b.c.d": 5, "a": 1}} | {"b": {"c": {"d": 5}}} | []
{"a": {}} | {"$set": {"a.c.d": 5, "a.c.e": 6}} | {"a.c": {"d": 5, "e": 6}} | []
{"a": [1, 2, 3]} | {"$set": {"a": [1, 2]}} | {"a": [1, 2]} | []
{"a": [1, 2, 3]} | {"$pop": {"a": 1}} | {"a": [1, 2]} | []
{"a": [1, 2, 3]} | {"$pull": {"a": 3}} | {"a": [1, 2]} | []
{"a": [1]} | {"$addToSet": {"a": 2}} | {"a": [1, 2]} | []
{"a": [1]} | {"$push": {"a": {"$each": [2, 3]}}} | {"a.1": 2, "a.2": 3} | []
{"a": []} | {"$push": {"a": 1}} | {"a": [1]} | []
{"a": [1]} | {"$push": {"a": {"$each": [2, 3], "$slice": 2}}} | {"a": [1, 2]} | []
{"a": [1]} | {"$push": {"a": {"$each": [2], "$sort": 1}}} | {"a": [1, 2]} | []
{"a": {"b": [1]}} | {"$push": {"a.b": 2}} | {"a.b.1": 2} | []
{"a": [1, {"k": 1}, {"k": 5}]} | {"$inc": {"a.1.k": 1}, "$unset": {"a.2.k": 1, "a.0": 1}} | {"a.0": null, "a.1.k": 2} | ["a.2.k"]
{"a": [1]} | {"$set": {"a.3": 4}} | {"a.3": 4} | []
{"a": [1, 2]} | {"$set": {"a.01": 4}} | {"a.1": 4} | []
{"a": [1, {"k": 1}]} | {"$set": {"a.$.k": 2}} | {"a.1.k": 2} | []
{"a": [{"k": 1}, {"k": 2}]} | {"$set": {"a.$[x].k": 3}} | {"a.1.k": 3} | [] | [{"x.k": 2}]
{"a": [{"k": 1}, {"k": 2}]} | {"$inc": {"a.$[].k": 1}} | {"a": [{"k": 2}, {"k": 3}]} | []
{"a": [{"k": 1, "l": 1}, {"k": 2, "l": 1}]} | {"$set": {"a.$[].k": 2}} | {"a.0": {"k": 2, "l": 1}} | []
{"a": 1, "b": {"c": 2}} | {"$rename": {"a": "b.d"}} | {"b.d": 1} | ["a"]`

func TestChangesAreDescribedAsMongoDBDescribesThem(t *testing.T) {
	for line := range strings.SplitSeq(strings.TrimSpace(described), "\n") {
		c := append(strings.Split(line, " | "), "[]")
		u, err := CompileUpdate(raw(t, c[1]), raws(t, c[4]))
		require.NoError(t, err, line)
		doc, _, err := u.Apply(raw(t, c[0]), ApplyContext{Positional: 1})
		require.NoError(t, err, line)
		want := raw(t, `{"updatedFields": `+c[2]+`, "removedFields": `+c[3]+`, "truncatedArrays": []}`)
		require.Equal(t, want, Describe(raw(t, c[0]), doc, u.Paths()), line)
	}
	old, new := raw(t, `{"a": 1, "b": 2, "c": 3}`), raw(t, `{"c": 3, "n": 1, "a": 5}`)
	require.Equal(t, raw(t, `{"updatedFields": {"n": 1, "a": 5}, "removedFields": ["b"], "truncatedArrays": []}`), Describe(old, new, nil))
}

// Numbers are ordered as such and other names as texts, so 2 < 10 < 1a < 2.
func TestAnUpdateStoresNoFieldTwiceWhateverTheOrderOfItsPaths(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[12][0a]{0,2}|[a-c]`), 2, 30, rapid.ID).Draw(r, "names")
		var set bson.D
		want := map[string]bson.M{}
		for _, name := range names {
			set = append(set, bson.E{Key: name + ".x", Value: 1}, bson.E{Key: name + ".y", Value: 2})
			want[name] = bson.M{"x": int32(1), "y": int32(2)}
		}
		set = rapid.Permutation(set).Draw(r, "paths")
		u, err := CompileUpdate(marshal(t, bson.D{{Key: "$set", Value: set}}), nil)
		require.NoError(r, err)
		after, _, err := u.Apply(emptyDoc, ApplyContext{Positional: -1})
		require.NoError(r, err)
		elems, err := after.Elements()
		require.NoError(r, err)
		require.Len(r, elems, len(names))
		got := map[string]bson.M{}
		require.NoError(r, bson.Unmarshal(after, &got))
		require.Equal(r, want, got)
	})
}

// fastest is how long do takes if nothing else holds it up.
func fastest(do func()) time.Duration {
	least := time.Duration(math.MaxInt64)
	for range 3 {
		began := time.Now()
		do()
		least = min(least, time.Since(began))
	}
	return least
}

// The update holds up all writers meanwhile.
func TestManyValuesAreNotEachComparedWithAll(t *testing.T) {
	const n = 20_000
	var old, more bson.A
	for i := range n {
		old, more = append(old, 2*i), append(more, 2*i+1)
	}
	doc := marshal(t, bson.D{{Key: "a", Value: old}})
	took := func(op string, v any) time.Duration {
		u, err := CompileUpdate(marshal(t, bson.D{{Key: op, Value: bson.D{{Key: "a", Value: v}}}}), nil)
		require.NoError(t, err)
		return fastest(func() { _, _, _ = u.Apply(doc, ApplyContext{Positional: -1}) })
	}
	each := bson.D{{Key: "$each", Value: more}}
	once := took("$push", each)
	require.Less(t, took("$addToSet", each), 100*once)
	require.Less(t, took("$pullAll", more), 100*once)
}

func TestSetsOfFewAndOfManyValuesAreTheSame(t *testing.T) {
	for _, n := range []int{fewFields, fewFields + 1} {
		more := bson.A{1.0, "x", bson.D{{Key: "k", Value: 2.0}}, bson.A{3}, nil, math.NaN()}
		for i := len(more); i < n-1; i++ {
			more = append(more, i)
		}
		more = append(more, "x")
		old := bson.A{bson.D{{Key: "k", Value: int64(2)}}, int64(1), "y", "y", bson.A{3.0}, bson.D{{Key: "k", Value: 3}}}
		changed := func(op string, v any) bson.Raw {
			u, err := CompileUpdate(marshal(t, bson.D{{Key: op, Value: bson.D{{Key: "a", Value: v}}}}), nil)
			require.NoError(t, err)
			after, _, err := u.Apply(marshal(t, bson.D{{Key: "a", Value: old}}), ApplyContext{Positional: -1})
			require.NoError(t, err)
			return after
		}
		want := append(slices.Clone(old), "x", nil, math.NaN())
		want = append(want, more[6:n-1]...)
		require.Equal(t, marshal(t, bson.D{{Key: "a", Value: want}}), changed("$addToSet", bson.D{{Key: "$each", Value: more}}), n)
		require.Equal(t, marshal(t, bson.D{{Key: "a", Value: bson.A{"y", "y", bson.D{{Key: "k", Value: 3}}}}}), changed("$pullAll", more), n)
	}
}

func TestAnUpdateOfManyFieldsFindsEach(t *testing.T) {
	for _, n := range []int{fewFields, fewFields + 1, 10 * fewFields} {
		var doc, set, unset, want bson.D
		for i := range n {
			name := strconv.Itoa(i)
			doc = append(doc, bson.E{Key: name, Value: i})
			switch i % 3 {
			case 0:
				set = append(set, bson.E{Key: name, Value: -1})
				want = append(want, bson.E{Key: name, Value: -1})
			case 1:
				unset = append(unset, bson.E{Key: name, Value: 1})
			default:
				want = append(want, bson.E{Key: name, Value: i})
			}
		}
		set, want = append(set, bson.E{Key: "new", Value: 1}), append(want, bson.E{Key: "new", Value: 1})
		u, err := CompileUpdate(marshal(t, bson.D{{Key: "$set", Value: set}, {Key: "$unset", Value: unset}}), nil)
		require.NoError(t, err)
		before := marshal(t, doc)
		after, modified, err := u.Apply(before, ApplyContext{Positional: -1})
		require.NoError(t, err)
		require.True(t, modified)
		require.Equal(t, marshal(t, want), after)
		require.Len(t, Changed(before, after), len(set)+len(unset))

		slices.Reverse(doc)
		require.Empty(t, Changed(before, marshal(t, doc)))
		doc[n/2].Value = "other"
		require.Equal(t, [][]byte{[]byte(doc[n/2].Key)}, Changed(before, marshal(t, doc)))
	}
}
