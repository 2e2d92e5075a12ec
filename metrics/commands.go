package metrics

import (
	"context"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/mscheduler/mscheduler/internal/measure"
)

// Commands counts the commands of clients, those that the service itself sends included. The zero value is
// ready:
//
//	var commands metrics.Commands
//	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetMonitor(commands.Monitor()))
type Commands struct {
	seconds measure.Family[measure.Durations]
	failed  measure.Family[atomic.Int64]
}

// Monitor returns a monitor for a client's options.
func (c *Commands) Monitor() *event.CommandMonitor {
	return &event.CommandMonitor{
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			c.seconds.Of(e.CommandName).Observe(e.Duration)
		},
		Failed: func(_ context.Context, e *event.CommandFailedEvent) {
			c.seconds.Of(e.CommandName).Observe(e.Duration)
			c.failed.Of(e.CommandName).Add(1)
		},
	}
}

var ofCommands = []metric[*Commands]{
	{"database_command_seconds", histogram, "Time that commands took, failed ones included.", []string{"command"},
		func(c *Commands, emit emit) {
			for name, d := range c.seconds.All() {
				emit(d.Read(), name)
			}
		}},
	{"database_commands_failed_total", counter, "Commands that failed.", []string{"command"},
		func(c *Commands, emit emit) {
			for name, n := range c.failed.All() {
				emit(n.Load(), name)
			}
		}},
}
