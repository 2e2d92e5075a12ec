package producer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

type WelcomeArgs struct {
	User string `json:"user"`
}

// Welcome is shared by those who send and those who handle.
var Welcome = model.NewType[WelcomeArgs, model.None]("email.welcome")

// A user and the task that greets them are stored together, or neither is.
func Example_transaction() {
	register := func(ctx context.Context, db *mongo.Database, p *producer.Producer, user string) error {
		session, err := db.Client().StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
			if _, err := db.Collection("users").InsertOne(ctx, bson.D{{Key: "_id", Value: user}}); err != nil {
				return nil, err
			}
			return producer.Send(ctx, p, Welcome, WelcomeArgs{User: user}, producer.Key(user))
		})
		return err
	}
	_ = register
}

func Example() {
	greet := func(ctx context.Context, db *mongo.Database, user string) error {
		p, err := producer.New(producer.Config{Database: db})
		if err != nil {
			return err
		}
		defer p.Close(ctx)

		sent, err := producer.Send(ctx, p, Welcome, WelcomeArgs{User: user},
			producer.Key(user), producer.In(time.Minute), producer.Priority(9))
		if err != nil {
			return err
		}
		_, err = producer.Await(ctx, p, Welcome, sent)
		var failed *model.TaskError
		if errors.As(err, &failed) {
			return fmt.Errorf("nobody could greet %s: %s", user, failed.Info)
		}
		return err
	}
	_ = greet
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
