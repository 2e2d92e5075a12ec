package query

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// That these functions answer as MongoDB does is shown by the 5,000 answers in
// package embedded's testdata. Here is what that record does not show, or only in
// passing.

func raw(t testing.TB, json string) bson.Raw {
	t.Helper()
	var d bson.Raw
	require.NoError(t, bson.UnmarshalExtJSON([]byte(json), false, &d), json)
	return d
}

func raws(t testing.TB, json string) (docs []bson.Raw) {
	t.Helper()
	for _, v := range value.Elements(raw(t, `{"r": `+json+`}`).Lookup("r").Value) {
		docs = append(docs, v.Value)
	}
	return docs
}

func compile(t testing.TB, filter string) *Filter {
	t.Helper()
	f, err := CompileFilter(raw(t, filter))
	require.NoError(t, err, filter)
	return f
}

func stream(docs []bson.Raw) Docs {
	return func(yield func(bson.Raw, error) bool) {
		for _, d := range docs {
			if !yield(d, nil) {
				return
			}
		}
	}
}

func TestFiltersMatchAsMongoDBs(t *testing.T) {
	for _, c := range []struct {
		filter, doc string
		want        bool
	}{
		{`{"a": {"$regularExpression": {"pattern": "b$", "options": ""}}}`, `{"a": "ab\n"}`, true},
		{`{"a": {"$regularExpression": {"pattern": "b$", "options": ""}}}`, `{"a": "ab\nc"}`, false},
		{`{"a": {"$regularExpression": {"pattern": "b$", "options": "m"}}}`, `{"a": "ab\nc"}`, true},
		{`{"a": {"$regex": "^A.B", "$options": "is"}}`, `{"a": "a\nbc"}`, true},
		{`{"a": {"$regex": "^A.B", "$options": "i"}}`, `{"a": "a\nbc"}`, false},
		{`{"a": {"$regex": "^b", "$options": "m"}}`, `{"a": "a\nb\n"}`, true},
		{`{"a": {"$regex": "^x\\sy[^\\S,]z$"}}`, `{"a": "x\u000by\u000bz"}`, true}, // the vertical tab is a space
		{`{"a": {"$regex": "\\S|[^\\s,]"}}`, `{"a": "\u000b"}`, false},
		{`{"a": {"$regex": "^[^\\S\\n]$"}}`, `{"a": "\u000b"}`, true},
		{`{"a": {"$regex": "[\\S\\n]"}}`, `{"a": "\u000b"}`, false},
		{`{"a": {"$regex": "x[\\t\\f]y"}}`, `{"a": "x\u000by"}`, false},
		{`{"a": {"$regex": "x[^\\t\\f]y"}}`, `{"a": "x\u000by"}`, true},
		{`{"a": {"$in": [null, 4]}}`, `{"a": {"$undefined": true}}`, true},
		{`{"a.0": null}`, `{"a": [{"k": 1}]}`, true}, // the document in the array has no field "0"
		{`{"a.b": null}`, `{"a": [1, 2]}`, false},
		{`{"a.b": {"$exists": false}}`, `{"a": []}`, true},
		{`{"a": {"$lt": {"$maxKey": 1}}}`, `{}`, true},
		{`{"a": {"$lte": {"$numberDouble": "NaN"}}}`, `{"a": {"$numberDecimal": "NaN"}}`, true},
		{`{"a": {"$lt": 5}}`, `{"a": {"$numberDouble": "NaN"}}`, false},
		{`{"a": {"$gt": {"$numberDouble": "NaN"}}}`, `{"a": 5}`, false},
		{`{"a": 1}`, `{"a": {"$numberDecimal": "1.00"}}`, true},
		{`{"a": {"$mod": [{"$numberLong": "-1"}, 0]}}`, `{"a": {"$numberLong": "-9223372036854775808"}}`, true},
		{`{"a": {"$all": [{"$elemMatch": {"x": 1}}, {"$elemMatch": {"y": 2}}]}}`, `{"a": [{"x": 1}, {"y": 2}]}`, true},
		{`{"a": {"$elemMatch": {"$not": {"$gt": 1}, "$exists": true}}}`, `{"a": [2, 1]}`, true},
		{`{"a": {"$elemMatch": {"0": 1}}}`, `{"a": [[1]]}`, true},
		{`{"a": {"$ref": "c", "$id": 1}}`, `{"a": {"$ref": "c", "$id": 1}}`, true},
		{`{"a": {"$type": ["number", "minKey"]}}`, `{"a": {"$minKey": 1}}`, true},
	} {
		require.Equal(t, c.want, compile(t, c.filter).Match(raw(t, c.doc)), "%s on %s", c.filter, c.doc)
	}
}

