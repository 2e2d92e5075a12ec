// Package pull hands tasks to workers that are not this library: in another language, behind a
// protocol of their own.
//
//	Fetch ──▶ paused types, limits ──▶ lapsed leases ──▶ due tasks ──▶ one claim for all ──▶ handles
//
// [Puller.Fetch] claims a batch by the same rules and queries as a consumer, and gives out a
// handle for each execution. By its handle an execution is pinged ([Puller.Ping]), completed,
// failed or given back. An execution that is not pinged in time lapses, and its task goes to
// another worker.
//
// Where to look: fetch.go for one fetch, claim.go for due tasks, takeover.go and observe.go for
// lapsed leases, memory.go and seeker.go for what a process remembers between fetches, ping.go
// for leases.
package pull

import (
	"context"
	"fmt"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/command"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// Config of a puller. Only Database must be set.
type Config struct {
	// Database is the caller's and is never closed here. Its concerns, its read
	// preference and its codecs do not matter: the puller uses its own.
	Database *mongo.Database
	// Prefix of the collections' names: at most 40 of a-z A-Z 0-9 . _ -.
	// Defaults to "".
	Prefix string
	// Logger gets what an operator should know. Defaults to none.
	Logger zerolog.Logger
	// Clock that waits are measured by. Defaults to the machine's.
	Clock producer.Clock
}

// Puller claims tasks for workers that ask for them. It is safe for concurrent use; a process
// needs one for each database and prefix.
type Puller struct {
	room   *command.Room
	memory *memory
	watch  *observer
	log    zerolog.Logger
}

// New checks the Config and makes a puller. It does no I/O. Errors are model.ErrInvalid.
func New(c Config) (*Puller, error) {
	r, err := command.Open(command.Config{Database: c.Database, Prefix: c.Prefix, Logger: c.Logger, Clock: c.Clock})
	if err != nil {
		return nil, err
	}
	p := &Puller{room: r, memory: newMemory(r.Store), log: c.Logger}
	p.watch = newObserver(r.Store, p.memory.trust)
	r.Wrote = p.Hear
	return p, nil
}

// Close refuses new fetches and waits for those under way. Executions that it gave out stay
// held until their leases lapse; another puller may ping and end them. It returns the cause of
// ctx when that ends first; it may then be called again.
func (p *Puller) Close(ctx context.Context) error {
	p.watch.close()
	return p.room.Close(ctx)
}

// Hear tells the puller of a task that this process has written, so that the next fetch finds
// it at once. Without it, a fetch finds what other doors write within seconds.
// Set it as the Stored of a producer in the same process.
func (p *Puller) Hear(t *model.Task) { p.memory.hear(t) }

// Complete ends the execution as a success, see [producer.Producer.Complete].
func (p *Puller) Complete(ctx context.Context, handle string, result any, opts ...producer.CompleteOption) (*model.Task, error) {
	return command.Complete(ctx, p.room, handle, result, opts)
}

// Fail ends the execution as an error, see [producer.Producer.Fail].
func (p *Puller) Fail(ctx context.Context, handle, reason string, f producer.Failure) (*model.Task, error) {
	return p.room.Fail(ctx, handle, reason, f.Fatal, f.RetryAfter)
}

// GiveBack ends an execution without cost, as a worker does that stops: the task is due
// again at once. reason is kept with the execution. A repetition is no error. Where nobody
// else has begun the task, and nothing was saved of this execution (progress, a checkpoint, a
// step), its expires_at holds again: it counts as never started.
func (p *Puller) GiveBack(ctx context.Context, handle, reason string) (*model.Task, error) {
	h, err := input.ParseHandle(handle)
	if err != nil {
		return nil, fmt.Errorf("giving an execution back: %w", err)
	}
	if err := command.ValidText("reason", reason); err != nil {
		return nil, fmt.Errorf("giving an execution of task %s back: %w", h.TaskID, err)
	}
	return p.room.GiveBack(ctx, h, reason)
}
