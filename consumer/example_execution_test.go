package consumer_test

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/producer"
)

// What a failed attempt has saved, the next one finds.
func ExampleExecution_Checkpoint() {
	p, c := open()
	defer p.Close(ctx)
	handle(c, func(ctx context.Context, t *consumer.Task[Order]) error {
		page := 1
		if found, err := t.Restore(&page); err != nil {
			return err
		} else if found {
			fmt.Println("going on at page", page)
			return nil
		}
		if err := t.Checkpoint(ctx, 7); err != nil {
			return err
		}
		return errors.New("the printer is out of paper")
	})
	must(producer.Send(ctx, p, Pack, Order{Item: "lamp"}))
	must(c.Drain(ctx, true))
	// Output: going on at page 7
}

func ExampleExecution_Restore() {
	after(func(_ context.Context, t *consumer.Task[Order]) error {
		var page int
		found, err := t.Restore(&page)
		fmt.Println(found)
		return err
	})
	// Output:
	// false
	// Success, 0 errors, ""
}

func ExampleExecution_Progress() {
	p, c := open()
	defer p.Close(ctx)
	handle(c, func(ctx context.Context, t *consumer.Task[Order]) error { return t.Progress(ctx, 40, "wrapped") })
	sent := must(producer.Send(ctx, p, Pack, Order{Item: "lamp"}))
	must(c.Drain(ctx, false))
	task := must(p.Get(ctx, sent.ID))
	fmt.Println(task.Progress.Percent, task.Progress.Message)
	// Output: 40 wrapped
}

// The parcel and the end of the task are stored together, or neither is.
func ExampleExecution_CompleteIn() {
	db := testdb.Example()
	p := must(producer.New(producer.Config{Database: db}))
	defer p.Close(ctx)
	c := worker(db)
	handle(c, func(ctx context.Context, t *consumer.Task[Order]) error {
		session, err := db.Client().StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			if _, err := db.Collection("parcels").InsertOne(ctx, bson.D{{Key: "item", Value: t.Args.Item}}); err != nil {
				return nil, err
			}
			return nil, t.CompleteIn(ctx, 17)
		})
		return err
	})
	sent := must(producer.Send(ctx, p, Pack, Order{Item: "lamp"}))
	must(c.Drain(ctx, false))
	fmt.Println(producer.Await(ctx, p, Pack, sent))
	fmt.Println(must(db.Collection("parcels").CountDocuments(ctx, bson.D{})))
	// Output:
	// 17 <nil>
	// 1
}

// A handler reads what the rule that sent its task has for it.
func ExampleExecution_Ext() {
	db := testdb.Example()
	rules := must(periodic.New(periodic.Config{Database: db}))
	rule := must(rules.Create(ctx, schedule.Spec{
		Name: "stock", Cron: "@daily", Type: Pack.Name(), Args: Order{Item: "lamp"}, Ext: map[string]string{"shelf": "B7"},
	}))
	must(rules.Trigger(ctx, rule.ID, periodic.TriggerOptions{}))
	c := worker(db)
	handle(c, func(_ context.Context, t *consumer.Task[Order]) error {
		fmt.Println(t.Args.Item, string(t.Ext()))
		return nil
	})
	must(c.Drain(ctx, false))
	// Output: lamp {"shelf":"B7"}
}

// Nobody needs to be told: the task is Success at once, whatever its callback.
func ExampleExecution_NoCallback() {
	told := model.Callback{Success: &model.CallbackTarget{URL: "http://shop.example/packed"}}
	after(func(_ context.Context, t *consumer.Task[Order]) error { return nil }, producer.Callback(told))
	after(func(_ context.Context, t *consumer.Task[Order]) error { t.NoCallback(); return nil }, producer.Callback(told))
	// Output:
	// Completed, 0 errors, ""
	// Success, 0 errors, ""
}
