package query

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

func TestProjectionsKeepWhatTheyName(t *testing.T) {
	const doc = `{"_id": 1, "a": [1, {"x": 1, "y": 2}, [{"x": 3, "y": 4}], {"x": 5}], "b": {"x": 6, "y": 7}, "c": 8}`
	for _, c := range []struct{ spec, want string }{
		{`{"a.x": 1}`, `{"_id": 1, "a": [{"x": 1}, [{"x": 3}], {"x": 5}]}`},
		{`{"a.x": 0, "b": {"y": false}}`, `{"_id": 1, "a": [1, {"y": 2}, [{"y": 4}], {}], "b": {"x": 6}, "c": 8}`},
		{`{"_id": 0, "b.x": 1, "c.z": 1}`, `{"b": {"x": 6}}`},
		{`{"_id": 1}`, `{"_id": 1}`},
		{`{"_id": 0}`, `{"a": [1, {"x": 1, "y": 2}, [{"x": 3, "y": 4}], {"x": 5}], "b": {"x": 6, "y": 7}, "c": 8}`},
		{`{"a": {"$slice": 1}, "b": 0}`, `{"_id": 1, "a": [1], "c": 8}`},
		{`{"a": {"$slice": [-2, 1]}, "_id": 1}`, `{"_id": 1, "a": [[{"x": 3, "y": 4}]]}`},
		{`{"a": {"$elemMatch": {"y": {"$exists": true}}}, "c": 1}`, `{"_id": 1, "c": 8, "a": [{"x": 1, "y": 2}]}`},
		{`{"a": {"$elemMatch": {"x": 99}}}`, `{"_id": 1}`},
	} {
		p, err := CompileProjection(raw(t, c.spec))
		require.NoError(t, err, c.spec)
		require.Equal(t, raw(t, c.want), p.Apply(raw(t, doc)), c.spec)
	}
}

func TestDistinctGoesIntoArraysAndCountsEqualNumbersOnce(t *testing.T) {
	docs := []bson.Raw{raw(t, `{"a": [{"b": 2}, {"b": [1, 2.0, [3]]}, 5]}`), raw(t, `{"a": {"b": []}}`), raw(t, `{"a": {"b": "x"}}`), raw(t, `{}`)}
	require.Equal(t, value.Elements(raw(t, `{"v": [1, 2, "x", [3]]}`).Lookup("v").Value), Distinct(slices.Values(docs), "a.b"))
	require.Equal(t, value.Elements(raw(t, `{"v": [2]}`).Lookup("v").Value), Distinct(slices.Values(docs), "a.0.b"))
}

func TestTopIsTheHeadOfTheSorted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var docs []bson.Raw
		for i := range rapid.IntRange(0, 40).Draw(rt, "docs") {
			docs = append(docs, mustRaw(bson.D{{Key: "_id", Value: i}, {Key: "a", Value: rapid.IntRange(0, 9).Draw(rt, "a")}}))
		}
		s, err := CompileSort(mustRaw(bson.D{{Key: "a", Value: -1}, {Key: "_id", Value: 1}}))
		require.NoError(rt, err)
		n := rapid.IntRange(1, 12).Draw(rt, "n")
		self := func(doc bson.Raw) bson.Raw { return doc }
		top, err := Top(s, stream(docs), self, n)
		require.NoError(rt, err)
		all, err := Top(s, stream(docs), self, 0)
		require.NoError(rt, err)
		require.Len(rt, all, len(docs))
		require.True(rt, slices.EqualFunc(top, all[:min(n, len(docs))], func(a, b bson.Raw) bool { return bytes.Equal(a, b) }))
	})
}

