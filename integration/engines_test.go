package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.uber.org/goleak"

	"github.com/mscheduler/mscheduler/internal/container"
	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// enginesVariable limits the suite to some engines: "embedded,secantusd". Each of them runs every
// scenario.
const enginesVariable = "MSCHEDULER_TEST_ENGINES"

// others, in the place of names, is what a run on the embedded server and on the deployment of
// MSCHEDULER_MONGODB_URI leaves: every scenario on each other engine, and on the embedded server
// those whose size matters, at full size.
const others = "others"

// kinds are all engines, the quickest first.
func kinds() []engine.Engine {
	return []engine.Engine{
		engine.Embedded(embedded.Options{}), engine.URI(), engine.Mongod(), container.Engine(), engine.Secantusd(),
	}
}

// Engine is a deployment that the scenarios share, each in a database of its own.
type Engine struct {
	engine.Engine
	*engine.Deployment
	Transactions bool
	Streams      bool // change streams that workers use
	Sharded      bool

	client *mongo.Client
	whole  bool  // it runs every scenario, not only those whose size matters
	rest   bool  // it repeats what another run has done, see inDepth and slowInLong
	absent error // why it is not at hand
}

// DB is a fresh database, dropped after the test.
func (e Engine) DB(t testing.TB) *mongo.Database { return engine.Fresh(t, e.client) }

// Of is a number of tasks: the first for this engine, or the second where it is slow, or
// everything is.
func (e Engine) Of(fast, slow int) int {
	if e.Slow || raceDetector {
		return slow
	}
	return fast
}

var engines []Engine

// onEngines runs a scenario on every engine, beside other scenarios: on the embedded server in virtual time.
func onEngines(t *testing.T, scenario func(t *testing.T, e Engine)) {
	t.Helper()
	onEnginesInRealTime(t, virtually(scenario))
}

// onEnginesInRealTime is onEngines for a scenario with processes of its own, with HTTP or with much to
// compute, since in virtual time nothing is ever slow, and for one that has parts, see [Engine.part].
func onEnginesInRealTime(t *testing.T, scenario func(t *testing.T, e Engine)) {
	t.Helper()
	t.Parallel()
	on(t, func(e Engine) bool { return e.whole }, func(t *testing.T, e Engine) {
		t.Parallel()
		scenario(t, e)
	})
}

// part runs a part of a scenario beside the others, as onEngines would.
func (e Engine) part(t *testing.T, name string, scenario func(t *testing.T, e Engine)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		e.play(t, scenario)
	})
}

// virtually plays a scenario, see [Engine.play].
func virtually(scenario func(t *testing.T, e Engine)) func(t *testing.T, e Engine) {
	return func(t *testing.T, e Engine) {
		t.Helper()
		e.play(t, scenario)
	}
}

// beginning is when virtual time begins for a scenario: a bubble begins in the year 2000, before the dates in tests.
var beginning = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// play runs a scenario: on the embedded server in virtual time, with a server of its own.
func (e Engine) play(t *testing.T, scenario func(t *testing.T, e Engine)) {
	t.Helper()
	if !e.virtual() {
		scenario(t, e)
		return
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(beginning))
		e.Engine = engine.Virtual(embedded.Options{})
		scenario(t, e.another(t))
	})
}

// virtual says that a scenario which is played virtually has virtual time: nothing else shares the machine then.
func (e Engine) virtual() bool { return e.Name == "embedded" }

// onEnginesAtFullSize is onEngines for a scenario whose size matters: reduced with the race
// detector, which makes everything many times slower, and once more at full size without it.
func onEnginesAtFullSize(t *testing.T, scenario func(t *testing.T, e Engine)) {
	t.Helper()
	onEnginesAtFullSizeInRealTime(t, virtually(scenario))
}

// onEnginesAtFullSizeInRealTime is onEnginesAtFullSize for what needs real time, see onEnginesInRealTime.
func onEnginesAtFullSizeInRealTime(t *testing.T, scenario func(t *testing.T, e Engine)) {
	t.Helper()
	t.Parallel()
	on(t, func(Engine) bool { return true }, func(t *testing.T, e Engine) {
		t.Parallel()
		scenario(t, e)
	})
}

// onEnginesAlone is onEnginesAtFullSize for a scenario that needs the machine for itself.
func onEnginesAlone(t *testing.T, scenario func(t *testing.T, e Engine)) {
	on(t, func(Engine) bool { return true }, scenario)
}

// longVariable, when it is set, makes a run complete, see inDepth, slowInLong and withoutRace.
const longVariable = "MSCHEDULER_TEST_LONG"

// inDepth is a scenario that takes long, and tries what our code does more than what an engine does: processes are
// killed and frozen over and over, or a minute must pass. How an engine carries out each of their writes the
// other scenarios try. So every run has it once, on the embedded server. On the other engines, and at full size, only
// `make long` has it.
func inDepth(scenario func(t *testing.T, e Engine)) func(t *testing.T, e Engine) {
	return func(t *testing.T, e Engine) {
		if e.rest && os.Getenv(longVariable) == "" {
			if e.Name != "embedded" {
				t.Skip("it takes long on this engine: make long has it")
			}
			e.Slow = true // a few tasks will do
		}
		scenario(t, e)
	}
}