func TestPositionIsTheOutermostArrayOfTheLastCondition(t *testing.T) {
	doc := raw(t, `{"a": [1, 2, 3], "b": [{"c": [7, 8]}, {"c": [8]}]}`)
	for filter, want := range map[string]int{
		`{"a": 2}`: 1, `{"b.c": 8}`: 0, `{"b": {"$elemMatch": {"c": {"$size": 1}}}}`: 1, `{"a": 3, "b.c": 7}`: 0,
		`{"b.c": {"$gt": 7}, "a": 3}`: 0, `{"a.1": 2}`: -1, `{}`: -1, `{"$or": [{"a": 2}, {"b": 9}]}`: -1,
		`{"$or": [{"a": 2}, {"a": 9}], "b.c": 7}`: 1, // it is an $in, the last condition
		`{"a": {"$ne": 9}}`:                       -1,
	} {
		matched, pos := compile(t, filter).MatchPositional(doc)
		require.True(t, matched, filter)
		require.Equal(t, want, pos, filter)
	}
}

func TestTheTreeOfAFilterIsFlatAndSimple(t *testing.T) {
	root := compile(t, `{"$and": [{"b": {"$in": [1]}}, {"$or": [{"a": {"$gt": 1, "$lt": 3}}]}],
		"c": {"$ne": 1}, "d": {"$in": [2, 1, 2.0]}}`).Root()
	var ops []Op
	for _, c := range root.Children {
		ops = append(ops, c.Op)
	}
	require.Equal(t, []Op{OpEq, OpLt, OpGt, OpIn, OpNot}, ops)
	require.Len(t, root.Children[3].Values, 2)
	require.Equal(t, OpEq, root.Children[4].Children[0].Op)
}

