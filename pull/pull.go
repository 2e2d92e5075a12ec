// Package pull hands out tasks to workers that do not use package consumer, for example workers
// in another language behind your own protocol.
//
//	Fetch ──▶ paused types, limits ──▶ lapsed leases ──▶ due tasks ──▶ one claim for all ──▶ handles
//
// [Puller.Fetch] claims a batch with the same rules and queries as a consumer, and returns a
// handle for each execution. The handle identifies the execution when the worker pings
// ([Puller.Ping]), completes, fails or releases it. If pings stop, the lease lapses, and
// another worker takes over the task.
//
// Fetches of many workers at the same time share queries and commands.
//
// Where to look: fetch.go for one fetch, claim.go for due tasks, crowd.go and gathered.go for what
// fetches share, takeover.go and observe.go for lapsed leases, memory.go and seeker.go for what a
// process remembers between fetches, ping.go for leases, known.go for what others learn of the workers.
package pull

import (
	"context"
	"fmt"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/command"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// Puller claims tasks on behalf of workers. It is safe for concurrent use. A process needs one
// for each producer.
type Puller struct {
	room     *command.Room
	memory   *memory
	gathered *gathered
	watch    *observer
	known    *known
	log      zerolog.Logger
}

// New creates a puller for the producer's database. It does no I/O. The next fetch finds tasks
// of this producer and changes of its admins at once, and writes of other processes within
// seconds. [producer.Producer.Close] also closes the puller: it waits for current fetches, and
// later fetches return [producer.ErrClosed]. Workers keep their executions until the leases
// lapse; another puller may ping and end them.
func New(p *producer.Producer) *Puller {
	r := command.Of(p)
	out := &Puller{room: r, memory: newMemory(r.Store), gathered: newGathered(r.Store), log: r.Log, known: &known{store: r.Store, log: r.Log}}
	out.watch = newObserver(r.Store, out.memory.trust)
	r.Listen(out.memory.hear)
	r.AtClose(out.watch.close)
	return out
}

// Complete ends the execution as a success, see [producer.Producer.Complete].
func (p *Puller) Complete(ctx context.Context, handle string, result any, opts ...producer.CompleteOption) (*model.Task, error) {
	return command.Complete(ctx, p.room, handle, result, opts)
}

// Fail ends the execution as an error, see [producer.Producer.Fail].
func (p *Puller) Fail(ctx context.Context, handle, reason string, f producer.Failure) (*model.Task, error) {
	return p.room.Fail(ctx, handle, reason, command.Failure(f))
}

// GiveBack releases an execution without using a retry, as a worker does during shutdown: the
// task is due again at once. The execution records reason. GiveBack is idempotent. If no other
// execution has started and this one saved nothing (progress, a checkpoint, a step), the task
// counts as never started, and its expires_at applies again.
func (p *Puller) GiveBack(ctx context.Context, handle, reason string) (*model.Task, error) {
	h, err := input.ParseHandle(handle)
	if err != nil {
		return nil, fmt.Errorf("releasing an execution: %w", err)
	}
	if err := input.Text("reason", reason); err != nil {
		return nil, fmt.Errorf("releasing an execution of task %s: %w", h.TaskID, err)
	}
	return p.room.GiveBack(ctx, h, reason)
}
