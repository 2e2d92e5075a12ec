package storage

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

func TestADuplicateKeyHasItsValuesAlsoBehindAMissingField(t *testing.T) {
	key := bson.D{{Key: "tenant", Value: -1}, {Key: "list.x", Value: 1}, {Key: "key", Value: -1}, {Key: "n", Value: 1}}
	spec, err := ParseIndexSpec(mustRaw(bson.D{{Key: "key", Value: key}, {Key: "name", Value: "x"}, {Key: "unique", Value: true}}))
	require.NoError(t, err)
	for doc, keyValue := range map[string]string{
		`{"key": "k", "n": 3}`:                                  `{"tenant": null, "list.x": null, "key": "k", "n": 3}`,
		`{"tenant": 1.5, "list": [{"y": 2}, {"y": 3}], "n": 3}`: `{"tenant": 1.5, "list.x": null, "key": null, "n": 3}`,
		`{"list": {}, "key": ["a\u0000b"]}`:                     `{"tenant": null, "list.x": null, "key": "a\u0000b", "n": null}`,
	} {
		var raw bson.Raw
		require.NoError(t, bson.UnmarshalExtJSON([]byte(doc), false, &raw))
		keys, _, err := spec.Keys(raw)
		require.NoError(t, err)
		err = duplicate(&Collection{Namespace: "t.c"}, &Index{Spec: spec}, keys[0], raw)
		var e *mongoerr.Error
		require.ErrorAs(t, err, &e)
		text, err := bson.MarshalExtJSON(e.Details.Lookup("keyValue").Document(), false, false)
		require.NoError(t, err)
		require.JSONEq(t, keyValue, string(text))
	}
}