func TestWhatIsNotSupportedIsRefusedAndWhatIsWrongHasMongoDBsCode(t *testing.T) {
	refused := mongoerr.NotImplementedCode
	filter := func(spec bson.Raw) error { _, err := CompileFilter(spec); return err }
	update := func(spec bson.Raw) error { _, err := CompileUpdate(spec, nil); return err }
	projection := func(spec bson.Raw) error { _, err := CompileProjection(spec); return err }
	order := func(spec bson.Raw) error { _, err := CompileSort(spec); return err }
	stage := func(spec bson.Raw) error { _, err := CompilePipeline([]bson.Raw{spec}); return err }
	for _, c := range []struct {
		compile func(bson.Raw) error
		code    int32
		specs   string
	}{
		{filter, refused, `[{"$expr": {}}, {"$where": "1"}, {"$text": {}}, {"$jsonSchema": {}}, {"a": {"$near": [1, 2]}},
			{"a": {"$bitsAllSet": 1}}, {"a": {"$regex": "(?=x)"}}, {"a": {"$regex": "x", "$options": "x"}},
			{"a": {"$regex": "(a$)b"}}, {"a": {"$regex": "\\v"}}, {"a": {"$regex": "^\\s*$", "$options": "m"}},
			{"a": {"$not": {"$geoWithin": {}}}}, {"a": {"$elemMatch": {"$near": 1}}}]`},
		{filter, 51091, `[{"a": {"$regex": "("}}]`}, {filter, 51108, `[{"a": {"$regex": "x", "$options": "q"}}]`},
		{filter, 9, `[{"a": {"$type": []}}]`},
		{filter, 2, `[{"a": {"$foo": 1}}, {"$foo": 1}, {"a": {"$comment": 1}}, {"a": {"$gt": 1, "b": 2}}, {"$or": []},
			{"$and": [1]}, {"a": {"$in": 1}}, {"a": {"$in": [{"$gt": 1}]}}, {"a": {"$not": {}}}, {"a": {"$not": 1}},
			{"a": {"$mod": [0, 1]}}, {"a": {"$mod": [1]}}, {"a": {"$all": 1}}, {"a": {"$all": [1, {"$elemMatch": {}}]}},
			{"a": {"$elemMatch": 1}}, {"a": {"$ne": {"$regularExpression": {"pattern": "a", "options": ""}}}},
			{"a": {"$options": "i"}}, {"a": {"$type": "foo"}}, {"a": {"$eq": {"$undefined": true}}}]`},
		{update, refused, `[{"$bit": {"a": {"and": 1}}}, {"$set": {"a": {"$b": 1}}}]`},
		{update, 9, `[{"$foo": {"a": 1}}, {"$set": 1}, {"$pop": {"a": 2}}]`},
		{update, 14, `[{"$inc": {"a": "x"}}, {"$addToSet": {"a": {"$each": 1}}}]`},
		{update, 40, `[{"$set": {"a": 1, "a.b": 2}}]`}, {update, 56, `[{"$set": {"a..b": 1}}]`},
		{update, 52, `[{"$set": {"a.$x": 1}}, {"a": 1, "$set": {}}]`},
		{update, 2, `[{"$set": {"$.a": 1}}, {"$set": {"a.$.b.$": 1}}, {"$set": {"a.$[x]": 1}}, {"$rename": {"a": "a"}},
			{"$rename": {"a": 1}}, {"$rename": {"a": "a.b"}}, {"$push": {"a": {"$each": 1}}}, {"$pullAll": {"a": 1}},
			{"$push": {"a": {"$each": [], "$foo": 1}}}, {"$push": {"a": {"$each": [], "$sort": 2}}},
			{"$currentDate": {"a": 1}}]`},
		{projection, refused, `[{"a": "$b"}, {"a": {"$add": [1, 2]}}, {"a": {"$meta": "textScore"}}, {"b.$": 1},
			{"a": {"$elemMatch": {}}, "b": 0}, {"a": {"$slice": ["$a", 1]}}]`},
		{projection, 31254, `[{"a": 1, "b": 0}]`}, {projection, 31253, `[{"a": 0, "b": 1}]`},
		{projection, 31249, `[{"a": 1, "a.b": 1}, {"a": {"$elemMatch": {}}, "a.b": 1}, {"_id": 1, "_id.x": 1}]`},
		{projection, 31250, `[{"a.b": 1, "a": 1}, {"a": 1, "a": {"$elemMatch": {}}}, {"_id.x": 0, "_id": 0}]`},
		{projection, 16410, `[{"a": {"$slice": 1, "x": 1}}, {"a": {"$elemMatch": {"x": 1}, "x": 1}}]`},
		{order, refused, `[{"a": {"$meta": "textScore"}}]`}, {order, 15975, `[{"a": 2}]`}, {order, 15974, `[{"a": "x"}]`},
		{stage, refused, `[{"$lookup": {}}, {"$out": "x"}, {"$group": {"_id": {"$add": [1]}}}, {"$group": {"_id": "$$NOW"}},
			{"$project": {"a": "$b"}}, {"$project": {"a": {"$slice": 1}}}]`},
		{stage, 40324, `[{"$foo": 1}]`}, {stage, 15959, `[{"$match": 1}]`}, {stage, 15958, `[{"$limit": 0}]`},
		{stage, 15952, `[{"$group": {"_id": 1, "a": {"$foo": 1}}}]`}, {stage, 15955, `[{"$group": {"a": {"$sum": 1}}}]`},
		{stage, 28818, `[{"$unwind": "a"}]`}, {stage, 40353, `[{"$unwind": "$"}, {"$unwind": "$a."}]`},
		{stage, 16410, `[{"$unwind": "$$a"}, {"$group": {"_id": "$a.$b"}}]`}, {stage, 40157, `[{"$count": ""}]`},
	} {
		for _, spec := range raws(t, c.specs) {
			err := c.compile(spec)
			require.Equal(t, c.code, mongoerr.Code(err), "%s: %v", spec, err)
		}
	}
}

