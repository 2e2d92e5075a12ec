package lifecycle

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// CallbackMethod is the method, POST where none is said.
func CallbackMethod(t model.CallbackTarget) string {
	return cmp.Or(t.Method, "POST")
}

// DeliveryArgs are the arguments of a delivery: the life of a task whose end is told. What
// is told, to whom, and signed with what is read when it is delivered.
type DeliveryArgs struct {
	TaskID     string `json:"task_id"`
	Generation int64  `json:"generation"`
	// Flow is what is told of a flow, in the place of a task.
	Flow *FlowEvent `json:"flow,omitempty"`
	// Plan is what is told of a plan, in the place of a task.
	Plan *PlanEvent `json:"plan,omitempty"`
}

// PlanEvent is what a callback tells of a plan. Its receiver, and how it is signed, is read when it is
// delivered.
type PlanEvent struct {
	ID        string `json:"id"`   // of the event, for ever
	Plan      string `json:"plan"` // the id of the document
	Step      int64  `json:"step"`
	Status    string `json:"status"` // ERROR or FINISH
	ErrorInfo string `json:"error_info"`
}

// FlowEvent is what a callback tells of a flow. Its receiver, and how it is signed, is read when it
// is delivered.
type FlowEvent struct {
	ID        string `json:"id"` // of the event, for ever
	FlowID    string `json:"flow_id"`
	Node      string `json:"node"`
	Status    string `json:"status"` // PENDING of a node, or FINISH of the flow
	ErrorInfo string `json:"error_info"`
}

// BlockedBy begins the reason of a node of a flow that is PENDING only because an earlier node is. No person has to decide
// about it, so no event tells of it.
const BlockedBy = "blocked by "

// DeliveryKey is the key of the task that delivers the callback of one life of a task, and
// the id by which receivers know it: a life ends once with a callback, so there is one.
func DeliveryKey(taskID string, generation int64) string {
	return EntryID(taskID, generation, model.OutboxEntry{Kind: OutcomeCallback})
}

// DeliveryID is the id of the task that delivers the callback of the task's present life.
func DeliveryID(t *model.Task) string {
	return model.TaskID(t.Tenant, input.CallbackType, DeliveryKey(t.ID, t.Generation))
}

// Delivery is the draft of the task that delivers the callback of the task's present life.
// Its end is told to the task by an outbox entry of its own.
func Delivery(t *model.Task) Draft {
	return Draft{
		Tenant: t.Tenant, Type: input.CallbackType, Key: DeliveryKey(t.ID, t.Generation),
		Args:   deliveryArgs(t.ID, t.Generation),
		Origin: &model.Origin{Kind: OutcomeDelivery, ID: t.ID, Generation: t.Generation}, Trace: t.Trace,
	}
}

// FlowDelivery is the draft of the task that delivers a callback of a flow. Nobody waits for its
// end.
func FlowDelivery(tenant string, e FlowEvent) Draft {
	doc := texts(nil, [][2]string{{"id", e.ID}, {"flow_id", e.FlowID}, {"node", e.Node}, {"status", e.Status}, {"error_info", e.ErrorInfo}})
	return eventDelivery(tenant, e.ID, "flow", doc)
}

// PlanDelivery is [FlowDelivery] for a plan.
func PlanDelivery(tenant string, e PlanEvent) Draft {
	doc := texts(nil, [][2]string{{"id", e.ID}, {"plan", e.Plan}, {"status", e.Status}, {"error_info", e.ErrorInfo}})
	return eventDelivery(tenant, e.ID, "plan", bsoncore.AppendInt64Element(doc, "step", e.Step))
}

func texts(doc []byte, fields [][2]string) []byte {
	for _, f := range fields {
		doc = bsoncore.AppendStringElement(doc, f[0], f[1])
	}
	return doc
}

func eventDelivery(tenant, id, of string, event []byte) Draft {
	args := bsoncore.BuildDocument(nil, bsoncore.AppendDocumentElement(nil, of, bsoncore.BuildDocument(nil, event)))
	return Draft{Tenant: tenant, Type: input.CallbackType, Key: id, Args: bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: args}}
}

// PlanCallbackBody is what the receiver of a plan's callback is sent.
func PlanCallbackBody(e *PlanEvent, planID, requestID string) []byte {
	b := []byte(`{`)
	for _, f := range [][2]string{{"plan_id", planID}, {"request_id", requestID}, {"status", e.Status}, {"error_info", e.ErrorInfo}} {
		b = append(codec.AppendJSONString(append(append(append(b, '"'), f[0]...), `":`...), f[1]), ',')
	}
	return append(strconv.AppendInt(append(b, `"step":`...), e.Step, 10), '}')
}

