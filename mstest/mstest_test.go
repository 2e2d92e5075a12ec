package mstest_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/producer"
)

var number = model.NewType[int, int]("number")

// setUp makes a sender and a worker whose handler of numbers is h.
func setUp(t *testing.T, h func(context.Context, *consumer.Task[int]) (int, error)) (*mongo.Database, *producer.Producer, *consumer.Consumer) {
	t.Helper()
	db := mstest.DB(t)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	c, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c, number, h))
	return db, p, c
}

func TestADatabaseIsFreshAndDroppedAfterItsTest(t *testing.T) {
	first := mstest.DB(t)
	var name string
	t.Run("inner", func(t *testing.T) {
		db := mstest.DB(t)
		name = db.Name()
		require.NotEqual(t, first.Name(), name)
		_, err := db.Collection("things").InsertOne(t.Context(), bson.M{"_id": 1})
		require.NoError(t, err)
	})
	names, err := first.Client().ListDatabaseNames(t.Context(), bson.M{})
	require.NoError(t, err)
	require.NotContains(t, names, name)
}

func TestSentHoldsWhatWasSentOfThatTypeWhateverBecameOfIt(t *testing.T) {
	db, p, c := setUp(t, func(_ context.Context, task *consumer.Task[int]) (int, error) {
		if task.Args == 2 {
			return 0, consumer.Fatal(errors.New("two"))
		}
		return 0, nil
	})
	for n := range 3 {
		_, err := producer.Send(t.Context(), p, number, n, producer.Key(strconv.Itoa(n))) // order within a millisecond
		require.NoError(t, err)
	}
	_, err := producer.Send(t.Context(), p, model.NewType[int, int]("other"), 99)
	require.NoError(t, err)
	report := mstest.Drain(t, c)
	require.Equal(t, 2, report.Succeeded)
	require.Equal(t, 1, report.Failed)
	_, err = producer.Send(t.Context(), p, number, 3, producer.In(time.Hour))
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2, 3}, mstest.Sent(t, db, number))
}

func TestDrainLeavesWhatIsNotDueUnlessTimeIsSkipped(t *testing.T) {
	_, p, c := setUp(t, func(context.Context, *consumer.Task[int]) (int, error) { return 0, nil })
	_, err := producer.Send(t.Context(), p, number, 1, producer.In(30*24*time.Hour))
	require.NoError(t, err)
	require.Zero(t, mstest.Drain(t, c).Executions)
	report := mstest.Drain(t, c, mstest.SkipTime())
	require.Equal(t, 1, report.Succeeded)
	require.InDelta(t, 30*24*time.Hour, report.Skipped, float64(time.Hour))
}

func TestDrainFailsTheTestWhenAHandlerTakesTooLong(t *testing.T) {
	_, p, c := setUp(t, func(ctx context.Context, _ *consumer.Task[int]) (int, error) {
		<-ctx.Done()
		return 0, context.Cause(ctx)
	})
	_, err := producer.Send(t.Context(), p, number, 1)
	require.NoError(t, err)
	var verdict recording
	verdict.TB = t
	func() {
		defer func() { _ = recover() }() // what Fatalf of the recording does
		mstest.Drain(&verdict, c, mstest.Within(50*time.Millisecond))
	}()
	require.Contains(t, verdict.fatal, "it did not finish within 50ms")
}

func TestDrainFailsTheTestWhenAnOptionIsNil(t *testing.T) {
	_, _, c := setUp(t, func(context.Context, *consumer.Task[int]) (int, error) { return 0, nil })
	verdict := recording{TB: t}
	require.PanicsWithValue(t, "draining the tasks: options[%d] is nil", func() { mstest.Drain(&verdict, c, mstest.SkipTime(), nil) })
}

// recording is a test that notes that it has failed instead of failing.
type recording struct {
	testing.TB
	fatal string
}

func (r *recording) Helper() {}
func (r *recording) Fatalf(format string, args ...any) {
	for _, a := range args {
		if err, ok := a.(error); ok {
			r.fatal = err.Error()
		}
	}
	panic(format)
}
