package periodic

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/command"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// maxCompletionBytes bounds the body of a completion: a result of 1 MiB and what surrounds it.
const maxCompletionBytes = input.MaxResultBytes + 4<<10

// CompletionHandler accepts the completions of ASYNC targets. Register it at the path /api/v1/callbacks/. It
// takes POST or PUT /api/v1/callbacks/{token} with {"result": any JSON} or {"error": "why it failed"}. An error is
// retried as the rule says, unless "fatal" or "plan_error" is true. A field that is null counts as absent, and an
// empty body is a success without a result. A token is valid for one completion, from the call of
// the target until the rule's callback timeout. A refused completion is answered with
// {"error": "...", "reason": "..."}:
//
//	400 invalid    the body is none of these
//	405 method     the target's CompletionMethod is another one; the header Allow names it
//	404 unknown    the token names no run that waits for a completion
//	409 repeated   the run is already completed
//	410 gone       the run no longer waits: it timed out, was cancelled, ended or was retried
//	413 too_large  the result is larger than 1 MiB
//	503 later      the database does not answer; send the completion again
func CompletionHandler(p *producer.Producer) http.Handler {
	mux := http.NewServeMux()
	take := func(w http.ResponseWriter, r *http.Request) {
		body := http.MaxBytesReader(w, r.Body, int64(maxCompletionBytes))
		status, answer := takeCompletion(r.Context(), p, r.Method, r.PathValue("token"), body)
		_, _ = io.Copy(io.Discard, body) // else a target that is still writing might not read the answer
		w.Header().Set("Content-Type", "application/json")
		if status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", otherMethod[r.Method])
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer) // whoever called is gone
	}
	for _, method := range []string{http.MethodPost, http.MethodPut} {
		mux.HandleFunc(method+" "+httptarget.CompletionPath+"{token}", take)
	}
	return mux
}

// otherMethod returns the method that the target allows if it is another one.
var otherMethod = map[string]string{http.MethodPost: http.MethodPut, http.MethodPut: http.MethodPost}

// completionAnswer is the answer to a completion.
type completionAnswer struct {
	TaskID string `json:"task_id,omitempty"` // of an accepted completion
	Error  string `json:"error,omitempty"`
	Reason string `json:"reason,omitempty"` // for programs, see [CompletionHandler]
}

func refuse(status int, reason, text string) (int, completionAnswer) {
	return status, completionAnswer{Error: text, Reason: reason}
}

// completionBody is what a target sends.
type completionBody struct {
	Result    json.RawMessage `json:"result"`
	Error     *string         `json:"error"`
	Fatal     bool            `json:"fatal"`
	PlanError bool            `json:"plan_error"`
}

func takeCompletion(ctx context.Context, p *producer.Producer, method, token string, body io.Reader) (int, completionAnswer) {
	h, err := input.ParseHandle(token)
	if err == nil {
		_, typ, _, idErr := input.ParseTaskID(h.TaskID)
		if idErr != nil || typ != httptarget.TaskType {
			err = errors.New("another type")
		}
	}
	if err != nil {
		return refuse(http.StatusNotFound, "unknown", "unknown token")
	}
	if status, answer := usable(ctx, p, method, h); status != http.StatusOK { // the token is the right to have a body read
		return status, answer
	}
	b, status, err := readCompletion(body)
	if err != nil {
		reason := "invalid"
		if status == http.StatusRequestEntityTooLarge {
			reason = "too_large"
		}
		return refuse(status, reason, err.Error())
	}
	if b.Error != nil {
		_, err = p.Fail(ctx, token, *b.Error, producer.Failure{Fatal: b.Fatal, PlanError: b.PlanError})
	} else {
		_, err = p.Complete(ctx, token, b.Result)
	}
	var late *lifecycle.LateError
	switch {
	case err == nil:
		return http.StatusOK, completionAnswer{TaskID: h.TaskID}
	case errors.As(err, &late):
		return refuse(http.StatusGone, "gone", "the callback timeout expired at "+late.Until.UTC().Format(clock.Format))
	case errors.Is(err, model.ErrFenced):
		if status, answer := usable(ctx, p, method, h); status != http.StatusOK {
			return status, answer
		}
		return refuse(http.StatusGone, "gone", "the run no longer waits for this completion")
	case errors.Is(err, store.ErrNotFound):
		return refuse(http.StatusNotFound, "unknown", "the run of this token no longer exists")
	case errors.Is(err, model.ErrInvalid):
		return refuse(http.StatusBadRequest, "invalid", err.Error())
	default:
		return refuse(http.StatusServiceUnavailable, "later", "the completion could not be stored; send it again")
	}
}

