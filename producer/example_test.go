package producer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

type WelcomeArgs struct {
	User string `json:"user"`
}

// Welcome is shared by those who send and those who handle. Its result is a text.
var Welcome = model.NewType[WelcomeArgs, string]("email.welcome")

var ctx = context.Background()

// must is what a program does with an error that it does not expect.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// open makes a producer of an empty database.
func open() (*producer.Producer, *mongo.Database) {
	db := testdb.Example()
	return must(producer.New(producer.Config{Database: db})), db
}

// work runs the due tasks of a type until none is left.
func work[A, R any](db *mongo.Database, t model.Type[A, R], h func(context.Context, *consumer.Task[A]) (R, error)) {
	c := must(consumer.New(consumer.Config{Database: db}))
	if err := consumer.Handle(c, t, h); err != nil {
		panic(err)
	}
	must(c.Drain(ctx, false))
}

func greet(_ context.Context, t *consumer.Task[WelcomeArgs]) (string, error) {
	if t.Args.User == "" {
		return "", consumer.Fatal(errors.New("nobody to greet"))
	}
	return "hello " + t.Args.User, nil
}

// A user and the task that greets them are stored together, or neither is.
func Example_transaction() {
	p, db := open()
	defer p.Close(ctx)
	register := func(user string, fail error) error {
		session := must(db.Client().StartSession())
		defer session.EndSession(ctx)
		_, err := session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			if _, err := db.Collection("users").InsertOne(ctx, bson.D{{Key: "_id", Value: user}}); err != nil {
				return nil, err
			}
			if _, err := producer.Send(ctx, p, Welcome, WelcomeArgs{User: user}, producer.Key(user)); err != nil {
				return nil, err
			}
			return nil, fail
		})
		return err
	}
	fmt.Println(register("ann", nil))
	fmt.Println(register("bob", errors.New("bob has changed his mind")))

	fmt.Println(must(p.Get(ctx, model.TaskID("", Welcome.Name(), "ann"))).Status)
	_, err := p.Get(ctx, model.TaskID("", Welcome.Name(), "bob"))
	fmt.Println(errors.Is(err, model.ErrNotFound))
	// Output:
	// <nil>
	// bob has changed his mind
	// New
	// true
}

// A key is stored once, however often it is sent.
func ExampleSend() {
	p, _ := open()
	defer p.Close(ctx)
	for range 2 {
		sent, err := producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"},
			producer.Key("ann"), producer.In(time.Minute), producer.Priority(9))
		fmt.Println(sent.ID, sent.Created, err)
	}
	// Output:
	// -/email.welcome/ann true <nil>
	// -/email.welcome/ann false <nil>
}

func ExampleSendMany() {
	p, _ := open()
	defer p.Close(ctx)
	items := []producer.Item[WelcomeArgs]{
		{Args: WelcomeArgs{User: "ann"}, Options: []producer.Option{producer.Key("ann")}},
		{Args: WelcomeArgs{User: "bob"}, Options: []producer.Option{producer.Key("bob"), producer.Priority(10)}},
	}
	_, err := producer.SendMany(ctx, p, Welcome, items) // all are checked before any is written
	var many *producer.ManyError
	if errors.As(err, &many) {
		fmt.Println(many.Failed[1])
	}

	items[1].Options = []producer.Option{producer.Key("bob"), producer.Priority(9)}
	for _, sent := range must(producer.SendMany(ctx, p, Welcome, items)) {
		fmt.Println(sent.ID, sent.Created)
	}
	// Output:
	// priority is 10; want 0 to 9, 9 runs first
	// -/email.welcome/ann true
	// -/email.welcome/bob true
}

func ExampleAwait() {
	p, db := open()
	defer p.Close(ctx)
	good := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}))
	bad := must(producer.Send(ctx, p, Welcome, WelcomeArgs{}))
	work(db, Welcome, greet) // some other process, mostly

	fmt.Println(producer.Await(ctx, p, Welcome, good))
	_, err := producer.Await(ctx, p, Welcome, bad)
	var failed *model.TaskError
	if errors.As(err, &failed) {
		fmt.Println(failed.Status, failed.Info)
	}
	// Output:
	// hello ann <nil>
	// Failure nobody to greet
}