func TestProjectionsKeepWhatTheyName(t *testing.T) {
	doc := raw(t, `{"_id": 1, "a": [1, {"x": 1, "y": 2}, [{"x": 3, "y": 4}], {"x": 5}], "b": {"x": 6, "y": 7}, "c": 8}`)
	for spec, want := range map[string]string{
		`{"a.x": 1}`: `{"_id": 1, "a": [{"x": 1}, [{"x": 3}], {"x": 5}]}`,
		`{"a.x": 0, "b": {"y": false}}`: `{"_id": 1, "a": [1, {"y": 2}, [{"y": 4}], {}],
			"b": {"x": 6}, "c": 8}`,
		`{"_id": 0, "b.x": 1, "c.z": 1}`:        `{"b": {"x": 6}}`,
		`{"_id": 1}`:                            `{"_id": 1}`,
		`{"a": {"$slice": 1}, "b": 0}`:          `{"_id": 1, "a": [1], "c": 8}`,
		`{"a": {"$slice": [-2, 1]}, "_id": 1}`:  `{"_id": 1, "a": [[{"x": 3, "y": 4}]]}`,
		`{"a": {"$elemMatch": {"y": 2}},"c":1}`: `{"_id": 1, "c": 8, "a": [{"x": 1, "y": 2}]}`,
		`{"a": {"$elemMatch": {"x": 99}}}`:      `{"_id": 1}`,
	} {
		p, err := CompileProjection(raw(t, spec))
		require.NoError(t, err, spec)
		require.Equal(t, raw(t, want), p.Apply(doc), spec)
	}
}

func TestDistinctGoesIntoArraysAndCountsEqualNumbersOnce(t *testing.T) {
	docs := raws(t, `[{"a": [{"b": 2}, {"b": [1, 2.0, [3]]}, 5]}, {"a": {"b": []}}, {"a": {"b": "x"}}, {}]`)
	for key, want := range map[string]string{"a.b": `{"v": [1, 2, "x", [3]]}`, "a.0.b": `{"v": [2]}`} {
		values, _ := Distinct(slices.Values(docs), key, bson.RawValue{})
		require.Equal(t, value.Elements(raw(t, want).Lookup("v").Value), values)
	}
}

func self(doc bson.Raw) bson.Raw { return doc }

func TestTopIsTheHeadOfTheSorted(t *testing.T) {
	s, err := CompileSort(raw(t, `{"a": -1, "_id": 1}`))
	require.NoError(t, err)
	rapid.Check(t, func(rt *rapid.T) {
		var docs []bson.Raw
		for i, a := range rapid.SliceOfN(rapid.IntRange(0, 9), 0, 40).Draw(rt, "a") {
			doc, err := bson.Marshal(bson.D{{Key: "_id", Value: i}, {Key: "a", Value: a}})
			require.NoError(rt, err)
			docs = append(docs, doc)
		}
		n := rapid.IntRange(1, 12).Draw(rt, "n")
		top, err := Top(s, stream(docs), self, n)
		require.NoError(rt, err)
		all, err := Top(s, stream(docs), self, 0)
		require.NoError(rt, err)
		require.Len(rt, all, len(docs))
		require.Equal(rt, slices.Concat(all[:min(n, len(docs))]...), slices.Concat(top...))
	})
}

func TestSortAndGroupHoldSoMuchAndNoMore(t *testing.T) {
	large := raw(t, `{"a": 1, "text": "`+strings.Repeat("x", 1<<20)+`"}`)
	docs := stream(slices.Repeat([]bson.Raw{large}, 101))
	for spec, code := range map[string]int32{
		`[{"$sort": {"a": 1}}]`:                                      mongoerr.QueryExceededMemoryLimit,
		`[{"$sort": {"a": 1}}, {"$limit": 10}]`:                      0,
		`[{"$group": {"_id": null, "all": {"$push": "$text"}}}]`:     mongoerr.QueryExceededMemoryLimit,
		`[{"$group": {"_id": null, "all": {"$addToSet": "$text"}}}]`: 0,
		`[{"$group": {"_id": "$a", "last": {"$last": "$text"}}}]`:    0,
	} {
		p, err := CompilePipeline(raws(t, spec))
		require.NoError(t, err)
		err = nil
		for _, e := range p.Run(docs) {
			err = e
		}
		require.Equal(t, code, mongoerr.Code(err), spec)
	}
}

