package integration

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// parts are the commands to explain: an explained update has one statement, and each branch of
// an aggregate with unions is the query that its first stages are.
func parts(t *testing.T, cmd bson.Raw) []bson.D {
	t.Helper()
	if cmd.Lookup("pipeline").Type == bson.TypeArray {
		all := branches(t, cmd.Lookup("aggregate").StringValue(), cmd.Lookup("pipeline").Array())
		if hint, there := cmd.Lookup("hint").StringValueOK(); there { // of the first collection, which is the last
			all[len(all)-1] = append(all[len(all)-1], bson.E{Key: "hint", Value: hint})
		}
		return all
	}
	var doc, plain bson.D
	require.NoError(t, bson.Unmarshal(cmd, &doc))
	var statements bson.A
	for _, e := range doc {
		switch {
		case e.Key == "lsid", e.Key == "txnNumber", e.Key == "writeConcern", e.Key == "readConcern", e.Key == "maxTimeMS", strings.HasPrefix(e.Key, "$"):
		case e.Key == "updates":
			statements = e.Value.(bson.A) //nolint:forcetypeassert // of the test's own command
		default:
			plain = append(plain, e)
		}
	}
	if statements == nil {
		return []bson.D{plain}
	}
	var out []bson.D
	for _, st := range statements {
		out = append(out, append(slices.Clone(plain), bson.E{Key: "updates", Value: bson.A{st}}))
	}
	return out
}

// branches are the queries that a pipeline and those that it is united with begin with.
func branches(t *testing.T, coll string, pipeline bson.RawArray) (out []bson.D) {
	t.Helper()
	query := bson.D{{Key: "find", Value: coll}}
	stages, err := pipeline.Values()
	require.NoError(t, err)
	for _, stage := range stages {
		e, err := stage.Document().IndexErr(0)
		require.NoError(t, err)
		switch e.Key() {
		case "$match":
			if len(query) > 1 { // of what was read by then
				return append(out, query)
			}
			query = append(query, bson.E{Key: "filter", Value: e.Value()})
		case "$sort", "$skip", "$limit":
			query = append(query, bson.E{Key: e.Key()[1:], Value: e.Value()})
		case "$project":
			query = append(query, bson.E{Key: "projection", Value: e.Value()})
		case "$replaceWith":
		case "$unwind", "$group": // of what was read by then
			return append(out, query)
		case "$unionWith":
			with := e.Value().Document()
			out = append(out, branches(t, with.Lookup("coll").StringValue(), with.Lookup("pipeline").Array())...)
		default:
			t.Fatalf("stage %s is none that a look has", e.Key())
		}
	}
	return append(out, query)
}

// stages are the names in a plan, outermost first, and the indexes it uses.
func stages(plan bson.Raw) string {
	var out []string
	var walk func(v bson.RawValue, key string)
	walk = func(v bson.RawValue, key string) {
		switch v.Type {
		case bson.TypeEmbeddedDocument, bson.TypeArray:
			elements, err := bson.Raw(v.Value).Elements()
			if err != nil {
				return
			}
			for _, e := range elements {
				walk(e.Value(), e.Key())
			}
		case bson.TypeString:
			switch {
			case key == "stage":
				out = append(out, v.StringValue())
			case key == "indexName" && len(out) > 0:
				out[len(out)-1] += "(" + v.StringValue() + ")"
			}
		}
	}
	walk(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: plan}, "")
	return strings.Join(slices.Compact(out), " ")
}
