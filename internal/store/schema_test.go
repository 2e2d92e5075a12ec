package store_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// sent collects the commands of a client.
type sent struct {
	mu       sync.Mutex
	commands []bson.Raw
}

func (s *sent) monitor() *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.commands = append(s.commands, append(bson.Raw(nil), e.Command...))
	}}
}

// named returns the commands of these names, in their order.
func (s *sent) named(names ...string) (out []bson.Raw) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.commands {
		for _, name := range names {
			if c.Index(0).Key() == name {
				out = append(out, c)
			}
		}
	}
	return out
}

// MongoDB's default is that all members with data must agree, so one that is down stops the build.
func TestAMajorityDecidesWhenIndexesAreReadyAndEachCollectionIsReadOnce(t *testing.T) {
	var commands sent
	s, _ := openAs(t, options.Client().ApplyURI(testdb.URI(t)).SetMonitor(commands.monitor()))
	_, err := s.Migrate(t.Context())
	require.NoError(t, err)
	colls := map[string]bool{}
	for _, c := range commands.named("createIndexes") {
		coll := c.Index(0).Value().StringValue()
		require.False(t, colls[coll], coll)
		colls[coll] = true
		require.Equal(t, "majority", c.Lookup("commitQuorum").StringValue())
	}
	require.Contains(t, colls, "tasks")
	st, err := s.Schema(t.Context())
	require.NoError(t, err)
	require.Empty(t, st.Missing)
}

// A standalone server refuses a quorum.
func TestAStandaloneServerIsAskedForNoQuorum(t *testing.T) {
	p := testdb.Behind(t)
	p.Rewrite(proxy.AsStandalone)
	var commands sent
	s, _ := openAs(t, options.Client().ApplyURI(p.URI()).SetMonitor(commands.monitor()))
	_, err := s.Migrate(t.Context())
	require.NoError(t, err)
	created := commands.named("createIndexes")
	require.NotEmpty(t, created)
	for _, c := range created {
		require.True(t, c.Lookup("commitQuorum").IsZero(), c)
	}
}

// The index of an empty collection waits for no other member. What was made is dropped, also after a refusal.
func TestTheProbeMakesItsIndexFirstAndLeavesNothing(t *testing.T) {
	var commands sent
	p := testdb.Behind(t)
	s, direct := openAs(t, options.Client().ApplyURI(p.URI()).SetMonitor(commands.monitor()))
	require.NoError(t, s.Tasks.ProbeWrite(t.Context()))
	var names []string
	for _, c := range commands.named("insert", "createIndexes", "drop") {
		names = append(names, c.Index(0).Key())
	}
	require.Equal(t, []string{"createIndexes", "insert", "drop"}, names)

	ctx, cancel := context.WithCancel(t.Context())
	stuck := p.Set(proxy.Rule{Command: "insert", Do: proxy.HoldBefore})
	go func() {
		<-stuck.Hit()
		cancel() // as Ctrl-C does
	}()
	require.ErrorContains(t, s.Tasks.ProbeWrite(ctx), "writing a document")
	left, err := direct.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	require.Empty(t, left)
}
