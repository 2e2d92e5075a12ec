package callback

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// These headers name the task whose end is delivered, percent-encoded, and the number of its life.
// They are Delivery.Task and Delivery.Generation of package callback.
const (
	taskHeader       = "Webhook-Task"
	generationHeader = "Webhook-Generation"
)

// defaultTimeout is how long a receiver has to answer, as with the best known senders.
const defaultTimeout = 15 * time.Second

// keptBytes of an answer's body are kept with the delivery.
const keptBytes = 1 << 10

// Config of a [Deliverer].
type Config struct {
	Store       *store.Store
	Types       Types
	Secrets     *secret.Box    // nil = it signs nothing
	Reach       httpcall.Reach // where it may call
	Timeout     time.Duration  // of a call; 0 = 15 s
	Concurrency int            // calls at once; a quarter of it for a receiver that is silent
}

// Deliverer makes the calls of one process.
type Deliverer struct {
	Config
	caller    *httpcall.Caller
	receivers receivers
}

// NewDeliverer makes a deliverer.
func NewDeliverer(c Config) *Deliverer {
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	return &Deliverer{
		Config: c, receivers: receivers{most: max(c.Concurrency/4, 1)},
		caller: httpcall.New(c.Reach, c.Secrets, c.Store.Local().Now),
	}
}

// Close closes idle connections.
func (d *Deliverer) Close() { d.caller.Close() }

// Deliver calls the receiver of the life's end, or of an event of a flow or plan, and returns what the delivery keeps of its answer;
// nothing if there is no receiver any more. An error is retried unless it is a
// [*httpcall.VerdictError] that says otherwise.
//
// Every answer that is not 2xx is retried, 4xx and redirects too, as the well-known senders do
// (Stripe, GitHub, those of Standard Webhooks). The exception is 410: the receiver is gone for
// good. The delivery's own budget bounds the retries.
func (d *Deliverer) Deliver(ctx context.Context, args lifecycle.DeliveryArgs) (httpcall.Answer, error) {
	if args.Flow != nil {
		return d.flow(ctx, args.Flow)
	}
	if args.Plan != nil {
		return d.plan(ctx, args.Plan)
	}
	life, err := d.Store.History.Life(ctx, args.TaskID, args.Generation)
	if errors.Is(err, store.ErrNotFound) {
		return httpcall.Answer{}, &httpcall.VerdictError{Err: fmt.Errorf("the task no longer exists: %w", err), Fatal: true}
	}
	if err != nil {
		return httpcall.Answer{}, err
	}
	if !life.Status.Ended() { // the delivery was stored with its end: this server does not have that yet, or no longer
		return httpcall.Answer{}, fmt.Errorf("the server that answered does not have the end of task %s yet", life.ID)
	}
	target, security, err := d.receiver(ctx, life)
	if target == nil {
		return httpcall.Answer{}, err
	}
	return d.call(ctx, target, security, message{
		id: lifecycle.DeliveryKey(life.ID, life.Generation), body: lifecycle.CallbackBody(life, extOf(life)), header: http.Header{taskHeader: {httpcall.Escape(life.ID)}, generationHeader: {strconv.FormatInt(life.Generation, 10)}},
	})
}

// extOf is the ext that a receiver gets: the task's arguments as the API shows them, without
// credentials. The arguments of a rule's HTTP call are its target, so the receiver gets the ext of
// the rule instead.
func extOf(life *model.Task) bson.RawValue {
	if o := life.Origin; life.Type == httptarget.TaskType && o != nil && o.Tick != nil {
		return o.Tick.Ext
	}
	return secret.HideArgs(life.Type, life.Args)
}

// flow calls the receiver of an event of a flow.
func (d *Deliverer) flow(ctx context.Context, e *lifecycle.FlowEvent) (httpcall.Answer, error) {
	c, ext, err := d.Store.Flows.Callback(ctx, e.FlowID)
	if errors.Is(err, store.ErrNoFlow) {
		return httpcall.Answer{}, &httpcall.VerdictError{Err: fmt.Errorf("the flow no longer exists: %w", err), Fatal: true}
	}
	if err != nil || c == nil {
		return httpcall.Answer{}, err
	}
	target := c.Success
	if e.Status == string(graph.NodePending) {
		target = c.Error
	}
	if target == nil {
		return httpcall.Answer{}, nil
	}
	return d.call(ctx, target, c.Security, message{id: e.ID, body: lifecycle.FlowCallbackBody(e, ext)})
}

// plan calls the receiver of an event of a plan.
func (d *Deliverer) plan(ctx context.Context, e *lifecycle.PlanEvent) (httpcall.Answer, error) {
	p, err := d.Store.Plans.Get(ctx, e.Plan)
	if errors.Is(err, store.ErrNoPlan) {
		return httpcall.Answer{}, &httpcall.VerdictError{Err: fmt.Errorf("the plan no longer exists: %w", err), Fatal: true}
	}
	if err != nil || p.Callback == nil {
		return httpcall.Answer{}, err
	}
	target := p.Callback.Success
	if e.Status == string(repeat.StatusError) {
		target = p.Callback.Error
	}
	if target == nil {
		return httpcall.Answer{}, nil
	}
	return d.call(ctx, target, p.Callback.Security, message{id: e.ID, body: lifecycle.PlanCallbackBody(e, p.PlanID, p.RequestID)})
}

// message is what a receiver is sent.
type message struct {
	id     string // the same for each attempt
	body   []byte
	header http.Header
}

// call makes the request.
func (d *Deliverer) call(ctx context.Context, target *model.CallbackTarget, security *model.CallbackSecurity, m message) (httpcall.Answer, error) {
	sign := &httpcall.Signature{ID: m.id, At: d.Store.Clock.Now()}
	if security != nil && security.Type == model.SecurityAKSK {
		sign.Keys = security.Keys
	}
	call := httpcall.Call{
		Field: "callback.url", Method: lifecycle.CallbackMethod(*target), URL: target.URL,
		Body: string(m.body), JSON: true, Sign: sign, Worker: m.header,
		Timeout: d.Timeout, Keep: keptBytes, GoneForGood: true, StatusDecides: true,
	}
	call.Admit = func(host string) (func(bool), error) {
		leave, wait := d.receivers.enter(host, d.Store.Local().Monotonic())
		if leave == nil {
			return nil, &httpcall.VerdictError{Err: fmt.Errorf("%s: the receiver does not answer within %v, and its share of concurrent calls is in use", target, slowAfter), Busy: true, RetryAfter: wait}
		}
		return func(answered bool) { leave(answered, d.Store.Local().Monotonic()) }, nil
	}
	out, err := d.caller.Do(ctx, call)
	if err != nil {
		return httpcall.Answer{}, err
	}
	out.Headers = nil
	return out, nil
}

// receiver returns the receiver of the life's end; nil if the callback was removed from the task's
// type meanwhile. That ends the delivery, so only the database decides it: this process's copy of
// the types may be older.
func (d *Deliverer) receiver(ctx context.Context, life *model.Task) (*model.CallbackTarget, *model.CallbackSecurity, error) {
	target, security := lifecycle.CallbackOf(life, d.Types.Options(life.Type))
	if target != nil {
		return target, security, nil
	}
	typ, err := d.Store.Types.Get(ctx, life.Type)
	if errors.Is(err, store.ErrNoType) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	target, security = lifecycle.CallbackOf(life, typ.Options)
	return target, security, nil
}
