package consumer

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/finish"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lease"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Execution is one worker's hold on one task, as its handler sees it.
type Execution struct {
	TaskID   string // tenant/type/key
	Key      string
	Type     string
	Tenant   string // "" = none
	Creator  string
	Category string
	// ID is unique to this execution for ever: task id, generation and exec id. Hand it
	// on to outside systems as an idempotency key of this try.
	ID string
	// Token is ordered: of two executions of a task the later has the greater one. An
	// outside system that remembers the greatest can refuse a late writer.
	Token model.Token
	// Handle lets somebody else end or ping this execution, see [Park].
	Handle string
	// Attempt counts from 1; what was given back without cost does not count.
	Attempt int
	// Errors of all workers so far, and LastError's text.
	Errors    int
	LastError string
	// Deadline of the store's clock; zero = none. The context ends then, too.
	Deadline time.Time
	// DueAt is when the task became claimable, by the store's clock.
	DueAt time.Time
	// Origin is what made the task, such as a tick of a periodic rule; nil = somebody sent
	// it. It is shared: do not change it.
	Origin *model.Origin

	args       bson.RawValue
	checkpoint bson.RawValue
	hold       *execution
	consumer   *Consumer
	steps      finish.Book
}

// RawArgs are the arguments as JSON; "null" when there are none.
func (e *Execution) RawArgs() json.RawMessage { return codec.ValueJSON(e.args) }

// Ext returns the ext of the periodic rule that sent the task, as JSON. It has the value of the
// moment when the tick was decided; "null" if there is none.
func (e *Execution) Ext() json.RawMessage {
	if e.Origin == nil || e.Origin.Tick == nil {
		return codec.ValueJSON(bson.RawValue{})
	}
	return codec.ValueJSON(e.Origin.Tick.Ext)
}

// Checkpoint saves v, at most 1 MiB as JSON, before it returns; whoever runs the task
// next, after an error, a lapse or a restart, reads it with [Execution.Restore]. It
// returns [model.ErrFenced] when this execution no longer holds the task.
func (e *Execution) Checkpoint(ctx context.Context, v any) error {
	raw, err := codec.EncodeValue("checkpoint", v, input.MaxCheckpointBytes)
	if err != nil {
		return err
	}
	if raw.Type == 0 {
		raw.Type = bson.TypeNull
	}
	return e.consumer.store.Tasks.SaveCheckpoint(ctx, e.TaskID, e.hold.index, e.hold.execID, lifecycle.Wanted(e.hold.task) > 1, raw)
}

// Restore reads the checkpoint of the previous execution into dst; false when there is
// none. Several workers on one task each have their own.
func (e *Execution) Restore(dst any) (bool, error) {
	if e.checkpoint.Type == 0 || e.checkpoint.Type == bson.TypeNull {
		return false, nil
	}
	return true, codec.DecodeValue(e.checkpoint, dst)
}

// Progress says how far the handler is: percent from 0 to 100, and a message of at most
// 4 KiB. It is for people; nothing depends on it.
func (e *Execution) Progress(ctx context.Context, percent float64, message string) error {
	if math.IsNaN(percent) || percent < 0 || percent > 100 {
		return input.Invalid("percent", "is %v; want 0 to 100", percent)
	}
	if len(message) > 4<<10 {
		return input.Invalid("message", "has %d bytes; at most %d are allowed", len(message), 4<<10)
	}
	return e.consumer.store.Tasks.SaveProgress(ctx, e.TaskID, e.hold.index, e.hold.execID,
		model.Progress{Percent: percent, Message: message, At: e.consumer.store.Clock.Now()})
}

// Now is the database's time, as near as this process knows it; the machine's own clock may be
// wrong.
func (e *Execution) Now() time.Time { return e.consumer.store.Clock.Now() }

// NoCallback says that nobody is to be told of this execution's success, whatever callback
// the task or its type configures: the task is Success at once. Call it before returning;
// before [Park] it holds for what completes the execution after it was parked.
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
	slot      slot          // of the process; guarded by the holdings
	ran       time.Duration // how long the handler ran; written by its goroutine before the end is queued

	quiet      atomic.Bool // the handler wants no callback
	completing atomic.Bool // a transaction may end it: pings stay away from the document

	mu      sync.Mutex
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
