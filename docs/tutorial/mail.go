package main

import (
	"context"
	"errors"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Mail contains the arguments of a task.
type Mail struct {
	To      string `json:"to"`
	Subject string `json:"subject"`
}

// SendMail is the type of the tasks. Senders and workers share it.
var SendMail = model.NewType[Mail, model.None]("mail.send")

var errNoReceiver = errors.New("the mail has no receiver")

// Handle registers the handler. deliver is the mail system. Every attempt passes the same id to
// it, so that it can drop duplicates.
func Handle(c *consumer.Consumer, deliver func(id string, m Mail) error) error {
	return consumer.Handle(c, SendMail, func(_ context.Context, t *consumer.Task[Mail]) (model.None, error) {
		if t.Args.To == "" {
			return model.None{}, consumer.Fatal(errNoReceiver) // fails at once: a retry cannot help
		}
		return model.None{}, deliver(t.TaskID, t.Args) // an error is retried with exponential backoff
	})
}

// Digest returns a rule that sends a mail to all subscribers on the schedule of cron.
func Digest(cron string) schedule.Spec {
	return schedule.Spec{
		Name: "digest", Enabled: new(true), Cron: cron, Timezone: "Europe/Berlin",
		Type: SendMail.Name(), Args: Mail{To: "subscribers@example.org", Subject: "What is new"},
		Overlap: schedule.OverlapSkip, // no second digest while one is being sent
	}
}
