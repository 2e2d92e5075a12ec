package consumer

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/internal/upkeep"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
)

// chain is a worker of a type with max_running 1 behind a proxy. Its handlers wait for end.
type chain struct {
	*Consumer
	px         *proxy.Proxy
	began, end chan string
	over       chan struct{}
	g          *gauge
	stopped    chan struct{} // closed when Run has returned

	mu     sync.Mutex
	events map[string]int
}

// newChain starts it with that many tasks. Another process has the turn of the sweeper, and does nothing.
func newChain(t *testing.T, tasks int) *chain {
	t.Helper()
	db := testdb.New(t)
	setup, _ := prepared(t, db)
	limitTo(t, setup, 1)
	putMany(t, setup, map[string]int{limitedType: tasks}, nil)
	mine, err := setup.store.Turns.Take(t.Context(), upkeep.Permit, "nobody", time.Hour, false)
	require.NoError(t, err)
	require.True(t, mine)
	px, err := proxy.Start(testdb.URI(t))
	require.NoError(t, err)
	t.Cleanup(px.Close)
	client, err := mongo.Connect(options.Client().ApplyURI(px.URI()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	l := &chain{px: px, began: make(chan string), end: make(chan string), over: make(chan struct{}), g: newGauge(tasks), stopped: make(chan struct{}), events: map[string]int{}}
	l.Consumer, err = New(Config{
		Database: client.Database(db.Name()), WorkerID: "w", ShutdownTimeout: -1,
		OnEvent: func(e Event) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.events[e.Kind]++
		},
	})
	require.NoError(t, err)
	require.NoError(t, Handle(l.Consumer, model.NewType[int, int](limitedType), func(_ context.Context, task *Task[int]) (int, error) {
		l.g.during(func() {
			select {
			case l.began <- task.TaskID:
				select {
				case <-l.end:
				case <-l.over:
				}
			case <-l.over:
			}
		})
		return 0, nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(l.stopped)
		_ = l.Run(ctx)
	}()
	t.Cleanup(func() {
		l.letGo()
		cancel()
		<-l.stopped
	})
	return l
}

// letGo lets all handlers return at once from then on.
func (l *chain) letGo() {
	select {
	case <-l.over:
	default:
		close(l.over)
	}
}

// begin waits until a handler runs, for at most that long.
func (l *chain) begin(t *testing.T, within time.Duration) {
	t.Helper()
	select {
	case <-l.began:
	case <-time.After(within):
		t.Fatalf("nothing begins: %+v", l.Stats())
	}
}

// until ends what runs, and lets the next begin, until a command is trapped that takes the claim of
// what follows along with the end.
func (l *chain) until(t *testing.T, trap *proxy.Trap) {
	t.Helper()
	l.begin(t, time.Minute)
	for {
		l.prepares()
		l.end <- ""
		select {
		case <-trap.Hit():
			return
		case <-l.began: // after an end that was written
		case <-time.After(testdb.Patience):
			t.Fatalf("no end takes a claim along: %+v", l.Stats())
		}
	}
}

// short makes the type one of short handlers.
func (l *chain) short() { l.handlerOf(limitedType).ran.Store(int64(shortHandler)) }

// prepares waits a moment until what runs is prepared to be followed, and reports whether it is. Once a second a
// permit is left to others, and then it never is.
func (l *chain) prepares() bool {
	l.short()
	for range 400 {
		if l.hasSuccessor() {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// hasSuccessor is that of a crewmate.
func (l *chain) hasSuccessor() bool { return crewmate{Consumer: l.Consumer}.hasSuccessor() }

func (l *chain) count(k string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events[k]
}

// The answer to an end and the claim that follows is lost. The end counts once, whether or not the
// command has reached the server, and the next task begins by the same permit.
func TestALostAnswerToAnEndAndAClaimLosesNeither(t *testing.T) {
	for name, do := range map[string]proxy.Action{"before the server": proxy.HoldBefore, "after the server": proxy.HoldAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const tasks = 100
			l := newChain(t, tasks)
			trap := l.px.Set(proxy.Rule{Command: "update", Collection: "tasks", Contains: "$inc", Skip: 3, Do: do})
			l.until(t, trap)
			time.Sleep(20 * time.Millisecond) // the end would be of another time now
			l.px.Drop()
			l.begin(t, time.Minute)
			l.letGo()
			l.g.await(t)
			require.Eventually(t, func() bool { return l.count(workerevent.Finished)+l.count(workerevent.Fenced) == tasks }, testdb.Patience, time.Millisecond, "%+v", l.Stats())
			require.Zero(t, l.count(workerevent.Fenced), "an end that the server has written is no late one")
			require.Equal(t, 1, l.g.most)
		})
	}
}
