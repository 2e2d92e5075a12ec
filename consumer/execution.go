package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.opentelemetry.io/otel/trace"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/finish"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lease"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Execution is one execution of a task, as its handler sees it.
type Execution struct {
	TaskID   string // tenant/type/key
	Key      string
	Type     string
	Tenant   string // "" = none
	Creator  string
	Category string
	// ID identifies this execution uniquely: task id, generation and a hash of exec_id. Pass it to other
	// systems as an idempotency key for this attempt.
	ID string
	// Token is a fencing token: a later execution of a task has a greater token. Another system
	// that stores the greatest token can refuse late writers.
	Token model.Token
	// Handle lets another process complete or ping this execution, see [Park].
	Handle string
	// Attempt counts from 1. Released executions do not count.
	Attempt int
	// Errors counts the errors of all workers so far; LastError is the text of the last one.
	Errors    int
	LastError string
	// Deadline by the store's clock; zero = none. The context also ends at that time.
	Deadline time.Time
	// DueAt is when the task became claimable, by the store's clock.
	DueAt time.Time
	// Origin is what created the task, such as a tick of a periodic rule; nil = a send. It is
	// shared: do not change it.
	Origin *model.Origin

	args       bson.RawValue
	checkpoint atomic.Pointer[bson.RawValue] // that Restore reads
	inDoubt    atomic.Bool                   // one was saved in a transaction, which may be aborted
	retries    atomic.Int32                  // local ones that have begun
	hold       *execution
	consumer   *Consumer
	steps      finish.Book
}

// RawArgs returns the arguments as JSON; "null" if there are none.
func (e *Execution) RawArgs() json.RawMessage { return codec.ValueJSON(e.args) }

// Ext returns the ext of the periodic rule that sent the task, as JSON, with its value at the
// time the tick was decided; "null" if there is none.
func (e *Execution) Ext() json.RawMessage {
	if e.Origin == nil || e.Origin.Tick == nil {
		return codec.ValueJSON(bson.RawValue{})
	}
	return codec.ValueJSON(e.Origin.Tick.Ext)
}

// Checkpoint saves v, at most 1 MiB as JSON, before it returns. The next execution of the task,
// after an error, a lapse or a restart, reads it with [Execution.Restore], and so does a local retry. If this execution no
// longer holds the task, the error is [model.ErrFenced].
//
// If a transaction runs on the session in ctx, the checkpoint is part of it, so what the transaction writes and the
// checkpoint are stored together or not at all. Pings of the execution wait for its end: keep it shorter than half of
// the worker timeout. Before the commit, Restore does not see the checkpoint.
func (e *Execution) Checkpoint(ctx context.Context, v any) error {
	raw, err := codec.EncodeValue("checkpoint", v, input.MaxCheckpointBytes)
	if err != nil {
		return err
	}
	if raw.Type == 0 {
		raw.Type = bson.TypeNull
	}
	if store.InTransaction(ctx) {
		e.inDoubt.Store(true)
	}
	if err := e.consumer.store.Tasks.SaveCheckpoint(ctx, e.TaskID, e.hold.index, e.hold.execID, lifecycle.Wanted(e.hold.task) > 1, raw); err != nil {
		return err
	}
	e.remember(raw)
	return nil
}

func (e *Execution) remember(saved bson.RawValue) { e.checkpoint.Store(&saved) }

// Restore reads the last checkpoint of the task, of this execution or of an earlier one, into dst, and returns false if
// there is none. If a task needs several workers, each worker has its own checkpoint. After a checkpoint in a
// transaction it asks the database what was committed. If this execution no longer holds the task, the error is then
// [model.ErrFenced].
func (e *Execution) Restore(dst any) (bool, error) {
	if e.inDoubt.Load() {
		if err := e.recall(); err != nil {
			return false, fmt.Errorf("reading the checkpoint of task %s: %w", e.TaskID, err)
		}
	}
	c := e.checkpoint.Load()
	if c == nil || c.Type == 0 || c.Type == bson.TypeNull {
		return false, nil
	}
	return true, codec.DecodeValue(*c, dst)
}

// recallPatience is how long Restore waits for the database.
const recallPatience = 10 * time.Second

