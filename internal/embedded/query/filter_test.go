package query

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
)

func raw(t testing.TB, json string) bson.Raw {
	t.Helper()
	var d bson.Raw
	require.NoError(t, bson.UnmarshalExtJSON([]byte(json), false, &d), json)
	return d
}

func compile(t testing.TB, filter string) *Filter {
	t.Helper()
	f, err := CompileFilter(raw(t, filter))
	require.NoError(t, err, filter)
	return f
}

// What the record does not show, or only in passing.
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
		{`{"a": {"$in": [{"$regularExpression": {"pattern": "^x", "options": ""}}, 1]}}`, `{"a": ["y", "xy"]}`, true},
		{`{"a.0": null}`, `{"a": [{"k": 1}]}`, true}, // the document in the array has no field "0"
		{`{"a.b": null}`, `{"a": [1, 2]}`, false},
		{`{"a.b": null}`, `{"a": []}`, false},
		{`{"a.b": {"$exists": false}}`, `{"a": []}`, true},
		{`{"a": {"$lt": {"$maxKey": 1}}}`, `{}`, true},
		{`{"a": {"$gt": {"$maxKey": 1}}}`, `{"a": 1}`, false},
		{`{"a": {"$lte": {"$numberDouble": "NaN"}}}`, `{"a": {"$numberDecimal": "NaN"}}`, true},
		{`{"a": {"$lt": 5}}`, `{"a": {"$numberDouble": "NaN"}}`, false},
		{`{"a": 1}`, `{"a": {"$numberDecimal": "1.00"}}`, true},
		{`{"a": {"$mod": [{"$numberLong": "-1"}, 0]}}`, `{"a": {"$numberLong": "-9223372036854775808"}}`, true},
		{`{"a": {"$all": []}}`, `{"a": []}`, false},
		{`{"a": {"$all": [{"$elemMatch": {"x": 1}}, {"$elemMatch": {"y": 2}}]}}`, `{"a": [{"x": 1}, {"y": 2}]}`, true},
		{`{"a": {"$elemMatch": {"$not": {"$gt": 1}, "$exists": true}}}`, `{"a": [2, 1]}`, true},
		{`{"a": {"$elemMatch": {"0": 1}}}`, `{"a": [[1]]}`, true},
		{`{"a": {"$ref": "c", "$id": 1}}`, `{"a": {"$ref": "c", "$id": 1}}`, true},
		{`{"a": {"$type": ["number", "minKey"]}}`, `{"a": {"$minKey": 1}}`, true},
		{`{"a": {"$type": 2}, "$comment": "x"}`, `{"a": ["s"]}`, true},
	} {
		require.Equal(t, c.want, compile(t, c.filter).Match(raw(t, c.doc)), "%s on %s", c.filter, c.doc)
	}
}

func TestPositionIsTheOutermostArrayOfTheLastCondition(t *testing.T) {
	doc := raw(t, `{"a": [1, 2, 3], "b": [{"c": [7, 8]}, {"c": [8]}]}`)
	for _, c := range []struct {
		filter string
		pos    int
	}{
		{`{"a": 2}`, 1}, {`{"b.c": 8}`, 0}, {`{"b": {"$elemMatch": {"c": {"$size": 1}}}}`, 1},
		{`{"a": 3, "b.c": 7}`, 0}, {`{"b.c": {"$gt": 7}, "a": 3}`, 0}, {`{"a.1": 2}`, -1}, {`{}`, -1},
		{`{"$or": [{"a": 2}, {"a": 9}]}`, -1}, {`{"a": {"$ne": 9}}`, -1},
	} {
		matched, pos := compile(t, c.filter).MatchPositional(doc)
		require.True(t, matched, c.filter)
		require.Equal(t, c.pos, pos, c.filter)
	}
}

func TestTheTreeOfAFilterIsFlatAndSimple(t *testing.T) {
	root := compile(t, `{"$and": [{"b": {"$in": [1]}}, {"$or": [{"a": {"$gt": 1, "$lt": 3}}]}], "c": {"$ne": 1}, "d": {"$in": [2, 1, 2.0]}}`).Root()
	var ops []Op
	for _, c := range root.Children {
		ops = append(ops, c.Op)
	}
	require.Equal(t, []Op{OpEq, OpLt, OpGt, OpIn, OpNot}, ops)
	require.Len(t, root.Children[3].Values, 2)
	require.Equal(t, OpEq, root.Children[4].Children[0].Op)
}

