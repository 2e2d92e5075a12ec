package mstest_test

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// WelcomeArgs are the arguments of a welcome mail.
type WelcomeArgs struct {
	User string `json:"user"`
}

// Welcome is the type of the task. Senders and workers share it.
var Welcome = model.NewType[WelcomeArgs, model.None]("email.welcome")

var errNoUser = errors.New("no user given")

// SignUp stores the user and sends the task in one transaction: both are stored, or neither.
func SignUp(ctx context.Context, users *mongo.Collection, p *producer.Producer, user string) error {
	session, err := users.Database().Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		if _, err := users.InsertOne(ctx, bson.M{"_id": user}); err != nil {
			return nil, err
		}
		return producer.Send(ctx, p, Welcome, WelcomeArgs{User: user}, producer.Key(user))
	})
	return err
}

// HandleWelcome registers the handler. Every attempt passes the same id to the mail system,
// so that it can drop duplicates.
func HandleWelcome(c *consumer.Consumer, mail func(user, id string) error) error {
	return consumer.Handle(c, Welcome, func(ctx context.Context, t *consumer.Task[WelcomeArgs]) (model.None, error) {
		if t.Args.User == "" {
			return model.None{}, consumer.Fatal(errNoUser) // fails at once: a retry cannot help
		}
		return model.None{}, mail(t.Args.User, t.TaskID) // an error is retried with exponential backoff
	})
}

// A sender, a handler, and a process that runs both. Usually they are two.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	db := exampleDatabase()

	c, err := consumer.New(consumer.Config{Database: db})
	if err != nil {
		panic(err)
	}
	err = HandleWelcome(c, func(user, id string) error {
		fmt.Println("mail to", user, "for", id)
		return nil
	})
	if err != nil {
		panic(err)
	}
	running := make(chan error)
	go func() { running <- c.Run(ctx) }()

	p, err := producer.New(producer.Config{Database: db})
	if err != nil {
		panic(err)
	}
	if err := SignUp(ctx, db.Collection("users"), p, "ann"); err != nil {
		panic(err)
	}
	sent, err := producer.Send(ctx, p, Welcome, WelcomeArgs{User: "ann"}, producer.Key("ann"))
	if err != nil {
		panic(err)
	}
	fmt.Println("sent again:", sent.Created) // a key is sent once

	if _, err := producer.Await(ctx, p, Welcome, sent); err != nil {
		panic(err)
	}
	stop() // ends gracefully
	fmt.Println("stopped:", <-running)

	// Unordered output:
	// mail to ann for -/email.welcome/ann
	// sent again: false
	// stopped: <nil>
}