// recall reads the checkpoint that was committed. A server that does not know how many local retries have begun is no
// primary any more.
func (e *Execution) recall() error {
	ctx, cancel := context.WithTimeout(context.Background(), recallPatience)
	defer cancel()
	t, err := e.consumer.store.Tasks.Get(ctx, e.TaskID)
	if errors.Is(err, store.ErrNotFound) {
		return model.ErrFenced
	}
	if err != nil {
		return err
	}
	if _, is := lifecycle.ExecutionOf(t, e.hold.execID); is == nil || !lifecycle.Open(is) || is.LocalRetries < int(e.retries.Load()) {
		return model.ErrFenced
	}
	e.remember(lifecycle.CheckpointOf(t, e.consumer.cfg.WorkerID))
	return nil
}

// Progress reports the handler's progress: percent from 0 to 100, and a message in UTF-8 of at
// most 4 KiB. It is informational only, and part of a transaction as a checkpoint is.
func (e *Execution) Progress(ctx context.Context, percent float64, message string) error {
	if err := input.Progress(percent, message); err != nil {
		return err
	}
	return e.consumer.store.Tasks.SaveProgress(ctx, e.TaskID, e.hold.index, e.hold.execID,
		model.Progress{Percent: percent, Message: message, At: e.consumer.store.Clock.Now()})
}

// Now returns this process's estimate of the database's time. The machine's clock may be wrong.
func (e *Execution) Now() time.Time { return e.consumer.store.Clock.Now() }

// NoCallback suppresses the callback for the success of this execution. The task becomes
// Success at once. Call it before the handler returns. If the handler then parks the execution,
// NoCallback applies to its later completion.
func (e *Execution) NoCallback() { e.hold.quiet.Store(true) }

// state is where an execution is in this process.
type state int

const (
	buffered  state = iota // claimed, waits for a slot
	running                // its handler runs
	returned               // its end is being written
	abandoned              // somebody else has the task: nothing of it is written any more
)

// execution is the process's side of a hold. Its fields below mu are shared between
// the goroutine that runs it and those that stop it.
type execution struct {
	task    *model.Task // as it was after the claim
	execID  string
	index   int // in worker_states
	attempt int
	eff     *lifecycle.Effective
	h       *handler
	dueAt   time.Time
	lease   *lease.Hold
	from    time.Time          // of the store: not to begin before; zero = at once
	until   time.Time          // of the store: given back when it has not begun by then; zero = never
	permits []lifecycle.Permit // that are to be given back at its end; nil = its type has no limits
	// successor is the next execution by the permit of the type; nil = none was prepared. Guarded by
	// the passes.
	successor *successor
	late      bool              // its lease was over before the claim was answered
	previous  string            // the worker whose lease lapsed; "" = it is no takeover
	claim     trace.SpanContext // of the claim
	slot      slot              // of the process; guarded by the holdings
	ran       time.Duration     // how long the handler ran; written by its goroutine before the end is queued

	quiet      atomic.Bool // the handler wants no callback
	completing atomic.Bool // a transaction may end it: pings stay away from the document

	mu      sync.Mutex
	span    trace.Span // of the handler; nil = none. Its goroutine reads it without the lock
	state   state
	stop    context.CancelCauseFunc
	stopped error // the cause, for one that had not started
}

// ofType reports whether the permit is that of a type as a whole.
func ofType(p lifecycle.Permit) bool { return p.Key == "" }

// ofType returns the execution's permit of its type; nil = none.
func (x *execution) ofType() *lifecycle.Permit {
	if i := slices.IndexFunc(x.permits, ofType); i >= 0 {
		return &x.permits[i]
	}
	return nil
}

// cancel ends the handler's context; the first cause stays.
func (x *execution) cancel(cause error) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stopped != nil {
		return false
	}
	x.stopped = cause
	if x.stop != nil {
		x.stop(cause)
	}
	return true
}

func (x *execution) is(s state) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.state == s
}

// advance moves the execution to a later state; false when it is there or beyond.
func (x *execution) advance(to state) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.state >= to {
		return false
	}
	x.state = to
	return true
}

// entry is the element of worker_states that this execution is.
func (x *execution) entry() *model.WorkerState { return &x.task.WorkerStates[x.index] }
