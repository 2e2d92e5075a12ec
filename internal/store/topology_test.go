package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// MongoDB 4.2 speaks wire version 8.
func TestAServerThatIsTooOldIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	px := testdb.Behind(t)
	px.Rewrite(func(command string, answer bson.Raw) bson.Raw {
		var doc bson.D
		if bson.Unmarshal(answer, &doc) != nil {
			return answer
		}
		for i := range doc {
			switch {
			case doc[i].Key == "maxWireVersion":
				doc[i].Value = int32(8)
			case doc[i].Key == "version" && strings.EqualFold(command, "buildInfo"):
				doc[i].Value = "4.2.24"
			}
		}
		old, err := bson.Marshal(doc)
		if err != nil {
			return answer
		}
		return old
	})
	s, db := openAs(t, options.Client().ApplyURI(px.URI()))
	err := s.Ready(t.Context())
	require.ErrorContains(t, err, "the server is too old; mscheduler requires MongoDB 4.4 or later")
	require.Equal(t, store.Fatal, store.Classify(err))
	names, err := db.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Empty(t, names)
}
