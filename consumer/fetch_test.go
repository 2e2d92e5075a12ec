package consumer

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// asked keeps the filters of the queries for due tasks.
type asked struct {
	mu      sync.Mutex
	filters []bson.Raw
}

func (a *asked) started(_ context.Context, e *event.CommandStartedEvent) {
	if coll, _ := e.Command.Lookup("find").StringValueOK(); coll != "tasks" {
		return
	}
	filter := append(bson.Raw(nil), e.Command.Lookup("filter").Document()...)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.filters = append(a.filters, filter)
}

// first returns the filter of the first query that do sends.
func (a *asked) first(t *testing.T, do func() error) bson.Raw {
	t.Helper()
	a.mu.Lock()
	n := len(a.filters)
	a.mu.Unlock()
	require.NoError(t, do())
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Greater(t, len(a.filters), n)
	return a.filters[n]
}

// hasBound reports whether the query has a lower bound, and one priority.
func hasBound(filter bson.Raw) bool {
	from, err := filter.LookupErr("due_at", "$gte")
	return err == nil && from.Type == bson.TypeDateTime && filter.Lookup("priority").Type == bson.TypeInt32
}

// newAsking makes a consumer whose queries are kept. No command runs out of its time.
func newAsking(t *testing.T) (*Consumer, *asked) {
	t.Helper()
	a := &asked{}
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.BehindPatient(t).URI()).SetMonitor(&event.CommandMonitor{Started: a.started}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	c, _ := prepared(t, testdb.New(t))
	c2, err := New(Config{Database: client.Database(c.cfg.Database.Name())})
	require.NoError(t, err)
	require.NoError(t, Handle(c2, model.NewType[int, int](quietType), func(context.Context, *Task[int]) (int, error) { return 0, nil }))
	prepare(t, c2)
	return c2, a
}

func (c *Consumer) fetchFor(t *testing.T) func() error {
	return func() error {
		_, err := c.fetch(t.Context())
		return err
	}
}

// untilBounded fetches, or polls, until a query has a bound: soon after one that had none.
func (a *asked) untilBounded(t *testing.T, do func() error) bson.Raw {
	t.Helper()
	var filter bson.Raw
	require.Eventually(t, func() bool {
		filter = a.first(t, do)
		return hasBound(filter)
	}, testdb.Patience, time.Millisecond)
	return filter
}

func TestAWorkerNamesThePriorityInUseAndTheHeadItSaw(t *testing.T) {
	c, a := newAsking(t)
	fetch := c.fetchFor(t)
	require.False(t, hasBound(a.first(t, fetch)), "nothing is known yet")
	old := c.store.Clock.Now().Add(-time.Hour)
	put(t, c, "old", func(task *model.Task) { task.StartTime, task.DueAt, task.Priority = old, old, 3 })
	require.Eventually(t, func() bool {
		require.NoError(t, fetch())
		return c.Stats().ClaimsWon == 1
	}, testdb.Patience, time.Millisecond, "found by a full look within seconds, of an old start and a priority not in use")
	known := func() claim.Look { // as long as no full look is due
		return c.seeker.Queue.Begin(c.types(), c.store.Clock.Now(), 0, false)
	}
	head := known()
	require.Equal(t, []int{3}, head.Priorities)
	require.WithinDuration(t, old, head.From, 0)
	filter := a.untilBounded(t, func() error {
		head = known()
		return fetch()
	})
	require.EqualValues(t, 3, filter.Lookup("priority").AsInt64())
	require.WithinDuration(t, head.From, filter.Lookup("due_at", "$gte").Time(), 0)
	require.True(t, known().From.After(old), "the head has moved")
	require.Eventually(t, func() bool { return !hasBound(a.first(t, fetch)) }, testdb.Patience, time.Millisecond, "every few seconds it looks at everything")
}

