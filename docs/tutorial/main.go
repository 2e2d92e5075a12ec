// The service of docs/tutorial.md: it sends mails through tasks.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/producer"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("MSCHEDULER_MONGODB_URI")))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.Background()) }()
	db := client.Database("mscheduler")
	switch {
	case len(args) == 2 && args[0] == "signup":
		return signUp(ctx, db, args[1])
	case len(args) == 1 && args[0] == "work":
		return work(ctx, db)
	default:
		return errors.New("usage: tutorial signup ADDRESS | tutorial work")
	}
}

// signUp sends a task. The key makes it idempotent: a repeated sign-up creates no task.
func signUp(ctx context.Context, db *mongo.Database, address string) error {
	p, err := producer.New(producer.Config{Database: db})
	if err != nil {
		return err
	}
	defer func() { _ = p.Close(ctx) }()
	sent, err := producer.Send(ctx, p, SendMail, Mail{To: address, Subject: "Welcome"}, producer.Key("welcome-"+address))
	if err != nil {
		return err
	}
	fmt.Printf("%s created=%t\n", sent.ID, sent.Created)
	return nil
}

// work runs a worker and a periodic engine until ctx or one of them ends.
func work(ctx context.Context, db *mongo.Database) error {
	c, err := consumer.New(consumer.Config{Database: db})
	if err != nil {
		return err
	}
	if err := Handle(c, func(_ string, m Mail) error {
		fmt.Printf("mail to %s: %s\n", m.To, m.Subject)
		return nil
	}); err != nil {
		return err
	}
	engine, err := periodic.New(periodic.Config{Database: db})
	if err != nil {
		return err
	}
	if _, err := engine.Apply(ctx, Digest("*/5 * * * * *")); err != nil { // every five seconds
		if ctx.Err() != nil {
			return nil // it was stopped while it started
		}
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 2)
	go func() { ended <- c.Run(ctx) }()
	go func() { ended <- engine.Run(ctx) }()
	err = <-ended
	stop() // whichever ends first stops the other
	return errors.Join(err, <-ended)
}
