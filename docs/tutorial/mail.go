package main

import (
	"context"
	"errors"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Mail is the argument of a task.
type Mail struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
}

// SendMail is the type of the tasks. Senders and workers share it.
var SendMail = model.NewType[Mail, model.None]("mail.send")

var errNoReceiver = errors.New("the mail has no receiver")

// Handle registers the handler. deliver is the mail system; it gets an id that is the same for
// every attempt, so that it can drop a repeated mail.
func Handle(c *consumer.Consumer, deliver func(id string, m Mail) error) error {
	return consumer.Handle(c, SendMail, func(_ context.Context, t *consumer.Task[Mail]) (model.None, error) {
		if t.Args.To == "" {
			return model.None{}, consumer.Fatal(errNoReceiver) // no retry helps
		}
		return model.None{}, deliver(t.TaskID, t.Args) // an error is retried with growing delays
	})
}

// Digest is a rule that sends a mail to all subscribers at the times that cron names.
func Digest(cron string) schedule.Spec {
	return schedule.Spec{
		Name: "digest", Cron: cron, Timezone: "Europe/Berlin",
		Type: SendMail.Name(), Args: Mail{To: "subscribers@example.org", Subject: "What is new"},
		Overlap: schedule.OverlapSkip, // no second digest while one is being sent
	}
}