// The type and the arguments are known as texts only.
func ExampleProducer_SendJSON() {
	p, _ := open()
	defer p.Close(ctx)
	sent := must(p.SendJSON(ctx, "email.welcome", json.RawMessage(`{"user": "ann"}`), producer.Key("ann")))
	fmt.Println(sent.ID, sent.Status)
	// Output: -/email.welcome/ann New
}

func ExampleProducer_SendManyJSON() {
	p, _ := open()
	defer p.Close(ctx)
	for _, sent := range must(p.SendManyJSON(ctx, []producer.JSONItem{
		{Type: "email.welcome", Args: json.RawMessage(`{"user": "ann"}`), Options: []producer.Option{producer.Key("ann")}},
		{Type: "email.digest", Options: []producer.Option{producer.Key("2026-01-31")}},
	})) {
		fmt.Println(sent.ID)
	}
	// Output:
	// -/email.welcome/ann
	// -/email.digest/2026-01-31
}

// AwaitTask returns the task however it ended.
func ExampleProducer_AwaitTask() {
	p, db := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{}))
	work(db, Welcome, greet)
	task := must(p.AwaitTask(ctx, sent))
	fmt.Println(task.Status, task.ErrorInfo)
	// Output: Failure nobody to greet
}

func ExampleProducer_Get() {
	p, _ := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.Creator("web")))
	task := must(p.Get(ctx, sent.ID))
	fmt.Println(task.Status, task.Creator, task.Priority)
	// Output: New web 5
}

func ExampleProducer_Update() {
	p, _ := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.Creator("web")))
	task := must(p.Update(ctx, sent.ID, producer.Priority(9), producer.Args(WelcomeArgs{User: "bob"})))
	fmt.Println(task.Priority, task.Creator)
	// Output: 9 web
}

func ExampleProducer_Cancel() {
	p, _ := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}))
	task := must(p.Cancel(ctx, sent.ID, "ann has left"))
	fmt.Println(task.Status, task.Remark)
	// Output: Cancelled ann has left
}

// A task that failed begins a new life; one that succeeded is left alone.
func ExampleProducer_Retry() {
	p, db := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{}, producer.Key("k")))
	work(db, Welcome, greet)
	must(p.Retry(ctx, sent.ID, "the handler was mended"))
	work(db, Welcome, func(context.Context, *consumer.Task[WelcomeArgs]) (string, error) { return "hello", nil })
	task := must(p.Get(ctx, sent.ID))
	fmt.Println(task.Status, task.Generation > sent.Generation)

	_, err := p.Retry(ctx, sent.ID, "")
	var refused *model.RefusedError
	fmt.Println(errors.As(err, &refused))
	// Output:
	// Success true
	// true
}

// The steps before the named one stay done.
func ExampleProducer_RetryFrom() {
	p, db := open()
	defer p.Close(ctx)
	steps := func(ctx context.Context, t *consumer.Task[WelcomeArgs]) (string, error) {
		for _, name := range []string{"render", "send", "log"} {
			if _, err := consumer.Step(ctx, name, func(context.Context) (bool, error) { fmt.Println(name); return true, nil }); err != nil {
				return "", err
			}
		}
		return "", consumer.Fatal(errors.New("the log is full"))
	}
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}))
	work(db, Welcome, steps)
	must(p.RetryFrom(ctx, sent.ID, "log", "there is room again"))
	work(db, Welcome, steps)
	// Output:
	// render
	// send
	// log
	// log
}

// A task whose budget is spent waits for a person.
func ExampleProducer_Resolve() {
	p, db := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{}, producer.NeedManual(true)))
	work(db, Welcome, greet)
	fmt.Println(must(p.Get(ctx, sent.ID)).Status)
	task := must(p.Resolve(ctx, sent.ID, "greeted by telephone"))
	fmt.Println(task.Status, task.Remark)
	// Output:
	// Pending
	// ManuallyProcessed greeted by telephone
}

