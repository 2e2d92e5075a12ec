package producer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// workAs runs what is due for a worker, and prints whose tasks it ran.
func workAs(db *mongo.Database, worker string) {
	c := must(consumer.New(consumer.Config{Database: db, WorkerID: worker}))
	err := consumer.Handle(c, Welcome, func(_ context.Context, t *consumer.Task[WelcomeArgs]) (string, error) {
		fmt.Println(worker, "greets", t.Args.User)
		return "", nil
	})
	if err != nil {
		panic(err)
	}
	must(c.Drain(ctx, false))
}

// A process has one producer, and closes it when it ends.
func ExampleNew() {
	p, err := producer.New(producer.Config{Database: testdb.Example(), Tenant: "acme"})
	if err != nil {
		panic(err)
	}
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.Key("ann")))
	fmt.Println(sent.ID)
	fmt.Println(p.Close(ctx))
	// Output:
	// acme/email.welcome/ann
	// <nil>
}

func ExampleProducer_Close() {
	p, _ := open()
	fmt.Println(p.Close(ctx)) // waits for sends under way
	_, err := producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"})
	fmt.Println(errors.Is(err, producer.ErrClosed))
	// Output:
	// <nil>
	// true
}

// The key makes a repeated send harmless. Without one each send is a task of its own.
func ExampleKey() {
	p, _ := open()
	defer p.Close(ctx)
	for range 2 {
		keyed := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.Key("ann")))
		free := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "bob"}))
		fmt.Println(keyed.Created, free.Created)
	}
	// Output:
	// true true
	// false true
}

func ExampleIn() {
	p, db := open()
	defer p.Close(ctx)
	must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.In(time.Hour)))
	must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "bob"}, producer.At(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))))
	workAs(db, "w1")
	// Output: w1 greets bob
}

// Each of two workers must succeed.
func ExampleConcurrentWorkers() {
	p, db := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.ConcurrentWorkers(2)))
	for _, worker := range []string{"w1", "w1", "w2"} {
		workAs(db, worker)
	}
	fmt.Println(must(p.Get(ctx, sent.ID)).Status)
	// Output:
	// w1 greets ann
	// w2 greets ann
	// Success
}

func ExampleWorkers() {
	p, db := open()
	defer p.Close(ctx)
	must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.Workers("w2", "w3")))
	workAs(db, "w1")
	workAs(db, "w2")
	// Output: w2 greets ann
}

// AnyWorker takes back what Workers said.
func ExampleAnyWorker() {
	p, db := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.Workers("w2")))
	must(p.Update(ctx, sent.ID, producer.AnyWorker()))
	workAs(db, "w1")
	// Output: w1 greets ann
}

// What options say is kept with the task.
func ExampleLease() {
	p, _ := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"},
		producer.Lease(5*time.Second, 20*time.Second), producer.Timeout(time.Minute)))
	o := must(p.Get(ctx, sent.ID)).Options
	fmt.Println(o.PingInterval, o.WorkerTimeout, o.ExecutionTimeout)
	// Output: 5s 20s 1m0s
}

// A task that failed once for good: no retry, and nobody decides.
func ExampleRetry() {
	p, db := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.Retry(model.Retry{Strategy: model.RetryNone})))
	work(db, Welcome, func(context.Context, *consumer.Task[WelcomeArgs]) (string, error) { return "", errors.New("no paper") })
	task := must(p.Get(ctx, sent.ID))
	fmt.Println(task.Status, task.ErrorInfo)
	// Output: Failure no paper
}

// Of the tasks with one limit key one runs at a time.
func ExampleLimitKey() {
	p, db := open()
	defer p.Close(ctx)
	for range 10 {
		must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.LimitKey("ann")))
	}
	running := make(chan struct{}, 1) // has room for one
	work(db, Welcome, func(context.Context, *consumer.Task[WelcomeArgs]) (string, error) {
		select {
		case running <- struct{}{}:
		default:
			fmt.Println("two at once")
		}
		<-running
		return "", nil
	})
	fmt.Println("done")
	// Output: done
}

// Nobody starts the task in time: it is Cancelled.
func ExampleExpiresIn() {
	p, db := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.In(time.Hour), producer.ExpiresIn(time.Minute)))
	c := must(consumer.New(consumer.Config{Database: db}))
	if err := consumer.Handle(c, Welcome, greet); err != nil {
		panic(err)
	}
	must(c.Drain(ctx, true)) // true: time is skipped
	fmt.Println(must(p.Get(ctx, sent.ID)).Status)
	// Output: Cancelled
}

// What is noted stays although the transaction is rolled back.
func ExampleOutsideTransaction() {
	p, db := open()
	defer p.Close(ctx)
	session := must(db.Client().StartSession())
	defer session.EndSession(ctx)
	var inside, outside producer.Sent
	_, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		inside = must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}))
		outside = must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "bob"}, producer.OutsideTransaction()))
		return nil, errors.New("rolled back")
	})
	fmt.Println(err)
	_, err = p.Get(ctx, inside.ID)
	fmt.Println(errors.Is(err, model.ErrNotFound), must(p.Get(ctx, outside.ID)).Status)
	// Output:
	// rolled back
	// true New
}