func TestWhatIsNotSupportedIsRefusedAndWhatIsWrongHasMongoDBsCode(t *testing.T) {
	const refused = mongoerr.NotImplementedCode
	filter := func(json string) error { _, err := CompileFilter(raw(t, json)); return err }
	update := func(json string) error { _, err := CompileUpdate(raw(t, json), nil); return err }
	projection := func(json string) error { _, err := CompileProjection(raw(t, json)); return err }
	order := func(json string) error { _, err := CompileSort(raw(t, json)); return err }
	stage := func(json string) error { _, err := CompilePipeline([]bson.Raw{raw(t, json)}); return err }
	for _, c := range []struct {
		compile func(string) error
		json    string
		code    int32
	}{
		{filter, `{"$expr": {}}`, refused}, {filter, `{"$where": "1"}`, refused}, {filter, `{"$text": {}}`, refused},
		{filter, `{"$jsonSchema": {}}`, refused}, {filter, `{"a": {"$near": [1, 2]}}`, refused}, {filter, `{"a": {"$bitsAllSet": 1}}`, refused},
		{filter, `{"a": {"$regex": "(?=x)"}}`, refused}, {filter, `{"a": {"$regex": "x", "$options": "x"}}`, refused},
		{filter, `{"a": {"$regex": "(a$)b"}}`, refused}, {filter, `{"a": {"$not": {"$geoWithin": {}}}}`, refused},
		{filter, `{"a": {"$elemMatch": {"$near": 1}}}`, refused},
		{filter, `{"a": {"$regex": "("}}`, 51091}, {filter, `{"a": {"$regex": "x", "$options": "q"}}`, 51108},
		{filter, `{"a": {"$foo": 1}}`, 2}, {filter, `{"$foo": 1}`, 2}, {filter, `{"a": {"$comment": 1}}`, 2}, {filter, `{"a": {"$gt": 1, "b": 2}}`, 2},
		{filter, `{"$or": []}`, 2}, {filter, `{"$and": [1]}`, 2}, {filter, `{"a": {"$in": 1}}`, 2}, {filter, `{"a": {"$in": [{"$gt": 1}]}}`, 2},
		{filter, `{"a": {"$not": {}}}`, 2}, {filter, `{"a": {"$not": 1}}`, 2}, {filter, `{"a": {"$mod": [0, 1]}}`, 2}, {filter, `{"a": {"$mod": [1]}}`, 2},
		{filter, `{"a": {"$all": 1}}`, 2}, {filter, `{"a": {"$all": [1, {"$elemMatch": {}}]}}`, 2}, {filter, `{"a": {"$elemMatch": 1}}`, 2},
		{filter, `{"a": {"$ne": {"$regularExpression": {"pattern": "a", "options": ""}}}}`, 2}, {filter, `{"a": {"$options": "i"}}`, 2},
		{filter, `{"a": {"$type": "foo"}}`, 2}, {filter, `{"a": {"$type": []}}`, 9}, {filter, `{"a": {"$eq": {"$undefined": true}}}`, 2},
		{update, `{"$bit": {"a": {"and": 1}}}`, refused}, {update, `{"$set": {"a": {"$b": 1}}}`, refused},
		{update, `{"$foo": {"a": 1}}`, 9}, {update, `{"$set": 1}`, 9}, {update, `{"$set": {"a": 1, "a.b": 2}}`, 40}, {update, `{"$set": {"a..b": 1}}`, 56},
		{update, `{"$set": {"$.a": 1}}`, 2}, {update, `{"$set": {"a.$.b.$": 1}}`, 2}, {update, `{"$set": {"a.$[x]": 1}}`, 2}, {update, `{"$set": {"a.$x": 1}}`, 52},
		{update, `{"$inc": {"a": "x"}}`, 14}, {update, `{"$rename": {"a": "a"}}`, 2}, {update, `{"$rename": {"a": 1}}`, 2}, {update, `{"$rename": {"a": "a.b"}}`, 2},
		{update, `{"$pop": {"a": 2}}`, 9}, {update, `{"$push": {"a": {"$each": 1}}}`, 2}, {update, `{"$push": {"a": {"$each": [], "$foo": 1}}}`, 2},
		{update, `{"$push": {"a": {"$each": [], "$sort": 2}}}`, 2}, {update, `{"$addToSet": {"a": {"$each": 1}}}`, 14}, {update, `{"$pullAll": {"a": 1}}`, 2},
		{update, `{"$currentDate": {"a": 1}}`, 2}, {update, `{"a": 1, "$set": {}}`, 52},
		{projection, `{"a": "$b"}`, refused}, {projection, `{"a": {"$add": [1, 2]}}`, refused}, {projection, `{"a": {"$meta": "textScore"}}`, refused},
		{projection, `{"a": {"$elemMatch": {}}, "b": 0}`, refused}, {projection, `{"a": {"$slice": ["$a", 1]}}`, refused},
		{projection, `{"a": 1, "b": 0}`, 31254}, {projection, `{"a": 0, "b": 1}`, 31253}, {projection, `{"a": 1, "a.b": 1}`, 31250}, {projection, `{"b.$": 1}`, refused},
		{order, `{"a": {"$meta": "textScore"}}`, refused}, {order, `{"a": 2}`, 15975}, {order, `{"a": "x"}`, 15974},
		{stage, `{"$lookup": {}}`, refused}, {stage, `{"$out": "x"}`, refused}, {stage, `{"$foo": 1}`, 40324}, {stage, `{"$match": 1}`, 15959},
		{stage, `{"$group": {"_id": {"$add": [1]}}}`, refused}, {stage, `{"$group": {"_id": "$$NOW"}}`, refused}, {stage, `{"$group": {"_id": 1, "a": {"$foo": 1}}}`, 15952},
		{stage, `{"$group": {"a": {"$sum": 1}}}`, 15955}, {stage, `{"$limit": 0}`, 15958}, {stage, `{"$unwind": "a"}`, 28818}, {stage, `{"$count": ""}`, 40157},
		{stage, `{"$project": {"a": "$b"}}`, refused}, {stage, `{"$project": {"a": {"$slice": 1}}}`, refused},
	} {
		require.Equal(t, c.code, mongoerr.Code(c.compile(c.json)), "%s: %v", c.json, c.compile(c.json))
	}
}