// A task that this process moved to an old place, or heard of, does not wait for a full look.
func TestAStragglerThatIsKnownIsFoundAtOnce(t *testing.T) {
	c, a := newAsking(t)
	fetch := c.fetchFor(t)
	for won, tell := range []func(*model.Task){
		c.seeker.Hear,
		func(task *model.Task) {
			c.seeker.Refused.Add(task.ID, c.store.Clock.Now().Add(-claim.RefusedFor), time.Time{})
		},
	} {
		a.untilBounded(t, fetch)
		old := c.store.Clock.Now().Add(-time.Hour)
		task := put(t, c, []string{"heard of", "no longer refused"}[won], func(task *model.Task) { task.StartTime, task.DueAt, task.Priority = old, old, 8 })
		tell(task)
		require.NoError(t, fetch())
		require.EqualValues(t, won+1, c.Stats().ClaimsWon)
	}
}

func TestAPollNamesThePriorityInUseAndTheHead(t *testing.T) {
	c, a := newAsking(t)
	poll := func() error {
		_, err := c.poll(t.Context())
		return err
	}
	require.False(t, hasBound(a.first(t, poll)))
	c.lapses.See(true) // else one query asks for both
	a.untilBounded(t, poll)
	require.Eventually(t, func() bool { return !hasBound(a.first(t, poll)) }, testdb.Patience, time.Millisecond)
}

// Before a longer rest it looks at everything: of what it did not name it knows no start.
func TestAWorkerRestsOnlyAfterAFullLook(t *testing.T) {
	c, a := newAsking(t)
	c.watch.Opened() // its polls are half a minute apart
	fetch := c.fetchFor(t)
	soon := func() bool {
		next, err := c.nextLook(t.Context())
		require.NoError(t, err)
		return next.at.Before(c.store.Clock.Now().Add(5 * time.Second))
	}
	require.NoError(t, fetch())
	require.False(t, soon())
	a.untilBounded(t, fetch)
	require.True(t, soon())
}

// Tasks that name the worker and tasks that want several workers need queries of their own. While
// there are none, one query asks for both, wherever in the queue the worker looks.
func TestOneQueryAsksForBothKindsOfRareTasks(t *testing.T) {
	c, a := newAsking(t)
	for _, key := range []string{"one", "two", "three"} {
		put(t, c, key, func(*model.Task) {})
	}
	// find returns the audiences at which a look for one task looks beside the first query.
	find := func() (found claim.Catch, rare [][]string) {
		t.Helper()
		a.mu.Lock()
		a.filters = nil
		a.mu.Unlock()
		found, err := c.seeker.Find(t.Context(), c.types(), claim.Aim{Take: 1, Skip: 1})
		require.NoError(t, err)
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, f := range a.filters {
			var audience struct {
				Audience struct {
					In []string `bson:"$in"`
				}
			}
			require.NoError(t, bson.Unmarshal(f, &audience))
			if in := audience.Audience.In; !slices.Contains(in, lifecycle.AudienceAll) {
				rare = append(rare, in)
			}
		}
		return found, rare
	}
	both := [][]string{{lifecycle.AudienceMany, c.cfg.WorkerID}}
	_, rare := find()
	require.Equal(t, both, rare)
	// Where the machine is busy, the time for one of them may come between two checks of one look.
	require.Eventually(t, func() bool {
		_, rare = find()
		return slices.EqualFunc(both, rare, slices.Equal)
	}, testdb.Patience, time.Millisecond)
	for i, change := range []func(*model.Task){
		func(task *model.Task) {
			task.Options.SpecificWorkerIDs, task.Audience = []string{c.cfg.WorkerID}, []string{c.cfg.WorkerID}
		},
		func(task *model.Task) {
			task.Options.ConcurrentWorkerCount, task.Audience = 2, []string{lifecycle.AudienceMany}
		},
	} {
		task := put(t, c, []string{"own", "several"}[i], func(task *model.Task) {
			change(task)
			task.Priority = 9
		})
		require.Eventually(t, func() bool {
			got, _ := find()
			return got.Tasks[0].ID == task.ID
		}, testdb.Patience, time.Millisecond, "found within a second, although nobody told of it")
		_, rare = find()
		require.NotEqual(t, both, rare, "there are some of one kind, which is asked for each time")
		_, err := c.cfg.Database.Collection("tasks").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: task.ID}})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, rare = find()
			return slices.EqualFunc(both, rare, slices.Equal)
		}, testdb.Patience, time.Millisecond, "they are gone")
	}
}