func TestSortAndGroupHoldSoMuchAndNoMore(t *testing.T) {
	large := mustRaw(bson.D{{Key: "a", Value: 1}, {Key: "text", Value: strings.Repeat("x", 1<<20)}})
	docs := stream(slices.Repeat([]bson.Raw{large}, 101))
	s, err := CompileSort(raw(t, `{"a": 1}`))
	require.NoError(t, err)
	self := func(doc bson.Raw) bson.Raw { return doc }
	_, err = Top(s, docs, self, 0)
	require.Equal(t, mongoerr.QueryExceededMemoryLimit, mongoerr.Code(err))
	top, err := Top(s, docs, self, 10)
	require.NoError(t, err)
	require.Len(t, top, 10)
	for group, code := range map[string]int32{
		`{"$group": {"_id": null, "all": {"$push": "$text"}}}`:     mongoerr.QueryExceededMemoryLimit,
		`{"$group": {"_id": null, "all": {"$addToSet": "$text"}}}`: 0,
		`{"$group": {"_id": "$a", "last": {"$last": "$text"}}}`:    0,
	} {
		p, err := CompilePipeline([]bson.Raw{raw(t, group)})
		require.NoError(t, err)
		err = nil
		for _, e := range p.Run(docs) {
			err = e
		}
		require.Equal(t, code, mongoerr.Code(err), group)
	}
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

func TestPipelinesComputeAsMongoDBs(t *testing.T) {
	docs := []bson.Raw{raw(t, `{"_id": 1, "g": 1, "v": 2, "t": ["x", "y"]}`), raw(t, `{"_id": 2, "g": 1.0, "v": 0.5, "t": []}`),
		raw(t, `{"_id": 3, "v": {"$numberLong": "7"}, "t": null}`), raw(t, `{"_id": 4, "g": "s", "v": "no", "s": {"t": [1]}}`)}
	for _, c := range []struct{ pipeline, want string }{
		{`[{"$match": {"v": {"$gt": 1}}}, {"$sort": {"_id": -1}}, {"$project": {"v": 1}}]`, `[{"_id": 3, "v": {"$numberLong": "7"}}, {"_id": 1, "v": 2}]`},
		{`[{"$sort": {"_id": -1}}, {"$skip": 1}, {"$limit": 2}, {"$project": {"_id": 1}}]`, `[{"_id": 3}, {"_id": 2}]`},
		{`[{"$group": {"_id": "$g", "n": {"$sum": 1}, "s": {"$sum": "$v"}, "a": {"$avg": "$v"}, "lo": {"$min": "$v"}, "hi": {"$max": "$v"}, "f": {"$first": "$_id"}, "l": {"$last": "$x"}}}]`,
			`[{"_id": 1, "n": 2, "s": 2.5, "a": 1.25, "lo": 0.5, "hi": 2, "f": 1, "l": null}, {"_id": null, "n": 1, "s": {"$numberLong": "7"}, "a": 7.0, "lo": {"$numberLong": "7"}, "hi": {"$numberLong": "7"}, "f": 3, "l": null}, {"_id": "s", "n": 1, "s": 0, "a": null, "lo": "no", "hi": "no", "f": 4, "l": null}]`},
		{`[{"$group": {"_id": {"g": "$g", "c": "k"}, "p": {"$push": "$g"}, "s": {"$addToSet": "$g"}}}, {"$limit": 2}]`, `[{"_id": {"g": 1, "c": "k"}, "p": [1, 1.0], "s": [1]}, {"_id": {"c": "k"}, "p": [], "s": []}]`},
		{`[{"$unwind": "$t"}, {"$project": {"t": 1}}]`, `[{"_id": 1, "t": "x"}, {"_id": 1, "t": "y"}]`},
		{`[{"$unwind": {"path": "$t", "preserveNullAndEmptyArrays": true}}, {"$skip": 1}, {"$project": {"t": 1}}]`,
			`[{"_id": 1, "t": "y"}, {"_id": 2}, {"_id": 3, "t": null}, {"_id": 4}]`},
		{`[{"$unwind": "$s.t"}]`, `[{"_id": 4, "g": "s", "v": "no", "s": {"t": 1}}]`},
		{`[{"$match": {"_id": 9}}, {"$count": "n"}]`, `[]`},
		{`[{"$count": "n"}]`, `[{"n": 4}]`},
	} {
		var stages []bson.Raw
		for _, v := range value.Elements(raw(t, `{"p": `+c.pipeline+`}`).Lookup("p").Value) {
			stages = append(stages, v.Value)
		}
		p, err := CompilePipeline(stages)
		require.NoError(t, err, c.pipeline)
		_, _, _, rest := p.Source()
		require.LessOrEqual(t, len(rest.stages), len(p.stages))
		var got []bson.RawValue
		for d, err := range p.Run(stream(docs)) {
			require.NoError(t, err, c.pipeline)
			got = append(got, value.Document(d))
		}
		require.Equal(t, raw(t, `{"r": `+c.want+`}`).Lookup("r").Value, value.Array(got).Value, c.pipeline)
	}
}

func TestSumsAreExactWhereDoublesAreNot(t *testing.T) {
	var s sum
	for _, v := range []any{int64(1 << 62), int64(1 << 62), 0.5, int64(-1 << 62), int64(-1 << 62)} {
		s.add(mustRaw(bson.D{{Key: "v", Value: v}}).Lookup("v"))
	}
	require.Equal(t, 0.5, s.result().Double())
}
