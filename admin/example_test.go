package admin_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

var Mail = model.NewType[string, model.None]("mail")

var ctx = context.Background()

// must is what a program does with an error that it does not expect.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// open makes a producer of an empty database, and the admin.
func open() (*producer.Producer, *admin.Admin, *mongo.Database) {
	db := testdb.Example()
	p := must(producer.New(producer.Config{Database: db}))
	return p, admin.New(p), db
}

// send stores one mail to each receiver, by the receiver's name.
func send(p *producer.Producer, to ...string) {
	for _, name := range to {
		must(producer.Send(ctx, p, Mail, name, producer.Key(name)))
	}
}

// work sends all mails, but none to nobody, and none while the type is paused.
func work(db *mongo.Database) consumer.Drained {
	c := must(consumer.New(consumer.Config{Database: db, Callbacks: &consumer.CallbackConfig{}}))
	err := consumer.Handle(c, Mail, func(_ context.Context, t *consumer.Task[string]) (model.None, error) {
		if t.Args == "nobody" {
			return model.None{}, consumer.Fatal(errors.New("nobody has no address"))
		}
		return model.None{}, nil
	})
	if err != nil {
		panic(err)
	}
	return must(c.Drain(ctx, false))
}

// An admin works by a producer's connection, until that is closed.
func ExampleNew() {
	p := must(producer.New(producer.Config{Database: testdb.Example()}))
	defer p.Close(ctx)
	a := admin.New(p)
	fmt.Println(a.Count(ctx, admin.Filter{}))
	// Output: 0 <nil>
}

// What a type says holds for all its tasks. A change names the version that it saw.
func ExampleAdmin_PutType() {
	p, a, _ := open()
	defer p.Close(ctx)
	stored := must(a.PutType(ctx, model.TaskType{Code: "mail", Name: "E-mail", MaxRunning: 2}))

	stored.RateLimit = &model.RateLimit{Count: 100, Per: time.Second}
	changed := must(a.PutType(ctx, *stored))
	fmt.Println(changed.Version - stored.Version)

	stored.MaxRunning = 3
	_, err := a.PutType(ctx, *stored) // somebody else has changed it
	fmt.Println(errors.Is(err, model.ErrChanged))
	// Output:
	// 1
	// true
}

func ExampleAdmin_Type() {
	p, a, _ := open()
	defer p.Close(ctx)
	_, err := a.Type(ctx, "mail")
	fmt.Println(errors.Is(err, model.ErrNotFound))
	must(a.PutType(ctx, model.TaskType{Code: "mail", MaxRunning: 2}))
	fmt.Println(must(a.Type(ctx, "mail")).MaxRunning)
	// Output:
	// true
	// 2
}

func ExampleAdmin_Types() {
	p, a, _ := open()
	defer p.Close(ctx)
	must(a.PutType(ctx, model.TaskType{Code: "mail"}))
	must(a.PutType(ctx, model.TaskType{Code: "invoice"}))
	for _, t := range must(a.Types(ctx)) {
		fmt.Println(t.Code)
	}
	// Output:
	// invoice
	// mail
}

func ExampleAdmin_DeleteType() {
	p, a, _ := open()
	defer p.Close(ctx)
	stored := must(a.PutType(ctx, model.TaskType{Code: "mail"}))
	fmt.Println(a.DeleteType(ctx, "mail", stored.Version))
	fmt.Println(len(must(a.Types(ctx))))
	// Output:
	// <nil>
	// 0
}

// No task of a paused type begins; those that run go on.
func ExampleAdmin_Pause() {
	p, a, db := open()
	defer p.Close(ctx)
	send(p, "ann")
	fmt.Println(a.Pause(ctx, "mail"), work(db).Succeeded)
	fmt.Println(a.Resume(ctx, "mail"), work(db).Succeeded)
	// Output:
	// <nil> 0
	// <nil> 1
}

func ExampleAdmin_Resume() {
	p, a, _ := open()
	defer p.Close(ctx)
	fmt.Println(a.Pause(ctx, "mail", "invoice"))
	fmt.Println(a.Resume(ctx, "mail"))
	fmt.Println(a.Paused(ctx))
	// Output:
	// <nil>
	// <nil>
	// [invoice] false <nil>
}

func ExampleAdmin_PauseAll() {
	p, a, db := open()
	defer p.Close(ctx)
	send(p, "ann")
	fmt.Println(a.PauseAll(ctx), work(db).Succeeded)
	fmt.Println(a.ResumeAll(ctx), work(db).Succeeded)
	// Output:
	// <nil> 0
	// <nil> 1
}

