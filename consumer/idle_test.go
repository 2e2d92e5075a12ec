package consumer

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/presence"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/stream"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/upkeep"
	"github.com/mscheduler/mscheduler/model"
)

// told counts what a consumer sends: "find tasks", "update permits".
type told struct {
	mu   sync.Mutex
	sent map[string]int
	then func(command string) // is called with each
}

func (o *told) watch(then func(command string)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.then = then
}

func (o *told) started(_ context.Context, e *event.CommandStartedEvent) {
	collection, _ := e.Command.Lookup(e.CommandName).StringValueOK()
	command := strings.TrimSpace(e.CommandName + " " + collection)
	o.mu.Lock()
	o.sent[command]++
	then := o.then
	o.mu.Unlock()
	if then != nil {
		then(command)
	}
}

func (o *told) count() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.sent)
}

// of returns what was sent while do ran.
func (o *told) of(t *testing.T, do func() error) map[string]int {
	t.Helper()
	before := o.count()
	require.NoError(t, do())
	after := o.count()
	for what, n := range before {
		if after[what] -= n; after[what] == 0 {
			delete(after, what)
		}
	}
	return after
}

const quietType = "quiet"

// newQuiet makes a consumer on a database of its own, and what it sends is counted. No command runs out of its
// time.
func newQuiet(t *testing.T, db *mongo.Database, cfg Config) (*Consumer, *told) {
	t.Helper()
	return newQuietAt(t, testdb.BehindPatient(t).URI(), db, cfg)
}

