package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

type Order struct {
	Item string `json:"item"`
}

// Pack is shared by those who send and those who handle. Its result is the number of a parcel.
var Pack = model.NewType[Order, int]("shop.pack")

var ctx = context.Background()

// must is what a program does with an error that it does not expect.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// open makes a producer and a worker of an empty database.
func open() (*producer.Producer, *consumer.Consumer) {
	db := testdb.Example()
	return must(producer.New(producer.Config{Database: db})), worker(db)
}

func worker(db *mongo.Database) *consumer.Consumer {
	return must(consumer.New(consumer.Config{Database: db, WorkerID: "w1"}))
}

// handle registers a handler that returns no result but an error.
func handle(c *consumer.Consumer, h func(context.Context, *consumer.Task[Order]) error, opts ...consumer.HandleOption) {
	err := consumer.Handle(c, Pack, func(ctx context.Context, t *consumer.Task[Order]) (int, error) { return 0, h(ctx, t) }, opts...)
	if err != nil {
		panic(err)
	}
}

// after sends an order, has the handler run, and shows the task as it is then.
func after(h func(context.Context, *consumer.Task[Order]) error, opts ...producer.Option) {
	p, c := open()
	defer p.Close(ctx)
	handle(c, h)
	sent := must(producer.Send(ctx, p, Pack, Order{Item: "lamp"}, opts...))
	must(c.Drain(ctx, false))
	t := must(p.Get(ctx, sent.ID))
	fmt.Printf("%s, %d errors, %q\n", t.Status, t.ErrorCount, t.ErrorInfo+t.Remark)
}

// Everything but the database has a default.
func ExampleNew() {
	c, err := consumer.New(consumer.Config{Database: testdb.Example(), WorkerID: "w1", Concurrency: 10})
	if err != nil {
		panic(err)
	}
	fmt.Println(c.WorkerID())
	// Output: w1
}

// A service registers its handlers and runs the consumer until it is asked to stop.
func ExampleConsumer_Run() {
	p, c := open()
	defer p.Close(ctx)
	run, stop := context.WithCancel(ctx)
	handle(c, func(_ context.Context, t *consumer.Task[Order]) error {
		fmt.Println("packing", t.Args.Item)
		stop() // in a service: the signal that ends it
		return nil
	})
	must(producer.Send(ctx, p, Pack, Order{Item: "lamp"}))
	fmt.Println(c.Run(run))
	// Output:
	// packing lamp
	// <nil>
}

func ExampleConsumer_Stop() {
	p, c := open()
	defer p.Close(ctx)
	packed := make(chan string)
	handle(c, func(_ context.Context, t *consumer.Task[Order]) error { packed <- t.Args.Item; return nil })
	must(producer.Send(ctx, p, Pack, Order{Item: "lamp"}))
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	fmt.Println(<-packed)

	fmt.Println(c.Stop(ctx)) // waits for handlers, at most for the ShutdownTimeout
	fmt.Println(<-ended)
	// Output:
	// lamp
	// <nil>
	// <nil>
}

func ExampleHandle() {
	p, c := open()
	defer p.Close(ctx)
	err := consumer.Handle(c, Pack, func(_ context.Context, t *consumer.Task[Order]) (int, error) {
		if t.Args.Item == "" {
			return 0, consumer.Fatal(errors.New("nothing to pack"))
		}
		return 17, nil
	}, consumer.MaxConcurrency(4), consumer.Defaults(model.Options{ExecutionTimeout: time.Minute}))
	if err != nil {
		panic(err)
	}
	sent := must(producer.Send(ctx, p, Pack, Order{Item: "lamp"}))
	fmt.Println(must(c.Drain(ctx, false)).Succeeded)
	fmt.Println(producer.Await(ctx, p, Pack, sent))
	// Output:
	// 1
	// 17 <nil>
}

// One handler for all types of a category, also for those that are made later.
func ExampleHandleCategory() {
	p, c := open()
	defer p.Close(ctx)
	must(admin.New(p).PutType(ctx, model.TaskType{Code: "media.resize", Category: "media"}))
	err := consumer.HandleCategory(c, "media", func(_ context.Context, x *consumer.Execution) (any, error) {
		fmt.Println(x.Type, string(x.RawArgs()))
		return nil, nil
	})
	if err != nil {
		panic(err)
	}
	must(p.SendJSON(ctx, "media.resize", json.RawMessage(`{"width":640}`)))
	must(c.Drain(ctx, false))
	// Output: media.resize {"width":640}
}

// However many slots the worker has, one order is packed at a time.
func ExampleMaxConcurrency() {
	p, c := open()
	defer p.Close(ctx)
	table := make(chan struct{}, 1) // has room for one
	handle(c, func(context.Context, *consumer.Task[Order]) error {
		select {
		case table <- struct{}{}:
		default:
			fmt.Println("two at once")
		}
		<-table
		return nil
	}, consumer.MaxConcurrency(1))
	for range 10 {
		must(producer.Send(ctx, p, Pack, Order{Item: "lamp"}))
	}
	fmt.Println(must(c.Drain(ctx, false)).Succeeded)
	// Output: 10
}

