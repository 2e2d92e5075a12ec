package query

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// passing streams documents, and overwrites each once the next one is asked for.
func passing(docs ...bson.Raw) Docs {
	return func(yield func(bson.Raw, error) bool) {
		for _, doc := range docs {
			doc = bytes.Clone(doc)
			if !yield(doc, nil) {
				return
			}
			for i := range doc[4 : len(doc)-1] {
				doc[4+i] = 0xff
			}
		}
	}
}

func pipeline(t *testing.T, stages ...bson.D) *Pipeline {
	specs := make([]bson.Raw, len(stages))
	for i, s := range stages {
		specs[i] = marshal(t, s)
	}
	p, err := CompilePipeline(specs)
	require.NoError(t, err)
	return p
}

func marshal(t testing.TB, d bson.D) bson.Raw {
	raw, err := bson.Marshal(d)
	require.NoError(t, err)
	return raw
}

func TestAGroupKeepsNoDocuments(t *testing.T) {
	group := bson.D{{Key: "_id", Value: "$k"}}
	for _, op := range []string{"sum", "avg", "min", "max", "first", "last", "push", "addToSet"} {
		group = append(group, bson.E{Key: op, Value: bson.D{{Key: "$" + op, Value: "$v"}}})
	}
	p := pipeline(t, bson.D{{Key: "$group", Value: group}})
	var got []string
	for doc, err := range p.Run(passing(
		marshal(t, bson.D{{Key: "k", Value: "a"}, {Key: "v", Value: 2}}), marshal(t, bson.D{{Key: "k", Value: "b"}, {Key: "v", Value: "long"}}),
		marshal(t, bson.D{{Key: "k", Value: "a"}, {Key: "v", Value: 4}}), marshal(t, bson.D{{Key: "k", Value: "b"}, {Key: "v", Value: "x"}}),
	)) {
		require.NoError(t, err)
		got = append(got, bson.Raw.String(doc))
	}
	require.Len(t, got, 2)
	require.JSONEq(t, `{"_id": "a", "sum": {"$numberInt": "6"}, "avg": {"$numberDouble": "3.0"}, "min": {"$numberInt": "2"}, "max": {"$numberInt": "4"},
		"first": {"$numberInt": "2"}, "last": {"$numberInt": "4"}, "push": [{"$numberInt": "2"}, {"$numberInt": "4"}], "addToSet": [{"$numberInt": "2"}, {"$numberInt": "4"}]}`, got[0])
	require.JSONEq(t, `{"_id": "b", "sum": {"$numberInt": "0"}, "avg": null, "min": "long", "max": "x", "first": "long", "last": "x",
		"push": ["long", "x"], "addToSet": ["long", "x"]}`, got[1])
}

func TestAGroupCountsAllThatItKeeps(t *testing.T) {
	doc := marshal(t, bson.D{{Key: "k", Value: 0}, {Key: "v", Value: make([]byte, 10<<20)}})
	for _, op := range []string{"$min", "$max", "$first", "$last"} {
		p := pipeline(t, bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$k"}, {Key: "kept", Value: bson.D{{Key: op, Value: "$v"}}}}}})
		run := func(groups int) (err error) {
			for _, e := range p.Run(func(yield func(bson.Raw, error) bool) {
				for i := range 2 * groups {
					doc[7] = byte(i / 2) // the number at k
					if !yield(doc, nil) {
						return
					}
				}
			}) {
				err = e
			}
			return err
		}
		require.NoError(t, run(4), op)
		require.Equal(t, mongoerr.QueryExceededMemoryLimit, mongoerr.Code(run(10)), op)
	}
}

// What a stage hands on may be held: by a sort, or by a cursor.
func TestWhatAStageMakesTakesNoMoreMemoryThanItsLength(t *testing.T) {
	big := strings.Repeat("x", 10_000)
	doc := marshal(t, bson.D{{Key: "n", Value: 1}, {Key: "payload", Value: big}, {Key: "sub", Value: bson.D{{Key: "n", Value: 1}, {Key: "tags", Value: bson.A{big, "a"}}}}})
	for _, stages := range [][]bson.D{
		{{{Key: "$project", Value: bson.D{{Key: "n", Value: 1}}}}},
		{{{Key: "$project", Value: bson.D{{Key: "payload", Value: 0}, {Key: "sub.tags", Value: 0}}}}},
		{{{Key: "$replaceWith", Value: "$sub"}}},
		{{{Key: "$unwind", Value: "$sub.tags"}}},
	} {
		p := pipeline(t, stages...)
		n := 0
		var made []bson.Raw
		for doc, err := range p.Run(passing(doc)) {
			require.NoError(t, err)
			require.LessOrEqual(t, cap(doc), 2*len(doc), "%v", stages)
			made = append(made, doc)
			n++
		}
		require.Positive(t, n)
		for _, doc := range made {
			require.NoError(t, doc.Validate(), "%v", stages)
		}
	}
}

// A short update that asks for a huge document fails before the document is made.
func TestAnUpdateIsRefusedBeforeItTakesTheMemory(t *testing.T) {
	arrays, paths, long := bson.D{}, bson.D{}, strings.Repeat("x", 1<<20)
	for i := range 20 {
		arrays = append(arrays, bson.E{Key: fmt.Sprintf("a%d", i), Value: bson.A{}})
		paths = append(paths, bson.E{Key: fmt.Sprintf("a%d.%d", i, maxPadding), Value: 1})
	}
	elements := bson.D{{Key: "a", Value: slices.Repeat([]bson.D{{}}, 2000)}}
	for name, c := range map[string]struct{ doc, set bson.D }{
		"padding":        {arrays, paths},
		"long values":    {elements, bson.D{{Key: "a.$[]", Value: long}}},
		"long values in": {elements, bson.D{{Key: "a.$[].s", Value: long}}},
		"long names":     {elements, bson.D{{Key: "a.$[]." + long, Value: 1}}},
	} {
		u, err := CompileUpdate(marshal(t, bson.D{{Key: "$set", Value: c.set}}), nil)
		require.NoError(t, err)
		doc := marshal(t, c.doc)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err = u.Apply(doc, ApplyContext{Positional: -1})
		runtime.ReadMemStats(&after)
		require.Equal(t, mongoerr.BSONObjectTooLarge, mongoerr.Code(err), "%s: %v", name, err)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(300<<20), name)
	}
}

func TestPaddingIsAsLongAsItIsCounted(t *testing.T) {
	for _, n := range []int{0, 1, 10, 11, 99, 100, 101, 12_345} {
		for _, from := range []int{0, 1, 9, 10, 11, 100, 5000} {
			if from > n {
				continue
			}
			nulls := func(n int) int {
				vs := make([]bson.RawValue, n)
				for i := range vs {
					vs[i] = value.Null
				}
				return len(value.Array(vs).Value)
			}
			require.Equal(t, nulls(n)-nulls(from), padding(from, n), "%d to %d", from, n)
		}
	}
	u, err := CompileUpdate(marshal(t, bson.D{{Key: "$set", Value: bson.D{{Key: fmt.Sprintf("a.%d", maxPadding), Value: 1}}}}), nil)
	require.NoError(t, err)
	_, _, err = u.Apply(marshal(t, bson.D{{Key: "a", Value: bson.A{}}}), ApplyContext{Positional: -1})
	require.NoError(t, err, "that one fits")
}