// FlowCallbackBody is what the receiver of a flow's callback is sent.
func FlowCallbackBody(e *FlowEvent, ext bson.RawValue) []byte {
	b := []byte(`{`)
	for _, f := range [][2]string{{"flow_id", e.FlowID}, {"node", e.Node}, {"error_info", e.ErrorInfo}, {"status", e.Status}} {
		b = append(codec.AppendJSONString(append(append(append(b, '"'), f[0]...), `":`...), f[1]), ',')
	}
	return append(append(append(b, `"ext":`...), codec.ValueJSON(ext)...), '}')
}

func deliveryArgs(taskID string, generation int64) bson.RawValue {
	start, doc := bsoncore.AppendDocumentStart(nil)
	doc = bsoncore.AppendStringElement(doc, "task_id", taskID)
	doc = bsoncore.AppendInt64Element(doc, "generation", generation)
	doc, _ = bsoncore.AppendDocumentEnd(doc, start)
	return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: doc}
}

// Delivers says whether the end of a delivery with that status means that the receiver
// has the callback: its answer said so, or a person did.
func Delivers(s model.Status) bool { return s.Succeeded() || s == model.StatusManuallyProcessed }

// CallbackSuppressed says whether nobody is to be told of the task's success, because the execution that
// completed it said so, whatever is configured ([Outcome.NoCallback]).
func CallbackSuppressed(t *model.Task) bool {
	return t.Status == model.StatusSuccess && slices.ContainsFunc(t.WorkerStates, func(w model.WorkerState) bool {
		return w.NoCallback && w.SuccessTime.Equal(t.FinishedAt)
	})
}

// CallbackOf is who is told of the task's end, and how it is signed; nil = nobody. typ is
// what the task's type says now: an address that was mended or taken out, or a key that was
// changed, also holds for what is still to be delivered. Below it is what the handler said
// when the task ran, which an empty callback of the type silences.
func CallbackOf(t *model.Task, typ model.Options) (*model.CallbackTarget, *model.CallbackSecurity) {
	own, _ := OptionsAtClaim(t)
	layers := []model.Options{own, typ}
	if a := t.Applied; a != nil && a.Callback != nil && a.Callback.OfHandler {
		layers = append(layers, *a)
	}
	eff := ResolveOptions(layers...)
	target := eff.callbackFor(t.Type, t.Status)
	if target == nil || CallbackSuppressed(t) {
		return nil, nil
	}
	return target, eff.Callback.Security
}

// Redeliver returns the draft of a task that delivers the callback of an ended task again.
// It refuses a task that has not ended, and one without a callback for its status.
func Redeliver(t *model.Task, typ model.Options) (Draft, error) {
	target, _ := CallbackOf(t, typ)
	switch {
	case !t.Status.Ended():
		return Draft{}, refuse(t, "only an ended task has a callback to deliver")
	case CallbackSuppressed(t):
		return Draft{}, refuse(t, "it has no callback: its handler, or the call that completed it, suppressed it")
	case target == nil:
		return Draft{}, refuse(t, "the task has no callback for this status")
	}
	return Delivery(t), nil
}

// DeliverNow makes a delivery due that waits for its retry or its turn: in the same life, so
// that what was tried so far stays to be seen. It returns t itself for one that does not wait.
func DeliverNow(t *model.Task, eff Effective, now time.Time) *model.Task {
	if t.Status.Ended() {
		return t
	}
	c, err := RetryNow(t, t.Remark, eff, now)
	if err != nil {
		return t // nobody is waited for
	}
	return c
}

// CallbackBody is what the receiver is sent, as seed 000 says: of a success ext and the
// result, of a failure the task's id, the last error and ext. The body of a Pending task is
// that of a failure and its status, which tells the two apart. It is the same whenever it is
// made.
func CallbackBody(t *model.Task, ext bson.RawValue) []byte {
	b := []byte(`{`)
	if !t.Status.Succeeded() {
		b = codec.AppendJSONString(append(b, `"task_id":`...), t.ID)
		b = codec.AppendJSONString(append(b, `,"error_info":`...), t.ErrorInfo)
		if t.Status == model.StatusPending {
			b = append(b, `,"status":"Pending"`...)
		}
		b = append(b, ',')
	}
	b = append(b, `"ext":`...)
	b = append(b, codec.ValueJSON(ext)...)
	if t.Status.Succeeded() {
		b = append(b, `,"result":`...)
		b = append(b, codec.ValueJSON(t.Result)...)
	}
	return append(b, '}')
}
