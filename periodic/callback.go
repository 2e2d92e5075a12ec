package periodic

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// CallbackPath is where [CallbackHandler] takes callbacks; the token follows.
const CallbackPath = "/api/v1/callbacks/"

// maxCallbackBytes of a callback's body: a result of 1 MiB and what is around it.
const maxCallbackBytes = model.MaxResultBytes + 4<<10

// CallbackHandler takes the callbacks of ASYNC targets: POST or PUT
// /api/v1/callbacks/{token} with {"result": any JSON} or {"error": "why it failed"}, which a
// retry may mend unless "fatal" is true; null is as good as absent. No body is a success
// without result. A token is good for one callback, from the
// moment the target was called until the callback timeout; what is refused is answered with
// {"error": "...", "reason": "..."}:
//
//	400 invalid    the body is not one of these
//	405 method     the target's CallbackMethod is another one; the header Allow names it
//	404 unknown    the token names no run of a target that waits for a callback
//	409 repeated   a callback came before
//	410 gone       the run went on without: its time was over, it was cancelled, it ended
//	413 too_large  the result is larger than 1 MiB
//	503 later      the database does not answer: send it again
func CallbackHandler(p *producer.Producer) http.Handler {
	mux := http.NewServeMux()
	take := func(w http.ResponseWriter, r *http.Request) {
		status, answer := takeCallback(r.Context(), p, r.Method, r.PathValue("token"), http.MaxBytesReader(w, r.Body, int64(maxCallbackBytes)))
		w.Header().Set("Content-Type", "application/json")
		if status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", otherMethod[r.Method])
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer) // whoever called is gone
	}
	for _, method := range []string{http.MethodPost, http.MethodPut} {
		mux.HandleFunc(method+" "+CallbackPath+"{token}", take)
	}
	return mux
}

// otherMethod returns the method that the target allows if it is another one.
var otherMethod = map[string]string{http.MethodPost: http.MethodPut, http.MethodPut: http.MethodPost}

// CallbackAnswer is the answer to a callback.
type CallbackAnswer struct {
	TaskID string `json:"task_id,omitempty"` // of a callback that was taken
	Error  string `json:"error,omitempty"`
	Reason string `json:"reason,omitempty"` // for programs, see [CallbackHandler]
}

func refuse(status int, reason, text string) (int, CallbackAnswer) {
	return status, CallbackAnswer{Error: text, Reason: reason}
}

// callbackBody is what a target says.
type callbackBody struct {
	Result json.RawMessage `json:"result"`
	Error  *string         `json:"error"`
	Fatal  bool            `json:"fatal"`
}

func takeCallback(ctx context.Context, p *producer.Producer, method, token string, body io.Reader) (int, CallbackAnswer) {
	h, err := model.ParseHandle(token)
	if err == nil {
		_, typ, _, idErr := model.ParseTaskID(h.TaskID)
		if idErr != nil || typ != httptarget.TaskType {
			err = errors.New("another type")
		}
	}
	if err != nil {
		return refuse(http.StatusNotFound, "unknown", "this is no token of a callback")
	}
	b, status, err := readCallback(body)
	if err != nil {
		reason := "invalid"
		if status == http.StatusRequestEntityTooLarge {
			reason = "too_large"
		}
		return refuse(status, reason, err.Error())
	}
	if status, answer := usable(ctx, p, method, h); status != http.StatusOK {
		return status, answer
	}
	if b.Error != nil {
		_, err = p.Fail(ctx, token, *b.Error, producer.Failure{Fatal: b.Fatal})
	} else {
		_, err = p.Complete(ctx, token, b.Result)
	}
	var late *model.LateError
	switch {
	case err == nil:
		return http.StatusOK, CallbackAnswer{TaskID: h.TaskID}
	case errors.As(err, &late):
		return refuse(http.StatusGone, "gone", "the callback timeout was over at "+late.Until.UTC().Format(model.TimeFormat))
	case errors.Is(err, model.ErrFenced):
		if status, answer := usable(ctx, p, method, h); status != http.StatusOK {
			return status, answer
		}
		return refuse(http.StatusGone, "gone", "the run has gone on without this callback")
	case errors.Is(err, store.ErrNotFound):
		return refuse(http.StatusNotFound, "unknown", "the run of this token is not known any more")
	case errors.Is(err, model.ErrInvalid):
		return refuse(http.StatusBadRequest, "invalid", err.Error())
	default:
		return refuse(http.StatusServiceUnavailable, "later", "the callback could not be stored; send it again")
	}
}