func readCompletion(body io.Reader) (b completionBody, status int, err error) {
	dec := json.NewDecoder(body)
	dec.DisallowUnknownFields()
	err = dec.Decode(&b)
	if errors.Is(err, io.EOF) {
		return completionBody{}, http.StatusOK, nil
	}
	if err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more than one JSON value")
		}
	}
	if string(b.Result) == "null" {
		b.Result = nil // as good as absent
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return b, http.StatusRequestEntityTooLarge, errors.New("the body is larger than 1 MiB, the limit of a result")
	case err != nil:
		return b, http.StatusBadRequest, errors.New(`the body is not {"result": ...} or {"error": "..."}: ` + err.Error())
	case b.Error != nil && len(b.Result) > 0:
		return b, http.StatusBadRequest, errors.New("the body has both result and error; want one of them")
	case b.Error == nil && (b.Fatal || b.PlanError):
		return b, http.StatusBadRequest, errors.New("fatal or plan_error is true without an error")
	case len(b.Result) > input.MaxResultBytes:
		return b, http.StatusRequestEntityTooLarge, errors.New("the result is larger than 1 MiB")
	default:
		return b, http.StatusOK, nil
	}
}

// usable reports why a token cannot complete its run; 200 if it can. What refuses it stays: a target does not ask again.
func usable(ctx context.Context, p *producer.Producer, method string, h input.Handle) (int, completionAnswer) {
	later := func() (int, completionAnswer) {
		return refuse(http.StatusServiceUnavailable, "later", "the database does not answer; send the completion again")
	}
	for {
		t, err := p.Get(ctx, h.TaskID)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return refuse(http.StatusNotFound, "unknown", "the run of this token no longer exists")
		case err != nil:
			return later()
		}
		status, answer := waits(t, method, h)
		if status == http.StatusOK || !t.ArchivedAt.IsZero() {
			return status, answer
		}
		switch stays, err := command.Of(p).Store.Tasks.Stays(ctx, t); {
		case err != nil:
			return later()
		case stays:
			return status, answer
		}
	}
}

// waits reports why a token cannot complete the run of a task; 200 if it can.
func waits(t *model.Task, method string, h input.Handle) (int, completionAnswer) {
	target := waitingTarget(t)
	switch {
	case t.Generation != h.Generation:
		return refuse(http.StatusGone, "gone", "the task was started again after this token was issued")
	case target == nil:
		return refuse(http.StatusNotFound, "unknown", "the run of this token waits for no completion: the answer to its call decides it")
	case target.CompletionMethod != "" && target.CompletionMethod != method:
		return refuse(http.StatusMethodNotAllowed, "method", "the completion of this run must be a "+target.CompletionMethod)
	}
	_, w := h.Execution(t)
	switch {
	case w == nil:
		return refuse(http.StatusGone, "gone", "the run no longer waits for this completion")
	case lifecycle.Open(w) && t.Status.Ended():
		return refuse(http.StatusGone, "gone", "the run has ended as "+string(t.Status))
	case lifecycle.Open(w):
		return http.StatusOK, completionAnswer{}
	case w.FailKind == "", w.FailKind == failkind.Error, failkind.Final(w.FailKind):
		return refuse(http.StatusConflict, "repeated", "the run is already completed: "+outcomeText(w))
	default:
		return refuse(http.StatusGone, "gone", "the run no longer waits for this completion ("+w.FailKind+"): "+w.FailReason)
	}
}

// waitingTarget returns the target of a run that waits for a completion, or nil. No other target
// gets a token, but whoever reads the database can make one.
func waitingTarget(t *model.Task) *httptarget.Target {
	var target httptarget.Target
	if json.Unmarshal(codec.ValueJSON(t.Args), &target) != nil || target.Waits() == 0 {
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
