package pull

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// sundial is a machine's clock that a test sets by hand; its time is the server's, too.
type sundial struct {
	mu     sync.Mutex
	server time.Time
	mono   time.Duration
}

func (s *sundial) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC).Add(s.mono)
}

func (s *sundial) Monotonic() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mono
}

func (s *sundial) serverTime() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.server
}

func (s *sundial) pass(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server, s.mono = s.server.Add(d), s.mono+d
}

func (s *sundial) jump(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server = s.server.Add(d)
}

// process is a process that fetches from a server with the same clock. No command runs out of its time.
type process struct {
	*Puller
	sender *producer.Producer
	*sundial
	database *mongo.Database
	px       *proxy.Proxy // before the server
	writes   atomic.Int64 // commands that change documents
	beats    atomic.Int64 // those of them that are about workers
	ofTasks  atomic.Int64 // those of them that are about tasks
	majority atomic.Int64 // finds of tasks that a failover cannot undo
	t        *testing.T
}

func newProcess(t *testing.T) *process {
	t.Helper()
	s := &sundial{server: time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC), mono: time.Minute}
	server, err := embedded.Start(embedded.Options{Now: s.serverTime})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	p := &process{sundial: s, t: t}
	px, err := proxy.Start(server.URI())
	require.NoError(t, err)
	t.Cleanup(px.Close)
	px.Patient()
	p.px = px
	client, err := mongo.Connect(options.Client().ApplyURI(px.URI()).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "update" || e.CommandName == "findAndModify" {
				p.writes.Add(1)
				switch e.Command.Lookup(e.CommandName).StringValue() {
				case "workers":
					p.beats.Add(1)
				case "tasks":
					p.ofTasks.Add(1)
				}
			}
			if level, _ := e.Command.Lookup("readConcern", "level").StringValueOK(); level == "majority" && e.Command.Lookup("find").StringValue() == "tasks" {
				p.majority.Add(1)
			}
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	p.database = client.Database("pull")
	p.Puller, p.sender = doors(t, p.database, s)
	p.room.Store.Series.Within = testdb.Patience // or what a slow record had is lost
	return p
}

func (p *process) fetch(worker string) []Fetched {
	p.t.Helper()
	got, err := p.Fetch(p.t.Context(), FetchRequest{WorkerID: worker, Types: []string{"t"}, Max: 10})
	require.NoError(p.t, err)
	return got
}

// watch lets time pass as the observer does between two fetches.
func (p *process) watch(d time.Duration) {
	p.t.Helper()
	for ; d > 0; d -= 500 * time.Millisecond {
		p.pass(min(d, 500*time.Millisecond))
		p.memory.trust.Answered()
		require.NoError(p.t, p.room.Store.FreshClock(p.t.Context()))
	}
}

// owned is a task that another worker has fetched. Its lease has two seconds.
func (p *process) owned(key string) string {
	p.t.Helper()
	_, err := p.sender.SendJSON(p.t.Context(), "t", nil, producer.Key(key), producer.Lease(500*time.Millisecond, 2*time.Second))
	require.NoError(p.t, err)
	p.pass(10 * time.Millisecond)
	got := p.fetch("owner")
	require.Len(p.t, got, 1)
	return got[0].Task.ID
}

const patience = 500*time.Millisecond + claim.Notice

func TestAProcessThatFetchesWatchesBeforeItPreempts(t *testing.T) {
	p := newProcess(t)
	id := p.owned("a")
	p.pass(10 * time.Second)
	require.Empty(t, p.fetch("heir"), "it knows nothing of the last ten seconds")
	p.watch(patience)
	got := p.fetch("heir")
	require.Len(t, got, 1)
	require.Equal(t, id, got[0].Task.ID)
}

func TestAFetchThatLooksWhoIsPrimaryNotesIt(t *testing.T) {
	p := newProcess(t)
	p.owned("a")
	name, err := p.room.Store.Primary(t.Context())
	require.NoError(t, err)
	noted, err := p.database.Collection("control").CountDocuments(t.Context(), bson.D{{Key: "_id", Value: "primary"}, {Key: "name", Value: name}})
	require.NoError(t, err)
	require.EqualValues(t, 1, noted)
}