// slowInLong is a scenario that only `make long` has on a slow engine.
func slowInLong(scenario func(t *testing.T, e Engine)) func(t *testing.T, e Engine) {
	return func(t *testing.T, e Engine) {
		if e.rest && e.Slow && os.Getenv(longVariable) == "" {
			t.Skip("it takes long on this engine: make long has it")
		}
		scenario(t, e)
	}
}

// withoutRace is a scenario with much to compute and with no more goroutines than others have: large documents, a
// backlog, processes, or the same work for each of many writes that fail. With the race detector, only `make long` has
// it on the embedded server. Use it with onEnginesAtFullSize or onEnginesAlone: these run it there without.
func withoutRace(scenario func(t *testing.T, e Engine)) func(t *testing.T, e Engine) {
	return func(t *testing.T, e Engine) {
		if raceDetector && e.Name == "embedded" && os.Getenv(longVariable) == "" {
			t.Skip("it has much to compute: make scenarios runs it without the race detector, and make long with it")
		}
		scenario(t, e)
	}
}

// aloneWithRace lets a scenario of many processes run beside others unless the race detector is on:
// then these processes take the whole machine, and the others would lose their leases.
func aloneWithRace(t *testing.T) {
	t.Helper()
	if !raceDetector {
		t.Parallel()
	}
}

func on(t *testing.T, wanted func(Engine) bool, scenario func(t *testing.T, e Engine)) {
	ran := false
	for _, e := range engines {
		if !wanted(e) {
			continue
		}
		ran = true
		t.Run(e.Name, func(t *testing.T) {
			if e.absent != nil {
				t.Skip(engine.Reason(e.Name, e.absent))
			}
			scenario(t, e)
		})
	}
	if !ran {
		t.Skip("not among the scenarios of " + others)
	}
}

// another is a deployment of the same engine, for a scenario that no other may disturb, or
// that would disturb others. It ends with the test.
func (e Engine) another(t *testing.T) Engine {
	t.Helper()
	d, err := e.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	e.Deployment, e.client = d, engine.Connect(t, d.URI)
	return e
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

type suite struct{ m *testing.M }

// parallel scenarios mostly wait for leases and clocks, so more of them than there are
// processors run at once.
func parallel() string {
	if raceDetector {
		return "8"
	}
	return "14"
}

// Run starts the engines, says which are there, and runs the scenarios.
func (s suite) Run() int {
	flag.Parse()
	if given := flag.Lookup("test.parallel"); given != nil && given.Value.String() == given.DefValue {
		_ = flag.Set("test.parallel", parallel()) // a number, so it cannot be refused
	}
	if err := startEngines(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := s.m.Run()
	if err := stopEngines(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	testdb.Settle()
	return code
}

func startEngines(ctx context.Context) error {
	only := strings.FieldsFunc(os.Getenv(enginesVariable), func(r rune) bool { return r == ',' })
	possible := kinds()
	if slices.Contains(only, "router") { // every scenario once more: only where it is asked for
		possible = append(possible, routerEngine())
	}
	for _, kind := range possible {
		named, all := slices.Contains(only, kind.Name), len(only) == 0
		rest := slices.Contains(only, others) && kind.Name != "uri"
		e := Engine{Engine: kind, whole: named || all || rest && kind.Name != "embedded", rest: rest && !named}
		if !named && !all && !rest {
			e.absent = &engine.MissingError{Engine: kind.Name, Reason: "not among " + enginesVariable}
		} else if kind.Name == "container" && os.Getenv(container.ImageVariable) != "" && !named {
			e.absent = &engine.MissingError{Engine: kind.Name, Reason: "its image holds the embedded server; package internal/container tries it"}
		} else if err := e.open(ctx); err != nil {
			var missing *engine.MissingError
			if kind.Name != "container" && !errors.As(err, &missing) {
				return errors.Join(err, stopEngines())
			}
			e.absent = err // Docker without a network cannot fetch an image
		}
		if e.absent != nil {
			fmt.Fprintln(os.Stderr, "SKIPPED engine", engine.Reason(e.Name, e.absent))
		} else {
			fmt.Fprintf(os.Stderr, "engine %s (transactions %v, streams %v)\n", e.Name, e.Transactions, e.Streams)
		}
		engines = append(engines, e)
	}
	return nil
}

func (e *Engine) open(ctx context.Context) (err error) {
	if e.Deployment, err = e.Start(ctx); err != nil {
		return err
	}
	if e.client, err = engine.Client(e.URI); err != nil {
		return errors.Join(err, e.Close())
	}
	var hello struct {
		SetName string `bson:"setName"`
		Msg     string `bson:"msg"`
	}
	err = e.client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	e.Streams = hello.SetName != ""
	e.Sharded = hello.Msg == "isdbgrid"
	e.Transactions = e.Streams || e.Sharded
	return err
}

func stopEngines() error {
	var errs []error
	for _, e := range engines {
		if e.client != nil {
			errs = append(errs, e.client.Disconnect(context.Background()), e.Close())
		}
	}
	return errors.Join(errs...)
}