func ExampleProducer_Release() {
	p, _ := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.Held()))
	fmt.Println(sent.Status)
	fmt.Println(must(p.Release(ctx, sent.ID)).Status)
	// Output:
	// Wait
	// New
}

// A handler gives its handle to somebody who answers later, and leaves.
func ExampleProducer_Complete() {
	p, db := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}))
	var handle string
	work(db, Welcome, func(_ context.Context, t *consumer.Task[WelcomeArgs]) (string, error) {
		handle = t.Handle
		return "", consumer.Park(t.Now().Add(time.Hour))
	})
	task := must(p.Complete(ctx, handle, "hello from outside"))
	fmt.Println(task.Status)
	fmt.Println(producer.Await(ctx, p, Welcome, sent))
	// Output:
	// Success
	// hello from outside <nil>
}

func ExampleProducer_Fail() {
	p, db := open()
	defer p.Close(ctx)
	must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}))
	var handle string
	work(db, Welcome, func(_ context.Context, t *consumer.Task[WelcomeArgs]) (string, error) {
		handle = t.Handle
		return "", consumer.Park(t.Now().Add(time.Hour))
	})
	task := must(p.Fail(ctx, handle, "the address is unknown", producer.Failure{Fatal: true}))
	fmt.Println(task.Status, task.ErrorInfo)

	_, err := p.Complete(ctx, handle, "too late")
	fmt.Println(errors.Is(err, model.ErrFenced))
	// Output:
	// Failure the address is unknown
	// true
}

// What happens to tasks, as it happens. A later subscription goes on at the token.
func ExampleProducer_Subscribe() {
	p, _ := open()
	defer p.Close(ctx)
	events := must(p.Subscribe(ctx, producer.EventFilter{Types: []string{Welcome.Name()}}))
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.Key("ann")))
	e := must(events.Next(ctx))
	fmt.Println(e.Kind, e.Key)
	token := events.Token()
	events.Close(ctx)

	must(p.Cancel(ctx, sent.ID, "ann has left"))
	later := must(p.Subscribe(ctx, producer.EventFilter{After: token}))
	defer later.Close(ctx)
	e = must(later.Next(ctx))
	fmt.Println(e.Kind, e.Status, e.Reason)
	// Output:
	// sent ann
	// ended Cancelled ann has left
}

func ExampleSubscription_All() {
	p, _ := open()
	defer p.Close(ctx)
	events := must(p.Subscribe(ctx, producer.EventFilter{Kinds: []model.EventKind{model.EventSent}}))
	for _, user := range []string{"ann", "bob"} {
		must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: user}, producer.Key(user)))
	}
	for e, err := range events.All(ctx) {
		if err != nil {
			fmt.Println(errors.Is(err, producer.ErrClosed))
			break
		}
		fmt.Println(e.Key)
		if e.Key == "bob" {
			events.Close(ctx)
		}
	}
	// Output:
	// ann
	// bob
	// true
}

// A send is checked without a database.
func ExampleConfig_Check() {
	err := producer.Config{}.Check("email.welcome", WelcomeArgs{User: "ann"}, producer.Priority(10), producer.Key(""))
	fmt.Println(errors.Is(err, model.ErrInvalid))
	fmt.Println(producer.Config{}.Check("email.welcome", WelcomeArgs{User: "ann"}, producer.Priority(9)))
	// Output:
	// true
	// <nil>
}

// Middleware is around every send; it may change what is sent.
func ExampleMiddleware() {
	label := func(next producer.SendFunc) producer.SendFunc {
		return func(ctx context.Context, drafts []*producer.Draft) ([]producer.Sent, error) {
			for _, d := range drafts {
				d.Creator = "web"
			}
			return next(ctx, drafts)
		}
	}
	p := must(producer.New(producer.Config{Database: testdb.Example(), Middleware: []producer.Middleware{label}}))
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}))
	fmt.Println(must(p.Get(ctx, sent.ID)).Creator)
	// Output: web
}