func TestPipelinesComputeAsMongoDBs(t *testing.T) {
	docs := raws(t, `[{"_id": 1, "g": 1, "v": 2, "t": ["x", "y"]}, {"_id": 2, "g": 1.0, "v": 0.5, "t": []},
		{"_id": 3, "v": {"$numberLong": "7"}, "t": null}, {"_id": 4, "g": "s", "v": "no", "s": {"t": [1]}},
		{"_id": 5, "w": {"$numberLong": "9223372036854775807"}}, {"_id": 6, "w": {"$numberLong": "1"}},
		{"_id": 7, "w": {"$numberLong": "-2"}}]`)
	for pipeline, want := range map[string]string{
		`[{"$match": {"v": {"$gt": 1}}}, {"$sort": {"_id": -1}}, {"$project": {"v": 1}}]`: `[{"_id": 3,
			"v": {"$numberLong": "7"}}, {"_id": 1, "v": 2}]`,
		`[{"$sort": {"_id": -1}}, {"$skip": 1}, {"$limit": 2}, {"$project": {"_id": 1}}]`: `[{"_id": 6}, {"_id": 5}]`,
		`[{"$limit": 2}, {"$group": {"_id": "$g", "s": {"$sum": "$v"}, "a": {"$avg": "$v"}, "lo": {"$min": "$v"},
			"hi": {"$max": "$v"}, "f": {"$first": "$x"}, "l": {"$last": "$_id"}}}]`: `[{"_id": 1, "s": 2.5, "a": 1.25,
			"lo": 0.5, "hi": 2, "f": null, "l": 2}]`,
		`[{"$group": {"_id": {"g": "$g", "c": "k"}, "p": {"$push": "$g"}, "s": {"$addToSet": "$g"}}}, {"$limit": 2}]`: `[
			{"_id": {"g": 1, "c": "k"}, "p": [1, 1.0], "s": [1]}, {"_id": {"c": "k"}, "p": [], "s": []}]`,
		// A sum that overflows on the way is exact, one that stays too large a double.
		`[{"$group": {"_id": 1, "s": {"$sum": "$w"}}}]`: `[{"_id": 1, "s": {"$numberLong": "9223372036854775806"}}]`,
		`[{"$match": {"w": {"$gt": 0}}}, {"$group": {"_id": 1, "s": {"$sum": "$w"}}}]`: `[{"_id": 1,
			"s": {"$numberDouble": "9223372036854775808"}}]`,
		`[{"$unwind": {"path": "$t", "preserveNullAndEmptyArrays": true}}, {"$limit": 4}, {"$project": {"t": 1}}]`: `[
			{"_id": 1, "t": "x"}, {"_id": 1, "t": "y"}, {"_id": 2}, {"_id": 3, "t": null}]`,
		`[{"$unwind": "$s.t"}]`:                     `[{"_id": 4, "g": "s", "v": "no", "s": {"t": 1}}]`,
		`[{"$match": {"_id": 9}}, {"$count": "n"}]`: `[]`, `[{"$count": "n"}]`: `[{"n": 7}]`,
	} {
		p, err := CompilePipeline(raws(t, pipeline))
		require.NoError(t, err, pipeline)
		var got []bson.Raw
		for d, err := range p.Run(stream(docs)) {
			require.NoError(t, err, pipeline)
			got = append(got, d)
		}
		require.Equal(t, raws(t, want), got, pipeline)
	}
}

func TestWhatIsUnknownMayStillPass(t *testing.T) {
	known := raw(t, `{"kind": "update", "n": 1}`)
	unknown := func(path string) bool { return strings.HasPrefix(path, "doc") }
	for filter, may := range map[string]bool{
		`{}`: true, `{"kind": "update"}`: true, `{"kind": "insert"}`: false, `{"kind": "insert", "doc.a": 1}`: false,
		`{"kind": "update", "doc.a": 1}`: true, `{"doc.a": {"$exists": false}}`: true,
		`{"docs.a": 1, "n": {"$gt": 1}}`:                                                   false,
		`{"$or": [{"kind": "insert", "doc.a": 1}, {"kind": "update", "gone": 1}]}`:         false,
		`{"$or": [{"kind": "insert"}, {"doc.a": {"$ne": 1}}]}`:                             true,
		`{"$nor": [{"kind": "update"}, {"doc": 1}]}`:                                       false,
		`{"$nor": [{"kind": "insert"}, {"doc": 1}]}`:                                       true,
		`{"kind": {"$not": {"$eq": "update"}}}`:                                            false,
		`{"$and": [{"doc": {"$not": {"$elemMatch": {"$gt": 1}}}}, {"kind": {"$in": []}}]}`: false,
	} {
		p, err := CompilePipeline(raws(t, `[{"$match": `+filter+`}]`))
		require.NoError(t, err)
		require.Equal(t, may, p.MayPass(known, unknown), filter)
	}
}
