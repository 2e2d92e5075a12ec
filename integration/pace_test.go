package integration

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
)

// asked is a query that a client sent.
type asked struct {
	command     bson.Raw
	began, done time.Time
	bytes       int // of the answers: to the query, and to those for the rest of its cursor
}

// listening is a database whose queries are noted, in the order of their answers.
type listening struct {
	*mongo.Database
	mu      sync.Mutex
	open    map[int64]asked
	asked   []asked
	cursors map[int64]int // of which query, by id
}

func listen(t *testing.T, uri, name string) *listening {
	t.Helper()
	l := &listening{open: map[int64]asked{}, cursors: map[int64]int{}}
	client, err := mongo.Connect(engine.Options(uri).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "find" || e.CommandName == "getMore" {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.open[e.RequestID] = asked{command: slices.Clone(e.Command), began: time.Now()}
			}
		},
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			l.mu.Lock()
			defer l.mu.Unlock()
			a, ok := l.open[e.RequestID]
			delete(l.open, e.RequestID)
			if !ok {
				return
			}
			if id, more := a.command.Lookup("getMore").AsInt64OK(); more {
				if of, known := l.cursors[id]; known {
					l.asked[of].bytes += len(e.Reply)
				}
				return
			}
			a.done, a.bytes = time.Now(), len(e.Reply)
			if id, _ := e.Reply.Lookup("cursor", "id").AsInt64OK(); id != 0 {
				l.cursors[id] = len(l.asked)
			}
			l.asked = append(l.asked, a)
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	l.Database = client.Database(name)
	return l
}

// by are the queries since the given time that use the index and ask for the field.
func (l *listening) by(since time.Time, index, field string) (out []asked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.asked {
		hint, _ := a.command.Lookup("hint").StringValueOK()
		if hint == index && a.began.After(since) && (field == "" || a.command.Lookup("projection", field).Type != 0) {
			out = append(out, a)
		}
	}
	return out
}

// A server on which a query takes long, because it walks deleted keys or for any other
// reason, is not asked the same again and again by the loops that mostly find nothing.
func TestALoopRestsTwentyTimesAsLongAsItsQueryTook(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		px, db := a.behind()
		l := listen(t, px.URI(), db.Name())
		release := make(chan struct{})
		a.send(1)
		h := a.hire("slow", func(context.Context, *consumer.Task[int]) (int, error) { <-release; return 0, nil },
			through(l.Database), func(c *handConfig) { c.PollInterval = time.Second })
		t.Cleanup(func() { close(release); px.Delay(0) })
		h.events.await(t, workerevent.Started, 1)
		px.Delay(40 * time.Millisecond)
		slow := time.Now()
		loops := map[string]string{"scans for lapsed leases": store.IndexLapse, "polls": store.IndexDue}
		for name, index := range loops {
			awaitTrue(t, func() string {
				if n := len(l.by(slow, index, "lapse_at")); n < 4 {
					return fmt.Sprintf("%d %s", n, name)
				}
				return ""
			})
		}
		for name, index := range loops {
			list := l.by(slow, index, "lapse_at")
			for i := range list[1:] {
				took, rest := list[i].done.Sub(list[i].began), list[i+1].began.Sub(list[i].done)
				require.GreaterOrEqual(t, took, 40*time.Millisecond)
				// A millisecond, since times of the database are cut to them.
				require.GreaterOrEqual(t, rest, min(20*took, 5*time.Second)-time.Millisecond, "%s: query %d took %v", name, i, took)
			}
		}
	})
}

// A thousand workers that pull through one process do not look for lapsed leases a thousand
// times as often as one.
func TestAllPullsOfAProcessLookForLapsedLeasesAsOftenAsOneWorker(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		l := listen(t, e.URI, a.db.Name())
		sender, err := producer.New(producer.Config{Database: l.Database})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, sender.Close(context.Background())) })
		p := pull.New(sender)
		began := time.Now()
		var pulls sync.WaitGroup
		for i := range 10 {
			pulls.Go(func() {
				for range 10 {
					_, err := p.Fetch(t.Context(), pull.FetchRequest{WorkerID: fmt.Sprint("w", i), Types: []string{"pulled"}})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		pulls.Wait()
		most := 1 + int(time.Since(began)/(250*time.Millisecond))
		scans := len(l.by(began, store.IndexLapse, ""))
		require.Positive(t, scans)
		require.LessOrEqual(t, scans, most, "searches for lapsed leases by 100 fetches")
	})
}
