package pull

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// looker is a process that fetches, and the queries for due tasks that it sent. No command runs out of its time.
type looker struct {
	*bundle
	mu    sync.Mutex
	looks []bson.Raw
}

func newLooker(t *testing.T) *looker {
	t.Helper()
	l := &looker{}
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.BehindPatient(t).URI()).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) {
			filter, ok := e.Command.Lookup("filter").DocumentOK()
			if _, err := filter.LookupErr("due_at"); e.CommandName == "find" && ok && err == nil {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.looks = append(l.looks, append(bson.Raw(nil), filter...))
			}
		},
	}))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	l.bundle = setupOn(t, client.Database(testdb.New(t).Name()))
	return l
}

// fetch returns the keys of what it fetched, and the queries for it.
func (l *looker) fetch(worker string, n int) (keys []string, looks []bson.Raw) {
	l.t.Helper()
	l.mu.Lock()
	l.looks = nil
	l.mu.Unlock()
	got, err := l.p.Fetch(l.t.Context(), FetchRequest{WorkerID: worker, Types: []string{"mail"}, Max: n})
	require.NoError(l.t, err)
	for _, f := range got {
		keys = append(keys, f.Task.Key)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return keys, l.looks
}

// bounded reports whether the query begins at a known place, of one priority.
func bounded(look bson.Raw) bool {
	from, err := look.LookupErr("due_at", "$gte")
	return err == nil && from.Type == bson.TypeDateTime && look.Lookup("priority").Type == bson.TypeInt32
}

// late makes a task due since that long.
func (l *looker) late(d time.Duration) producer.Option { return producer.At(l.Now().Add(-d)) }

// elsewhere stores a task of another process.
func (l *looker) elsewhere(key string, due time.Duration, priority int) {
	l.t.Helper()
	other, err := producer.New(producer.Config{Database: l.db})
	require.NoError(l.t, err)
	defer func() { require.NoError(l.t, other.Close(context.Background())) }()
	_, err = producer.Send(l.t.Context(), other, mailType, mail{}, producer.Key(key), l.late(due), producer.Priority(priority))
	require.NoError(l.t, err)
}

func TestAFetchNamesThePriorityInUseAndTheHeadThatItsWorkerSaw(t *testing.T) {
	l := newLooker(t)
	hour := l.Now().Add(-time.Hour)
	for i := range 50 {
		l.send(mail{}, producer.Key(fmt.Sprint(i)), producer.At(hour.Add(time.Duration(i)*time.Millisecond)), producer.Priority(3))
	}
	_, looks := l.fetch("w", 1)
	require.False(t, bounded(looks[0]), "nothing is known yet")
	require.Eventually(t, func() bool { // unless a full look is due again
		_, looks = l.fetch("w", 1)
		return len(looks) > 0 && bounded(looks[0])
	}, testdb.Patience, time.Millisecond)
	require.EqualValues(t, 3, looks[0].Lookup("priority").AsInt64())
	require.WithinDuration(t, hour, looks[0].Lookup("due_at", "$gte").Time(), time.Second)
	_, looks = l.fetch("another", 1)
	require.False(t, bounded(looks[0]), "another may see other tasks")
	l.elsewhere("old", 2*time.Hour, 8)
	require.Eventually(t, func() bool {
		keys, _ := l.fetch("w", 1)
		return len(keys) == 1 && keys[0] == "old"
	}, testdb.Patience, 10*time.Millisecond, "a straggler is found within seconds")
}

// What this process writes does not wait for a full look, nor for the rest after an empty one.
func TestAFetchFindsAtOnceWhatItsProcessWrote(t *testing.T) {
	l := newLooker(t)
	for range 2 {
		keys, _ := l.fetch("w", 1)
		require.Empty(t, keys)
	}
	l.send(mail{}, producer.Key("old"), l.late(time.Hour), producer.Priority(8))
	l.send(mail{}, producer.Key("older"), l.late(2*time.Hour), producer.Priority(8))
	for _, want := range []string{"older", "old"} {
		keys, _ := l.fetch("w", 1)
		require.Equal(t, []string{want}, keys)
	}
	l.send(mail{}, producer.Key("several"), l.late(time.Hour), producer.ConcurrentWorkers(2))
	l.send(mail{}, producer.Key("own"), l.late(time.Minute), producer.Workers("w"))
	keys, _ := l.fetch("w", 2)
	require.Equal(t, []string{"own", "several"}, keys)
	keys, _ = l.fetch("other", 2)
	require.Equal(t, []string{"several"}, keys)
}

func TestAFetchTakesTasksThatNameItsWorkerFirst(t *testing.T) {
	l := newLooker(t)
	for i := range 5 {
		l.send(mail{}, producer.Key(fmt.Sprint(i)), l.late(time.Hour))
	}
	l.send(mail{}, producer.Key("own"), l.late(time.Minute), producer.Workers("w"))
	keys, _ := l.fetch("w", 2)
	require.Equal(t, "own", keys[0])
}

func TestAFetchThatFoundNothingIsNotRepeatedBeforeTwentyTimesItsDuration(t *testing.T) {
	p := newProcess(t)
	other, err := producer.New(producer.Config{Database: p.database, Clock: p.sundial})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close(context.Background())) })
	require.Empty(t, p.fetch("w"))
	looked := 0
	for _, s := range p.memory.seekers {
		if s.crowd != nil {
			looked++
			require.NoError(t, s.pace.Do(func() error { p.pass(50 * time.Millisecond); return nil })) // the server was slow
		}
	}
	require.Equal(t, 1, looked)
	_, err = other.SendJSON(t.Context(), "t", nil)
	require.NoError(t, err)
	p.pass(999 * time.Millisecond)
	require.Empty(t, p.fetch("w"))
	p.pass(2 * time.Millisecond)
	require.Len(t, p.fetch("w"), 1)
}

// A task that this worker may not have, because it had too many errors with it, does not stand
// before the others for ever.
func TestATaskThatIsRefusedToAWorkerIsLeftOutOfItsFetches(t *testing.T) {
	l := newLooker(t)
	bad := l.send(mail{}, producer.Key("bad"), l.late(time.Hour), producer.MaxErrorsPerWorker(1), producer.Retry(model.Retry{Strategy: model.RetryFixed, Interval: time.Millisecond}))
	l.Run(bad.ID, lifecycle.Failed(failkind.Error, "no"))
	require.Eventually(t, func() bool { return !l.get(bad.ID).DueAt.After(l.Now()) }, testdb.Patience, time.Millisecond)
	l.send(mail{}, producer.Key("good"))
	require.Eventually(t, func() bool {
		keys, _ := l.fetch("w", 1)
		return len(keys) == 1 && keys[0] == "good"
	}, testdb.Patience, time.Millisecond)
	keys, _ := l.fetch("other", 1)
	require.Equal(t, []string{"bad"}, keys)
}