// A pause of one type outlasts the resume of all.
func ExampleAdmin_ResumeAll() {
	p, a, _ := open()
	defer p.Close(ctx)
	fmt.Println(a.Pause(ctx, "mail"), a.PauseAll(ctx), a.ResumeAll(ctx))
	fmt.Println(a.Paused(ctx))
	// Output:
	// <nil> <nil> <nil>
	// [mail] false <nil>
}

func ExampleAdmin_Paused() {
	p, a, _ := open()
	defer p.Close(ctx)
	fmt.Println(a.Pause(ctx, "mail"))
	types, all, err := a.Paused(ctx)
	fmt.Println(types, all, err)
	// Output:
	// <nil>
	// [mail] false <nil>
}

// A page at a time, until there is no next one.
func ExampleAdmin_Find() {
	p, a, _ := open()
	defer p.Close(ctx)
	send(p, "ann", "bob", "cleo")
	filter := admin.Filter{Type: "mail", Statuses: []model.Status{model.StatusNew}}
	for token := ""; ; {
		page := must(a.Find(ctx, filter, 2, token))
		for _, t := range page.Tasks {
			fmt.Println(t.Key)
		}
		if token = page.Next; token == "" {
			break
		}
	}
	// Output:
	// ann
	// bob
	// cleo
}

func ExampleAdmin_Count() {
	p, a, _ := open()
	defer p.Close(ctx)
	send(p, "ann", "bob")
	fmt.Println(a.Count(ctx, admin.Filter{Type: "mail"}))
	// Output: 2 <nil>
}

func ExampleAdmin_Counts() {
	p, a, db := open()
	defer p.Close(ctx)
	send(p, "ann", "nobody")
	work(db)
	fmt.Println(a.Counts(ctx, admin.Filter{Type: "mail"}))
	// Output: map[mail:map[Failure:1 Success:1]] <nil>
}

// All lives of a key that are still stored, the newest first.
func ExampleAdmin_Lives() {
	p, a, db := open()
	defer p.Close(ctx)
	send(p, "nobody")
	work(db)
	id := model.TaskID("", "mail", "nobody")
	must(p.Retry(ctx, id, "somebody has that name now"))
	for _, life := range must(a.Lives(ctx, id)) {
		fmt.Println(life.Status)
	}
	// Output:
	// New
	// Failure
}

// One life of a key: this one failed, and was begun anew.
func ExampleAdmin_Get() {
	p, a, db := open()
	defer p.Close(ctx)
	first := must(producer.Send(ctx, p, Mail, "nobody"))
	work(db)
	must(p.Retry(ctx, first.ID, ""))
	fmt.Println(must(a.Get(ctx, first.ID, first.Generation)).Status)
	fmt.Println(must(a.Get(ctx, first.ID, 0)).Status) // 0 is the newest
	// Output:
	// Failure
	// New
}

func ExampleAdmin_Document() {
	p, a, _ := open()
	defer p.Close(ctx)
	send(p, "ann")
	doc := must(a.Document(ctx, model.TaskID("", "mail", "ann")))
	fmt.Println(doc.Lookup("status"), doc.Lookup("args"))
	// Output: "New" "ann"
}

func ExampleAdmin_SetHistoryRetention() {
	p, a, _ := open()
	defer p.Close(ctx)
	fmt.Println(a.SetHistoryRetention(ctx, 30*24*time.Hour))
	fmt.Println(a.HistoryRetention(ctx))
	// Output:
	// <nil>
	// 720h0m0s <nil>
}

// The default is 90 days.
func ExampleAdmin_HistoryRetention() {
	p, a, _ := open()
	defer p.Close(ctx)
	fmt.Println(a.HistoryRetention(ctx))
	// Output: 2160h0m0s <nil>
}

// The receiver has lost what it was told, and asks for it once more.
func ExampleAdmin_Redeliver() {
	p, a, db := open()
	defer p.Close(ctx)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL.Path)
	}))
	defer receiver.Close()
	told := producer.Callback(model.Callback{Success: &model.CallbackTarget{URL: receiver.URL + "/sent"}})
	sent := must(producer.Send(ctx, p, Mail, "ann", told))
	work(db)
	must(a.Redeliver(ctx, sent.ID, 0))
	work(db)
	// Output:
	// POST /sent
	// POST /sent
}
