package upkeep

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/store"
)

// fleet is several keepers of one database, in virtual time.
type fleet struct {
	t       *testing.T
	uri, db string
	looks   atomic.Int64 // for work, of all
	slow    atomic.Int64 // what each of them takes, in nanoseconds
}

func inVirtualTime(t *testing.T, test func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d, err := engine.Virtual(embedded.Options{}).Start(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		test(t, &fleet{t: t, uri: d.URI, db: engine.Fresh(t, engine.Connect(t, d.URI)).Name()})
	})
}

// keeps starts a keeper, which ends with the test.
func (f *fleet) keeps(name string, log zerolog.Logger, busy bool, job Job) {
	f.t.Helper()
	client, err := mongo.Connect(engine.Options(f.uri).SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if of, _ := e.Command.Lookup("find").StringValueOK(); of == "tasks" {
			f.looks.Add(1)
			time.Sleep(time.Duration(f.slow.Load()))
		}
	}}))
	require.NoError(f.t, err)
	f.t.Cleanup(func() { require.NoError(f.t, client.Disconnect(context.Background())) })
	st, err := store.Open(store.Config{Database: client.Database(f.db)})
	require.NoError(f.t, err)
	require.NoError(f.t, st.Ready(f.t.Context()))
	require.NoError(f.t, st.ReadClock(f.t.Context()))
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan struct{})
	f.t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		New(st, name, log, func() bool { return busy }, job).Loop(ctx)
	}()
}

// counting is a job that always returns the same.
type counting struct {
	returns error
	runs    atomic.Int64
}

func (*counting) Name() string             { return "counting" }
func (*counting) Wanted(store.Chores) bool { return true }
func (c *counting) Run(context.Context) error {
	c.runs.Add(1)
	return c.returns
}

func TestAProcessWhoseRoundsFailDoesNotKeepTheTurnFromOthers(t *testing.T) {
	for name, busy := range map[string]bool{"idle ones": false, "busy ones": true} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fleet) {
				bad, good := &counting{returns: errors.New("broken")}, &counting{}
				f.keeps("bad", zerolog.Nop(), true, bad)
				<-time.After(time.Minute) // it has the turn
				require.GreaterOrEqual(t, bad.runs.Load(), int64(9), "one that is alone tries again and again")
				f.keeps("good", zerolog.Nop(), busy, good)
				<-time.After(4 * time.Minute)
				least := int64(2)
				if busy {
					least = 30
				}
				require.GreaterOrEqual(t, good.runs.Load(), least)
			})
		})
	}
}

// A failure that passes leaves no process behind that looks rarely.
func TestAProcessWhoseRoundFailedOnceTakesTheTurnFromAnIdleOneAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fleet) {
		once := &job{returns: []error{errors.New("broken"), nil}, ran: make(chan int, 1000)}
		f.keeps("once", zerolog.Nop(), true, once)
		require.Equal(t, 1, <-once.ran)
		f.keeps("idle", zerolog.Nop(), false, &counting{})
		<-time.After(5 * time.Minute)
		require.Greater(t, len(once.ran), 30)
	})
}

func TestAFailureThatLastsIsLogged(t *testing.T) {
	sessions := errors.New("current topology does not support sessions") // of the driver
	for name, c := range map[string]struct {
		returns []error
		logged  bool
	}{
		"an answer":              {[]error{mongo.CommandError{Code: 1, Message: "no"}, nil}, true},
		"the driver's own":       {[]error{sessions, nil}, true},
		"a timeout":              {[]error{context.DeadlineExceeded, nil}, false},
		"a timeout at each time": {[]error{context.DeadlineExceeded}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fleet) {
				var out bytes.Buffer
				f.keeps("me", zerolog.New(zerolog.SyncWriter(&out)), true, &job{returns: c.returns, ran: make(chan int, 1000)})
				<-time.After(2 * time.Minute)
				synctest.Wait()
				require.Equal(t, c.logged, strings.Contains(out.String(), "an upkeep job failed"), out.String())
				require.NotContains(t, out.String(), "could not search")
			})
		})
	}
}

// The whole fleet asks a slow server no sooner again than one process would.
func TestASlowLookIsRepeatedByNobodyBeforeTwentyTimesItsTime(t *testing.T) {
	for name, returns := range map[string]error{"the round succeeds": nil, "the round fails": errors.New("broken")} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fleet) {
				for _, name := range []string{"a", "b", "c"} {
					f.keeps(name, zerolog.Nop(), true, &counting{returns: returns})
				}
				f.slow.Store(int64(2 * time.Second))
				f.looks.Store(0)
				<-time.After(5 * time.Minute)
				require.LessOrEqual(t, f.looks.Load(), int64(1+5*time.Minute/(32*time.Second)), "a pause may be a quarter shorter")
				require.Greater(t, f.looks.Load(), int64(3))
			})
		})
	}
}