func TestAFetchTakesManyTasksOverByOneCommand(t *testing.T) {
	p := newProcess(t)
	for i := range 10 {
		_, err := p.sender.SendJSON(t.Context(), "t", nil, producer.Key(fmt.Sprint(i)), producer.Lease(500*time.Millisecond, 2*time.Second))
		require.NoError(t, err)
	}
	p.pass(10 * time.Millisecond)
	require.Len(t, p.fetch("owner"), 10)
	p.pass(10 * time.Second)
	require.Empty(t, p.fetch("heir"), "it knows nothing of the last ten seconds")
	p.watch(patience)
	before := p.writes.Load()
	require.Len(t, p.fetch("heir"), 10)
	require.EqualValues(t, 1, p.writes.Load()-before)
}

func TestAFetchLeavesTheTimeToHearOfAJumpOfTheDatabasesClock(t *testing.T) {
	p := newProcess(t)
	p.owned("a")
	p.watch(time.Second)
	p.jump(time.Minute)
	require.NoError(t, p.room.Store.ReadClock(t.Context()))
	require.Empty(t, p.fetch("heir"))
	p.watch(store.MaxClockAge + patience - time.Second)
	require.Empty(t, p.fetch("heir"), "the owner pings until then by the time as it was before")
	p.watch(time.Second)
	got := p.fetch("heir")
	require.Len(t, got, 1)
	require.Equal(t, 1, got[0].Task.LapseCount)
	require.Equal(t, model.StatusExecuting, got[0].Task.Status)
}

// They fill a look, and lapsed at the same time.
func TestHundredsThatAreLeftAloneHideNoneThatLapsedLater(t *testing.T) {
	p := newProcess(t)
	require.Empty(t, p.fetch("heir"))
	now := p.serverTime()
	var tasks []*model.Task
	abandoned := func(key string, ping, lease time.Duration, lapsed time.Time) {
		task := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: key, Options: model.Options{PingInterval: ping, WorkerTimeout: lease}}, now)
		task, no := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: "dead", ExecID: "dead"}, lifecycle.ResolveOptions(task.Options), now)
		require.Empty(t, no)
		task.LapseAt, task.WorkerStates[0].PingExpireTime = lapsed, lapsed
		tasks = append(tasks, task)
	}
	for i := range pullScan {
		abandoned(fmt.Sprint(i), time.Hour, 3*time.Hour, now.Add(time.Second))
	}
	abandoned("short", 500*time.Millisecond, 2*time.Second, now.Add(2*time.Second))
	_, err := p.room.Store.Tasks.Insert(t.Context(), tasks)
	require.NoError(t, err)
	p.watch(patience)
	require.Empty(t, p.fetch("heir"), "its look is full")
	p.watch(time.Second)
	got := p.fetch("heir")
	require.Len(t, got, 1)
	require.Equal(t, "short", got[0].Task.Key)
}

// The time is real here: between two fetches nobody but the observer asks the database.
func TestWhatAFetchLeftAloneIsTakenOverByALaterOneHoweverRarelyItComes(t *testing.T) {
	b := setup(t)
	_, err := b.sender.SendJSON(t.Context(), "t", nil, producer.Lease(300*time.Millisecond, time.Second))
	require.NoError(t, err)
	fetch := func(worker string) []Fetched {
		got, err := b.p.Fetch(t.Context(), FetchRequest{WorkerID: worker, Types: []string{"t"}})
		require.NoError(t, err)
		return got
	}
	eventually := func(what string, met func() bool) {
		t.Helper()
		require.Eventually(t, met, testdb.Patience, 20*time.Millisecond, what)
	}
	var owned []Fetched
	eventually("the task is due", func() bool { owned = append(owned, fetch("owner")...); return len(owned) > 0 })
	eventually("its lease has lapsed", func() bool { return b.p.room.Store.Clock.Now().After(owned[0].Until) })
	eventually("a fetch has looked for lapsed leases", func() bool { // it rests after a slow look
		b.p.memory.trust.Doubt() // as after a long pause
		require.Empty(t, fetch("heir"))
		return b.p.watch.watches()
	})
	terms := &lifecycle.Effective{PingInterval: 300 * time.Millisecond, Lease: time.Second}
	eventually("the observer has watched for long enough", func() bool { return b.p.memory.trust.Wait(terms) <= 0 })
	eventually("it is taken over", func() bool { return len(fetch("heir")) == 1 })
}

func (o *observer) watches() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.running
}
