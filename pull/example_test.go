package pull_test

import (
	"context"
	"fmt"
	"time"

	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
)

var Resize = model.NewType[string, int]("image.resize")

var ctx = context.Background()

// must is what a program does with an error that it does not expect.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// open makes a producer of an empty database, and the puller that serves workers in other
// languages.
func open() (*producer.Producer, *pull.Puller) {
	p := must(producer.New(producer.Config{Database: testdb.Example()}))
	return p, pull.New(p)
}

// fetched sends a task and fetches it for a worker.
func fetched(p *producer.Producer, puller *pull.Puller) pull.Fetched {
	must(producer.Send(ctx, p, Resize, "lamp.png"))
	return must(puller.Fetch(ctx, pull.FetchRequest{WorkerID: "python-1", Types: []string{"image.resize"}}))[0]
}

// A puller works by a producer's connection, until that is closed.
func ExampleNew() {
	p := must(producer.New(producer.Config{Database: testdb.Example()}))
	defer p.Close(ctx)
	puller := pull.New(p)
	fmt.Println(puller.Fetch(ctx, pull.FetchRequest{WorkerID: "python-1", Types: []string{"image.resize"}}))
	// Output: [] <nil>
}

// What a worker asks for, and how it reports the end.
func ExamplePuller_Fetch() {
	p, puller := open()
	defer p.Close(ctx)
	sent := must(producer.Send(ctx, p, Resize, "lamp.png"))
	for _, x := range must(puller.Fetch(ctx, pull.FetchRequest{
		WorkerID: "python-1", Types: []string{"image.resize"}, Max: 10, Lease: time.Minute,
	})) {
		fmt.Println(x.Task.Type, string(x.Args), x.Task.Attempt)
		must(puller.Complete(ctx, x.Handle, 640))
	}
	fmt.Println(producer.Await(ctx, p, Resize, sent))
	// Output:
	// image.resize "lamp.png" 1
	// 640 <nil>
}

// A worker pings well before its lease ends, and hears that the task is being cancelled.
func ExamplePuller_Ping() {
	p, puller := open()
	defer p.Close(ctx)
	x := fetched(p, puller)
	fmt.Println(must(puller.Ping(ctx, x.Handle)).CancelRequested)
	must(p.Cancel(ctx, x.Task.ID, "the lamp is gone"))
	fmt.Println(must(puller.Ping(ctx, x.Handle)).CancelRequested)
	// Output:
	// false
	// true
}

func ExamplePuller_Complete() {
	p, puller := open()
	defer p.Close(ctx)
	x := fetched(p, puller)
	fmt.Println(must(puller.Complete(ctx, x.Handle, 640)).Status)
	fmt.Println(must(puller.Complete(ctx, x.Handle, 640)).Status) // a repetition is no error
	// Output:
	// Success
	// Success
}

func ExamplePuller_Fail() {
	p, puller := open()
	defer p.Close(ctx)
	x := fetched(p, puller)
	task := must(puller.Fail(ctx, x.Handle, "no such image", producer.Failure{RetryAfter: time.Hour}))
	fmt.Println(task.Status, task.ErrorCount, task.ErrorInfo)
	// Output: Error 1 no such image
}

// A worker that stops gives back what it holds: it costs nothing, and the next fetch finds it.
func ExamplePuller_GiveBack() {
	p, puller := open()
	defer p.Close(ctx)
	x := fetched(p, puller)
	task := must(puller.GiveBack(ctx, x.Handle, "shutdown"))
	fmt.Println(task.Status, task.ErrorCount)
	// Output: New 0
}