func readCallback(body io.Reader) (b callbackBody, status int, err error) {
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()
	err = dec.Decode(&b)
	if errors.Is(err, io.EOF) {
		return callbackBody{}, http.StatusOK, nil
	}
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more than one JSON value")
		}
	}
	if string(b.Result) == "null" {
		b.Result = nil // as good as absent
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return b, http.StatusRequestEntityTooLarge, errors.New("the body is larger than a result may be, 1 MiB")
	case err != nil:
		return b, http.StatusBadRequest, errors.New(`the body is not {"result": ...} or {"error": "..."}: ` + err.Error())
	case b.Error != nil && len(b.Result) > 0:
		return b, http.StatusBadRequest, errors.New("the body has a result and an error; say one")
	case b.Error == nil && b.Fatal:
		return b, http.StatusBadRequest, errors.New("fatal is true, but there is no error")
	case len(b.Result) > model.MaxResultBytes:
		return b, http.StatusRequestEntityTooLarge, errors.New("the result is larger than 1 MiB")
	default:
		return b, http.StatusOK, nil
	}
}

// usable says why a token is not good any more; 200 when it is.
func usable(ctx context.Context, p *producer.Producer, method string, h model.Handle) (int, CallbackAnswer) {
	t, err := p.Get(ctx, h.TaskID)
	var target *HTTPTarget
	if err == nil {
		target = waitingTarget(t)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return refuse(http.StatusNotFound, "unknown", "the run of this token is not known any more")
	case err != nil:
		return refuse(http.StatusServiceUnavailable, "later", "the database does not answer; send it again")
	case t.Generation != h.Generation:
		return refuse(http.StatusGone, "gone", "the task was started anew since this token was handed out")
	case target == nil:
		return refuse(http.StatusNotFound, "unknown", "the run of this token waits for no callback: the answer to its call decides it")
	case target.CallbackMethod != "" && target.CallbackMethod != method:
		return refuse(http.StatusMethodNotAllowed, "method", "the callback of this run must be a "+target.CallbackMethod)
	}
	_, w := t.Execution(h.ExecID)
	switch {
	case w == nil:
		return refuse(http.StatusGone, "gone", "the run went on without this callback")
	case w.Open() && t.Status.Ended():
		return refuse(http.StatusGone, "gone", "the run has ended as "+string(t.Status))
	case w.Open():
		return http.StatusOK, CallbackAnswer{}
	case w.FailKind == "", w.FailKind == model.FailError, w.FailKind == model.FailFatal:
		return refuse(http.StatusConflict, "repeated", "the outcome is known already: "+outcomeText(w))
	default:
		return refuse(http.StatusGone, "gone", "the run went on without this callback ("+string(w.FailKind)+"): "+w.FailReason)
	}
}

// waitingTarget returns the target of a run that a callback decides, else nil. No other target
// gets a token, but every target gets an execution's id, and a token can be made from it.
func waitingTarget(t *model.Task) *HTTPTarget {
	var target HTTPTarget
	if json.Unmarshal(model.ValueJSON(t.Args), &target) != nil || target.Waits() == 0 {
		return nil
	}
	return &target
}

func outcomeText(w *model.WorkerState) string {
	if w.FailKind == "" {
		return "a success"
	}
	return "an error: " + w.FailReason
}
