package store_test

import (
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestTheTermOfAPrimaryIsKnownFromWhenItWasFirstNoted(t *testing.T) {
	s, _ := openAs(t, options.Client().ApplyURI(testdb.URI(t)))
	require.NoError(t, s.Ready(t.Context()))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, err := s.Control.TermSince(t.Context(), "one")
			require.NoError(t, err)
		})
	}
	all.Wait()
	one, err := s.Control.TermSince(t.Context(), "one")
	require.NoError(t, err)
	require.False(t, one.IsZero())
	require.Eventually(t, func() bool {
		two, err := s.Control.TermSince(t.Context(), "two")
		require.NoError(t, err)
		again, err := s.Control.TermSince(t.Context(), "one")
		require.NoError(t, err)
		return two.After(one) && !again.Before(two)
	}, testdb.Patience, time.Millisecond)
}

func TestTheTermOfAPrimaryHasOneNameForClientsThatReachItByDifferentAddresses(t *testing.T) {
	px := testdb.Behind(t)
	s, _ := openAs(t, options.Client().ApplyURI(px.URI()))
	name := func(differs bson.M) string {
		px.Rewrite(func(command string, answer bson.Raw) bson.Raw {
			doc := bson.M{}
			if command != "hello" || bson.Unmarshal(answer, &doc) != nil {
				return answer
			}
			maps.Copy(doc, differs)
			changed, err := bson.Marshal(doc)
			if err != nil {
				return answer
			}
			return changed
		})
		got, err := s.Primary(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, got)
		return got
	}
	one := name(bson.M{})
	require.Equal(t, one, name(bson.M{"primary": "inside:1"}))
	require.NotEqual(t, one, name(bson.M{"electionId": bson.ObjectID{1}}))
	require.NotEqual(t, one, name(bson.M{"topologyVersion": bson.M{"processId": bson.ObjectID{1}, "counter": int64(1)}}))
	old := name(bson.M{"electionId": bson.ObjectID{}})
	require.NotEqual(t, old, name(bson.M{"electionId": bson.ObjectID{}, "primary": "other:1"}), "nothing else tells them apart")
}
