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

	"github.com/mscheduler/mscheduler/internal/command"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// Puller claims tasks for workers that ask for them. It is safe for concurrent use; a process
// needs one for each producer.
type Puller struct {
	room   *command.Room
	memory *memory
	watch  *observer
	log    zerolog.Logger
}

// New makes a puller of the producer's database. It does no I/O. What the producer sends, and what
// its admins change, the next fetch finds at once; what other processes write it finds within
// seconds. [producer.Producer.Close] ends the puller, too: it waits for fetches under way, and
// later ones are [producer.ErrClosed]. Executions that were given out stay held until their leases
// lapse; another puller may ping and end them.
func New(p *producer.Producer) *Puller {
	r := command.Of(p)
	out := &Puller{room: r, memory: newMemory(r.Store), log: r.Log}
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
	return p.room.Fail(ctx, handle, reason, f.Fatal, f.RetryAfter)
}

// GiveBack ends an execution without cost, as a worker does that stops: the task is due
// again at once. reason is kept with the execution. A repetition is no error. Where nobody
// else has begun the task, and nothing was saved of this execution (progress, a checkpoint, a
// step), its expires_at holds again: it counts as never started.
func (p *Puller) GiveBack(ctx context.Context, handle, reason string) (*model.Task, error) {
	h, err := input.ParseHandle(handle)
	if err != nil {
		return nil, fmt.Errorf("releasing an execution: %w", err)
	}
	if err := command.ValidText("reason", reason); err != nil {
		return nil, fmt.Errorf("releasing an execution of task %s: %w", h.TaskID, err)
	}
	return p.room.GiveBack(ctx, h, reason)
}
