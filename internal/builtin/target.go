package builtin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// completionURLHeader tells a target where its answer is to be sent.
const completionURLHeader = "Mscheduler-Callback-Url"

// completionMethodHeader tells it by which method, where the rule names one.
const completionMethodHeader = "Mscheduler-Callback-Method"

var errNoCompletionURL = errors.New("this worker has no public URL for completions (--completion-url), which the call of an ASYNC target must name")

// targetHandler makes the calls of periodic rules.
type targetHandler struct {
	TargetOptions
	http *httpHandler
}

// handle makes the call of one run. In mode ASYNC the token that names this execution
// goes out with the call, so the completion may come at any time from then on; one that comes
// before the execution is parked wins.
func (h *targetHandler) handle(ctx context.Context, t *consumer.Task[json.RawMessage]) (HTTPResult, error) {
	var target httptarget.Target
	err := json.Unmarshal(t.Args, &target)
	if err != nil {
		return HTTPResult{}, consumer.Fatal(argsError(err))
	}
	if target.Headers, err = h.Secrets.OpenHeaders(target.Headers); err != nil {
		return HTTPResult{}, sealedError(err)
	}
	if err := target.Check("args"); err != nil {
		return HTTPResult{}, consumer.Fatal(err)
	}
	waits := target.Waits()
	if waits > 0 && h.CompletionURL == "" {
		return HTTPResult{}, consumer.NotHere(errNoCompletionURL)
	}
	call, cancel := context.WithTimeoutCause(ctx, target.Limit(), errCallTimeout)
	defer cancel()
	a, req, err := h.request(call, &target, t.Execution)
	if err != nil {
		return HTTPResult{}, sealedError(err)
	}
	out, err := h.recorded(ctx, &target, t.Execution, func() (HTTPResult, error) { return h.http.do(call, req, a) })
	switch {
	case err != nil:
		return HTTPResult{}, timedOut(err)
	case waits > 0:
		return HTTPResult{}, consumer.ParkFor(waits)
	default:
		return out, nil
	}
}

// recorded makes the call and keeps request and answer in the task, for the run's record. What
// cannot be kept does not fail the run. A completion may end the execution before the
// answer is there: in mode ASYNC the request is kept before the call.
func (h *targetHandler) recorded(ctx context.Context, target *httptarget.Target, e *consumer.Execution, do func() (HTTPResult, error)) (HTTPResult, error) {
	v := values(e)
	v.CompletionURL = h.completionURL(target, e)
	request, err := target.KeptRequest(v, secret.HideHeaders)
	if err != nil {
		return HTTPResult{}, fmt.Errorf("filling the request: %w", err)
	}
	kept := httptarget.Kept{Call: &schedule.HTTPCall{At: clock.Millis(e.Now()), Attempt: e.Attempt, Request: request}}
	keep := func() error { return e.Checkpoint(ctx, kept) }
	if target.Waits() > 0 {
		if err := keep(); errors.Is(err, model.ErrFenced) {
			return HTTPResult{}, err // another worker has the task: it makes the call
		}
	}
	began := clock.Read(h.http.clock)
	out, err := do()
	kept.Call.Took = began.SinceMonotonic(h.http.clock).Milliseconds()
	if out.Status != 0 {
		kept.Call.Response = httptarget.KeptResponse(out.Status, out.Headers, out.Body, out.Encoding, out.Truncated)
	}
	if err != nil {
		kept.Call.Error = httptarget.KeptError(err)
	}
	_ = keep() // nothing more can be kept of an execution that a completion has ended
	return out, err
}

// completionURL is where the target sends its answer; "" if the run waits for none.
func (h *targetHandler) completionURL(target *httptarget.Target, e *consumer.Execution) string {
	if target.Waits() == 0 {
		return ""
	}
	return strings.TrimSuffix(h.CompletionURL, "/") + "/" + e.Handle
}

// sealedError is final, unless another worker may have the key to a secret.
func sealedError(err error) error {
	if errors.Is(err, secret.ErrNoKey) || errors.Is(err, secret.ErrUnknownKey) {
		return consumer.NotHere(err)
	}
	return consumer.Fatal(err)
}

// request fills and signs the request of a run.
func (h *targetHandler) request(ctx context.Context, target *httptarget.Target, e *consumer.Execution) (*HTTPArgs, *http.Request, error) {
	v := values(e)
	v.CompletionURL = h.completionURL(target, e)
	r, err := target.Fill(v)
	if err != nil {
		return nil, nil, fmt.Errorf("filling the request: %w", err)
	}
	a := &HTTPArgs{URL: r.URL, Method: r.Method, Headers: r.Headers, TimeoutMS: target.Limit().Milliseconds(), Expect: target.Expect}
	if r.Body != "" {
		if a.Body, err = json.Marshal(r.Body); err != nil {
			return nil, nil, fmt.Errorf("filling the body: %w", err)
		}
	}
	req, err := newRequest(ctx, a, callerOf(h.http.workerID, e))
	if err != nil {
		return nil, nil, err
	}
	if v.CompletionURL != "" {
		req.Header.Set(completionURLHeader, v.CompletionURL)
		if target.CompletionMethod != "" {
			req.Header.Set(completionMethodHeader, target.CompletionMethod)
		}
	}
	return a, req, h.sign(req, target.Keys, e, r.Body)
}

// callID names the call of a run in its signature, the same for every try: as
// Idempotency-Key does, in letters that a signature may have.
func callID(e *consumer.Execution) string {
	sum := sha256.Sum256([]byte(callerOf("", e).lifeID))
	return "call_" + hex.EncodeToString(sum[:16])
}

// sign signs the call as callbacks are, at the database's time: the target compares it with
// its own clock, and that of this machine may be wrong.
func (h *targetHandler) sign(req *http.Request, sealed []model.CallbackKey, e *consumer.Execution, body string) error {
	if len(sealed) == 0 {
		return nil
	}
	keys, err := h.Secrets.CallbackKeys(&model.CallbackSecurity{Type: model.SecurityAKSK, Keys: sealed})
	if err != nil {
		return fmt.Errorf("signing the call: %w", err)
	}
	return callback.Sign(req.Header, callID(e), e.Now(), []byte(body), keys...)
}

// values are what placeholders stand for. A task that no rule made is its own run.
func values(e *consumer.Execution) httptarget.Values {
	v := httptarget.Values{RunID: e.Key, TaskID: e.TaskID, NominalTime: e.DueAt, Attempt: e.Attempt}
	if e.Origin != nil && e.Origin.Tick != nil {
		tick := e.Origin.Tick
		v.RunID, v.Name, v.NominalTime, v.Attempt = tick.Run, tick.Rule, tick.Nominal, tick.Attempt
		if tick.Ext.Type != 0 {
			v.Ext = e.Ext()
		}
	}
	return v
}