// newQuietAt is [newQuiet] with a connection string of the database's deployment.
func newQuietAt(t *testing.T, uri string, db *mongo.Database, cfg Config) (*Consumer, *told) {
	t.Helper()
	o := &told{sent: map[string]int{}}
	client, err := mongo.Connect(engine.Options(uri).SetMonitor(&event.CommandMonitor{Started: o.started}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	cfg.Database = client.Database(db.Name())
	c, err := New(cfg)
	require.NoError(t, err)
	require.NoError(t, Handle(c, model.NewType[int, int](quietType), func(context.Context, *Task[int]) (int, error) { return 0, nil }))
	return c, o
}

// prepared is one whose loops do not run: the test calls what they call.
func prepared(t *testing.T, db *mongo.Database) (*Consumer, *told) {
	t.Helper()
	return preparedAt(t, testdb.BehindPatient(t).URI(), db)
}

// preparedAt is [prepared] with a connection string of the database's deployment.
func preparedAt(t *testing.T, uri string, db *mongo.Database) (*Consumer, *told) {
	t.Helper()
	c, o := newQuietAt(t, uri, db, Config{})
	prepare(t, c)
	c.watch.Rested() // as after a first fetch that found nothing
	return c, o
}

// prepare readies a consumer whose loops do not run.
func prepare(t *testing.T, c *Consumer) {
	t.Helper()
	require.NoError(t, c.start(t.Context()))
	require.NoError(t, c.prepare(t.Context()))
	t.Cleanup(func() {
		c.handlersWG.Wait()
		c.writeLast(context.Background())
		c.writeOutcomes(context.Background())
		c.endService()
		c.late.Wait()
		c.leases.Wait()
	})
}

// put stores a task.
func put(t *testing.T, c *Consumer, key string, change func(*model.Task)) *model.Task {
	t.Helper()
	args, err := codec.EncodeValue("args", 1, input.MaxArgsBytes)
	require.NoError(t, err)
	task := lifecycle.NewTask(lifecycle.Draft{Type: quietType, Key: key, Args: args}, c.store.Clock.Now())
	if change != nil {
		change(task)
	}
	_, err = c.store.Tasks.Insert(t.Context(), []*model.Task{task})
	require.NoError(t, err)
	return task
}

func at(when time.Time) func(*model.Task) {
	return func(t *model.Task) { t.StartTime, t.DueAt = when, when }
}

func TestAPollThatSeesNothingIsOneCommand(t *testing.T) {
	c, o := prepared(t, testdb.New(t))
	poll := func() error {
		next, err := c.poll(t.Context())
		require.True(t, next.poll)
		return err
	}
	require.NoError(t, poll())
	require.Equal(t, map[string]int{"find tasks": 1}, o.of(t, poll))
	require.Equal(t, map[string]int{"find tasks": 1}, o.of(t, poll))
	c.control.Forget()
	require.Equal(t, map[string]int{"find tasks": 1, "find control": 1}, o.of(t, poll), "once in a while, the control document, too")
}

func TestAPollSeesWhateverIsThereForTheWorker(t *testing.T) {
	c, _ := prepared(t, testdb.New(t))
	poll := func() look {
		next, err := c.poll(t.Context())
		require.NoError(t, err)
		return next
	}
	c.watch.Opened() // so that its polls are half a minute apart
	put(t, c, "later", at(c.store.Clock.Now().Add(time.Hour)))
	put(t, c, "others", func(task *model.Task) { task.Audience = []string{"somebody-else"} })
	require.True(t, poll().poll, "neither is for this worker before it polls again")
	require.False(t, c.lapses.Executing())

	now := c.store.Clock.Now()
	put(t, c, "executing", func(task *model.Task) { task.DueAt, task.LapseAt = time.Time{}, now.Add(time.Hour) })
	require.True(t, poll().poll, "nothing to claim")
	require.True(t, c.lapses.Executing(), "but from now on the scans look at leases")
	require.True(t, woken(c.lapses.Hinted()))

	soon := put(t, c, "soon", at(now.Add(10*time.Second)))
	require.False(t, poll().poll, "due before the next poll")
	c.plan.Looked(claim.Catch{At: now, AtHead: true, Full: true})
	next, err := c.nextLook(t.Context())
	require.NoError(t, err)
	require.Equal(t, soon.DueAt, next.at, "a timer is set for it")

	c.lapses.See(false)
	require.False(t, poll().poll)
	require.True(t, c.lapses.Executing() || woken(c.lapses.Hinted()), "whichever of the two the server named, the leases are looked at")
}

// A scan that came before the claim's write saw no lease: without a second one that of a
// parked execution would lapse unseen until a poll, half a minute later.
func TestAfterAClaimTheLeasesAreLookedAt(t *testing.T) {
	c, _ := prepared(t, testdb.New(t))
	task := put(t, c, "k", nil)
	woken(c.lapses.Hinted())
	out, err := c.claim(t.Context(), []*model.Task{task}, nil)
	require.NoError(t, err)
	require.Len(t, out.Won, 1)
	require.True(t, woken(c.lapses.Hinted()))
}

// Idle, watching, with the upkeep of the fleet: what each thing sends, times how often it
// happens.
func TestAnIdleWatcherSendsAtMostTwelveCommandsAMinute(t *testing.T) {
	c, o := prepared(t, testdb.New(t))
	ctx := t.Context()
	c.watch.Opened()
	require.NoError(t, c.presence.Beat(ctx)) // the first ones make what is not there
	permit, err := c.store.Seats.Acquire(ctx, c.types(), "me")
	require.NoError(t, err)
	keeper := c.upkeep()
	minute := 0.0
	cost := func(what string, every time.Duration, do func() error) {
		n := 0
		for _, m := range o.of(t, do) {
			n += m
		}
		require.Positive(t, n, what)
		t.Logf("%-28s %d every %v", what, n, every)
		minute += float64(n) * float64(time.Minute) / float64(every)
	}
	cost("heartbeat", store.HeartbeatInterval, func() error { return c.presence.Beat(ctx) })
	cost("count of the workers", presence.CountWatching, func() error {
		_, err := c.store.Workers.Alive(ctx, c.types())
		return err
	})
	_, err = c.poll(ctx)
	require.NoError(t, err)
	cost("poll with the control document", c.cfg.PollInterval, func() error {
		c.control.Forget()
		_, err := c.poll(ctx)
		return err
	})
	cost("renewal of the permit", stream.RenewEvery, func() error {
		_, err := c.store.Seats.Renew(ctx, permit, "me")
		return err
	})
	cost("look at who else watches", stream.LookEvery, func() error {
		_, err := c.store.Seats.Watching(ctx, permit)
		return err
	})
	cost("upkeep", upkeep.IdlePause, func() error {
		_, err := c.store.Turns.Take(ctx, "upkeep", "me", time.Minute, false)
		require.NoError(t, err)
		return keeper.Round(ctx)
	})
	minute += float64(time.Minute) / float64(store.StreamAwait) // the stream's own
	require.LessOrEqual(t, minute, 12.0)
}

func TestAWorkerWithoutASeatSendsNothingButItsPolls(t *testing.T) {
	c, o := newQuiet(t, testdb.New(t), Config{NoStream: true, PollInterval: 100 * time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	polls := func(n int64) {
		require.Eventually(t, func() bool { return c.Stats().Polls >= n }, testdb.Patience, 5*time.Millisecond)
	}
	polls(3)
	// Whatever comes between the numbers is in the wider span of commands, and not in the narrower one.
	sent, before, sentLater := o.count(), c.Stats(), o.count()
	polls(before.Polls + 10)
	nowEarlier, after, now := o.count(), c.Stats(), o.count()
	cancel()
	require.NoError(t, <-ended)
	asked, scanned := int(after.Polls-before.Polls), int(after.Scans-before.Scans)
	require.GreaterOrEqual(t, now["find tasks"]-sent["find tasks"], asked-1, "one query a poll")
	require.LessOrEqual(t, nowEarlier["find tasks"]-sentLater["find tasks"], asked+scanned+3, "and one a scan; one of each was under way, and upkeep asks once")
	require.Equal(t, before.Fetches, after.Fetches)
	for what, n := range now {
		switch what {
		case "find tasks", "find control", "findAndModify workers", "update turns", "aggregate workers", "aggregate task_history": // by the half minute and rarer; control once a second at most
		default:
			require.Zero(t, n-sent[what], what)
		}
	}
}

// What another watcher may claim first waits elsewhere, not on the goroutine that reads
// the stream: what comes behind it is claimed at once.
func TestWaitingForItsTurnDoesNotHoldUpTheStream(t *testing.T) {
	c, _ := prepared(t, testdb.New(t))
	f := newFollower(c, stream.NewRanks())
	f.ranks.Learn(store.Watching{Watchers: 2, Rank: 1})
	var woken []store.Woken
	mine, others := 0, 0
	for i := 0; mine == 0 || others == 0; i++ {
		task := put(t, c, string(rune('a'+i)), nil)
		if f.ranks.Delay(task.ID) == 0 {
			mine++
		} else {
			others++
		}
		woken = append(woken, store.Woken{ID: task.ID, Task: task})
	}
	require.NoError(t, f.Follow(t.Context(), woken)) // nobody takes the late ones from the queue
	require.EqualValues(t, mine, c.Stats().ClaimsWon)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	late := make(chan struct{})
	go func() { defer close(late); f.FollowLate(ctx) }()
	require.Eventually(t, func() bool { return c.Stats().ClaimsWon == int64(mine+others) }, testdb.Patience, time.Millisecond)
	cancel()
	<-late
	require.EqualValues(t, mine+others, c.Stats().ClaimsAttempted)
}

// The event of a task comes after the fetch that found it.
func TestAnEventDoesNotMakeAWorkerClaimATaskTwice(t *testing.T) {
	c, _ := prepared(t, testdb.New(t))
	ranks, _ := c.watch.Opened()
	f := newFollower(c, ranks)
	task := put(t, c, "k", nil)
	_, err := c.fetch(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, c.Stats().ClaimsWon)
	require.NoError(t, f.claim(t.Context(), []*model.Task{task}))
	require.EqualValues(t, 1, c.Stats().ClaimsAttempted)
}

// A start time that one event told of is met by a timer, not by a poll.
func TestAStartTimeThatAnEventToldOfIsKept(t *testing.T) {
	c, _ := prepared(t, testdb.New(t))
	f := newFollower(c, stream.NewRanks())
	now := c.store.Clock.Now()
	later := put(t, c, "later", at(now.Add(2*soon)))
	sooner := put(t, c, "sooner", at(now.Add(soon/10)))
	_, _, late := f.sort([]store.Woken{{ID: later.ID, Task: later}}, store.Stamp{Now: now}) // however late it is by now
	require.Empty(t, late)
	require.NoError(t, f.Follow(t.Context(), []store.Woken{{ID: sooner.ID, Task: sooner}}))
	ctx, cancel := context.WithTimeout(t.Context(), testdb.Patience)
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); f.FollowLate(ctx) }()
	require.Eventually(t, func() bool { return c.Stats().ClaimsWon == 1 }, testdb.Patience, time.Millisecond)
	require.False(t, c.store.Clock.Now().Before(sooner.DueAt))
	require.Zero(t, c.Stats().Fetches, "it is claimed without a search")
	require.True(t, c.awaitWork(ctx, look{at: now.Add(time.Hour), by: c.cfg.Clock.Monotonic() + time.Hour}), "woken long before the poll")
	require.False(t, c.store.Clock.Now().Before(later.DueAt))
	cancel()
	<-ended
}