// Defaults are those of a handler's tasks where neither task nor type says anything.
func ExampleDefaults() {
	p, c := open()
	defer p.Close(ctx)
	none := consumer.Defaults(model.Options{Retry: &model.Retry{Strategy: model.RetryNone}})
	handle(c, func(context.Context, *consumer.Task[Order]) error { return errors.New("no box") }, none)
	must(producer.Send(ctx, p, Pack, Order{Item: "lamp"}))
	fmt.Println(must(c.Drain(ctx, false)).Failed)
	// Output: 1
}

// Middleware is around every handler.
func ExampleMiddleware() {
	logged := func(next consumer.Handler) consumer.Handler {
		return func(ctx context.Context, x *consumer.Execution) (any, error) {
			result, err := next(ctx, x)
			fmt.Println(x.Key, result, err)
			return result, err
		}
	}
	db := testdb.Example()
	p := must(producer.New(producer.Config{Database: db}))
	defer p.Close(ctx)
	c := must(consumer.New(consumer.Config{Database: db, Middleware: []consumer.Middleware{logged}}))
	handle(c, func(context.Context, *consumer.Task[Order]) error { return nil })
	must(producer.Send(ctx, p, Pack, Order{Item: "lamp"}, producer.Key("order-1")))
	must(c.Drain(ctx, false))
	// Output: order-1 0 <nil>
}

// A step that is done is not done again when the task is retried.
func ExampleStep() {
	p, c := open()
	defer p.Close(ctx)
	handle(c, func(ctx context.Context, t *consumer.Task[Order]) error {
		box, err := consumer.Step(ctx, "find-box", func(context.Context) (string, error) {
			fmt.Println("looking for a box")
			return "small", nil
		})
		if err != nil {
			return err
		}
		if t.Attempt == 1 {
			return errors.New("the tape is empty")
		}
		fmt.Println("packed in a", box, "box")
		return nil
	})
	must(producer.Send(ctx, p, Pack, Order{Item: "lamp"}))
	must(c.Drain(ctx, true)) // true: the delay before the retry takes no time
	// Output:
	// looking for a box
	// packed in a small box
}

// Drain works until nothing is due, for a batch job or a test.
func ExampleConsumer_Drain() {
	p, c := open()
	defer p.Close(ctx)
	handle(c, func(_ context.Context, t *consumer.Task[Order]) error {
		if t.Args.Item == "" {
			return consumer.Fatal(errors.New("nothing to pack"))
		}
		return nil
	})
	for _, item := range []string{"lamp", "", "chair"} {
		must(producer.Send(ctx, p, Pack, Order{Item: item}))
	}
	did := must(c.Drain(ctx, false))
	fmt.Println(did.Succeeded, did.Failed)
	// Output: 2 1
}

func ExampleConsumer_Stats() {
	p, c := open()
	defer p.Close(ctx)
	handle(c, func(context.Context, *consumer.Task[Order]) error { return nil })
	must(producer.Send(ctx, p, Pack, Order{Item: "lamp"}))
	must(c.Drain(ctx, false))
	s := c.Stats()
	fmt.Println(s.ClaimsWon, s.Finished, s.Fenced, s.Held)
	// Output: 1 1 0 0
}

func ExampleFatal() {
	after(func(context.Context, *consumer.Task[Order]) error {
		return consumer.Fatal(errors.New("no such item"))
	})
	// Output: Failure, 1 errors, "no such item"
}

// In a step of a plan, PlanError also stops the plan until a person resets it.
func ExamplePlanError() {
	after(func(context.Context, *consumer.Task[Order]) error {
		return consumer.PlanError(errors.New("the plan names no such item"))
	})
	// Output: Failure, 1 errors, "the plan names no such item"
}

func ExampleRetryAfter() {
	after(func(context.Context, *consumer.Task[Order]) error {
		return consumer.RetryAfter(time.Hour, errors.New("the shop is closed"))
	})
	// Output: Error, 1 errors, "the shop is closed"
}

func ExampleTimedOut() {
	after(func(context.Context, *consumer.Task[Order]) error {
		return consumer.TimedOut(errors.New("the carrier does not answer"))
	}, producer.Retry(model.Retry{Strategy: model.RetryFixed, Interval: time.Hour}))
	// Output: Error, 1 errors, "the carrier does not answer"
}

func ExampleSnooze() {
	after(func(context.Context, *consumer.Task[Order]) error {
		return consumer.Snooze(time.Hour) // not an error: it is tried again in an hour
	})
	// Output: New, 0 errors, ""
}

func ExampleRelease() {
	times := 0
	after(func(context.Context, *consumer.Task[Order]) error {
		if times++; times < 3 {
			return consumer.Release() // for another worker, or for this one again
		}
		return nil
	})
	// Output: Success, 0 errors, ""
}

func ExampleCancel() {
	after(func(context.Context, *consumer.Task[Order]) error {
		return consumer.Cancel("the order was withdrawn")
	})
	// Output: Cancelled, 0 errors, "the order was withdrawn"
}

// The execution stays open without a handler until somebody completes it by its handle, see
// producer.Producer.Complete.
func ExamplePark() {
	after(func(_ context.Context, t *consumer.Task[Order]) error {
		return consumer.Park(t.Now().Add(time.Hour))
	})
	// Output: Executing, 0 errors, ""
}

// This worker has no printer, another may have one: the task is given back for a while.
func ExampleNotHere() {
	after(func(context.Context, *consumer.Task[Order]) error {
		return consumer.NotHere(errors.New("there is no printer here"))
	})
	// Output: New, 0 errors, "there is no printer here"
}
