package query

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

func TestWhatIsUnknownMayStillPass(t *testing.T) {
	known := raw(t, `{"kind": "update", "n": 1}`)
	unknown := func(path string) bool { return strings.HasPrefix(path, "doc") }
	for filter, may := range map[string]bool{
		`{}`:                             true,
		`{"kind": "update"}`:             true,
		`{"kind": "insert"}`:             false,
		`{"kind": "insert", "doc.a": 1}`: false,
		`{"kind": "update", "doc.a": 1}`: true,
		`{"doc.a": {"$exists": false}}`:  true,
		`{"docs.a": 1, "n": {"$gt": 1}}`: false,
		`{"$or": [{"kind": "insert", "doc.a": 1}, {"kind": "update", "gone": 1}]}`:         false,
		`{"$or": [{"kind": "insert"}, {"doc.a": {"$ne": 1}}]}`:                             true,
		`{"$nor": [{"kind": "update"}, {"doc": 1}]}`:                                       false,
		`{"$nor": [{"kind": "insert"}, {"doc": 1}]}`:                                       true,
		`{"kind": {"$not": {"$eq": "update"}}}`:                                            false,
		`{"$and": [{"doc": {"$not": {"$elemMatch": {"$gt": 1}}}}, {"kind": {"$in": []}}]}`: false,
	} {
		p, err := CompilePipeline([]bson.Raw{raw(t, `{"$match": `+filter+`}`)})
		require.NoError(t, err)
		require.Equal(t, may, p.MayPass(known, unknown), filter)
	}
}
