package embedded

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/wire"
)

// FuzzCommand: whatever the command, given as BSON or as Extended JSON, the server
// answers, without a panic and soon.
func FuzzCommand(f *testing.F) {
	for _, text := range []string{
		`{"find": "c", "filter": {"a": {"$in": [1, "x"]}, "b.0": {"$elemMatch": {"c": 1}}}, "sort": {"a": 1}, "projection": {"a": 1}, "limit": 2, "hint": "a_1"}`,
		`{"insert": "c", "documents": [{"_id": 1, "a": [1, {"b": 2}]}], "ordered": false, "lsid": {"id": {"$uuid": "00112233-4455-6677-8899-aabbccddeeff"}}, "txnNumber": {"$numberLong": "1"}}`,
		`{"aggregate": "c", "pipeline": [{"$match": {"a": 1}}, {"$unwind": "$a"}, {"$group": {"_id": "$a", "n": {"$sum": 1}}}, {"$sort": {"n": -1}}], "cursor": {"batchSize": 1}}`,
		`{"aggregate": 1, "pipeline": [{"$changeStream": {"fullDocument": "updateLookup"}}], "cursor": {}}`,
		`{"createIndexes": "c", "indexes": [{"key": {"a": 1, "b": -1}, "name": "a_1", "unique": true, "partialFilterExpression": {"a": {"$gt": 1}}}]}`,
		`{"update": "c", "updates": [{"q": {"a": 1}, "u": {"$push": {"a": {"$each": [3], "$sort": -1, "$slice": 2}}, "$set": {"b.$[x].c": 1}}, "arrayFilters": [{"x.d": 1}], "upsert": true}]}`,
		`{"findAndModify": "c", "query": {"a": 1}, "update": {"$inc": {"n": 1}}, "new": true, "upsert": true}`,
		`{"explain": {"find": "c", "filter": {"$or": [{"a": 1}, {"b": {"$gte": 1}}]}}, "verbosity": "executionStats"}`,
		`{"getMore": {"$numberLong": "1"}, "collection": "c"}`, `{"killCursors": "c", "cursors": [{"$numberLong": "1"}]}`,
		`{"listCollections": 1, "filter": {"name": "c"}}`, `{"dropIndexes": "c", "index": ["a_1"]}`, `{"validate": "c"}`,
		`{"commitTransaction": 1, "$db": "admin", "txnNumber": {"$numberLong": "1"}, "autocommit": false, "lsid": {"id": {"$uuid": "00112233-4455-6677-8899-aabbccddeeff"}}}`,
	} {
		f.Add([]byte(text))
	}
	for i, c := range RecordedCases(f) {
		if i%50 == 0 {
			f.Add([]byte(c.Command.String()))
		}
	}
	s := start(f, Options{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := messageOf(b)
		if m == nil {
			return
		}
		client, server := net.Pipe()
		defer client.Close()
		c := newConn(s, server)
		late := time.AfterFunc(2*time.Second, c.hangUp) // ends commands that rightly wait
		defer late.Stop()
		answered := make(chan bson.Raw)
		go func() { answered <- c.answer(m) }()
		select {
		case reply := <-answered:
			require.NoError(t, reply.Validate())
			if code, err := reply.LookupErr("code"); err == nil {
				require.NotEqualValues(t, 1, code.Int32(), "%s: %s", m.Body, reply)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("no answer: %s", m.Body)
		}
		c.hangUp()
		c.disconnected()
	})
}

// messageOf makes a message of a command, nil when it is none a client can send.
func messageOf(b []byte) *wire.Message {
	var cmd bson.D
	if bson.UnmarshalExtJSON(b, false, &cmd) == nil {
		b, _ = bson.Marshal(cmd)
	}
	m, err := wire.Read(bytes.NewReader(wire.AppendReply(nil, &wire.Message{}, 1, b)))
	if err != nil {
		return nil
	}
	m.Database = "test"
	return m
}