// The text names the first failed items, by their index.
func ExampleManyError_Error() {
	fmt.Println(&producer.ManyError{Total: 9, Failed: map[int]error{7: errors.New("no key"), 2: errors.New("no type")}})
	// Output: 2 of 9 tasks failed: item 2: no type; item 7: no key
}

// errors.Is and errors.As look into the errors of all items.
func ExampleManyError_Unwrap() {
	p, _ := open()
	defer p.Close(ctx)
	_, err := producer.SendMany(ctx, p, Welcome, []producer.Item[WelcomeArgs]{{}, {Options: []producer.Option{producer.Key("")}}})
	fmt.Println(errors.Is(err, model.ErrInvalid))
	// Output: true
}

// Whoever stops listening keeps the token, and misses nothing when it goes on there.
func ExampleSubscription_Token() {
	p, _ := open()
	defer p.Close(ctx)
	events := must(p.Subscribe(ctx, producer.EventFilter{}))
	token := events.Token()
	events.Close(ctx)
	must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.Key("ann")))

	later := must(p.Subscribe(ctx, producer.EventFilter{After: token}))
	defer later.Close(ctx)
	fmt.Println(must(later.Next(ctx)).Key)
	// Output: ann
}

// Each call of Next is one event.
func ExampleSubscription_Next() {
	p, _ := open()
	defer p.Close(ctx)
	events := must(p.Subscribe(ctx, producer.EventFilter{}))
	defer events.Close(ctx)
	must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.Key("ann")))
	e, err := events.Next(ctx)
	fmt.Println(e.Kind, e.Key, e.Token == events.Token(), err)
	// Output: sent ann true <nil>
}

// A subscription that is closed gives its place to another.
func ExampleSubscription_Close() {
	p, _ := open()
	defer p.Close(ctx)
	events := must(p.Subscribe(ctx, producer.EventFilter{}))
	fmt.Println(events.Close(ctx))
	_, err := events.Next(ctx)
	fmt.Println(errors.Is(err, producer.ErrClosed))
	// Output:
	// <nil>
	// true
}

// Keys of different tenants do not collide.
func ExampleTenant() {
	p, _ := open()
	defer p.Close(ctx)
	for _, tenant := range []string{"acme", "bolt"} {
		sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.Key("ann"), producer.Tenant(tenant)))
		fmt.Println(sent.ID, sent.Created)
	}
	// Output:
	// acme/email.welcome/ann true
	// bolt/email.welcome/ann true
}

func ExampleCategory() {
	p, _ := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.Category("onboarding")))
	fmt.Println(must(p.Get(ctx, sent.ID)).Category)
	// Output: onboarding
}

// A task that kills its process must not do so again, and a worker that fails twice must not retry it.
func ExampleMaxLapses() {
	p, _ := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.MaxLapses(0), producer.MaxErrorsPerWorker(2)))
	options := must(p.Get(ctx, sent.ID)).Options
	fmt.Println(*options.MaxLapses, options.MaxErrorsPerWorker)
	// Output: 0 2
}

// The key is free again a month after the task has ended.
func ExampleRetention() {
	p, _ := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.Key("ann"), producer.Retention(30*24*time.Hour)))
	fmt.Println(must(p.Get(ctx, sent.ID)).Options.Retention)
	// Output: 720h0m0s
}

// The receiver is called when the task has ended as Failure; package callback verifies the request.
func ExampleCallback() {
	p, _ := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.Callback(model.Callback{
		Error: &model.CallbackTarget{URL: "https://shop.example/failed"},
	})))
	fmt.Println(must(p.Get(ctx, sent.ID)).Options.Callback.Error.URL)
	// Output: https://shop.example/failed
}

// If no worker has started the task by then, it is cancelled.
func ExampleExpiresAt() {
	p, db := open()
	defer p.Close(ctx)
	yesterday := time.Now().Add(-24 * time.Hour)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.ExpiresAt(yesterday)))
	workAs(db, "w1") // greets nobody
	fmt.Println(must(p.Get(ctx, sent.ID)).Status)
	// Output: Cancelled
}

// The update is refused if anything has changed the task since it was read.
func ExampleIfRev() {
	p, _ := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}))
	read := must(p.Get(ctx, sent.ID))
	must(p.Update(ctx, sent.ID, producer.Priority(9), producer.IfRev(read.Rev)))
	_, err := p.Update(ctx, sent.ID, producer.Priority(1), producer.IfRev(read.Rev))
	fmt.Println(errors.Is(err, model.ErrChanged))
	// Output: true
}

// What a second send of a key does.
func ExampleOnExisting() {
	p, db := open()
	defer p.Close(ctx)
	must(producer.Send(ctx, p, Welcome, WelcomeArgs{}, producer.Key("ann")))
	work(db, Welcome, greet)
	again := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.Key("ann"), producer.OnExisting(model.RestartFailed)))
	fmt.Println(again.Created, again.Status)
	// Output: true New
}

func ExampleOption() {
	for _, o := range []producer.Option{
		producer.Key("order-7"),
		producer.In(90 * time.Second),
		producer.Retry(model.Retry{Strategy: model.RetryFixed, Interval: time.Minute}),
		producer.OnExisting(model.RestartFailed, model.UpdateArgs),
	} {
		fmt.Println(o)
	}
	// Output:
	// Key("order-7")
	// In(1m30s)
	// Retry(fixed, interval 1m0s)
	// OnExisting(RestartFailed, UpdateArgs)
}
