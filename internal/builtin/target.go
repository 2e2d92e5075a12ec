package builtin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/httptarget"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// These headers tell a target where to send its completion, and by which method if the rule names
// one. Targets know them by these names.
const (
	completionURLHeader    = "Mscheduler-Callback-Url"
	completionMethodHeader = "Mscheduler-Callback-Method"
)

var errNoCompletionURL = errors.New("the call of an ASYNC target requires a public completion URL, and this worker has none (--completion-url)")

// targetHandler makes the calls of periodic rules.
type targetHandler struct {
	*httpHandler
	completionURL string // without the token; "" = none
}

// handle makes the call of one run. In mode ASYNC the token that names this execution goes out
// with the call, so the completion may come at any time from then on; one that comes before the
// execution is parked wins.
func (h *targetHandler) handle(ctx context.Context, t *consumer.Task[json.RawMessage]) (HTTPResult, error) {
	var target httptarget.Target
	err := json.Unmarshal(t.Args, &target)
	if err != nil {
		return HTTPResult{}, consumer.Fatal(argsError(err))
	}
	if target.Headers, err = h.OpenHeaders(target.Headers); err != nil {
		return HTTPResult{}, verdict(err)
	}
	if err := target.Check("args"); err != nil {
		return HTTPResult{}, consumer.Fatal(err)
	}
	waits := target.Waits()
	if waits > 0 && h.completionURL == "" {
		return HTTPResult{}, consumer.NotHere(errNoCompletionURL)
	}
	out, err := h.recorded(ctx, &target, t.Execution)
	switch {
	case err != nil:
		return HTTPResult{}, err
	case waits > 0:
		return HTTPResult{}, consumer.Park(t.Now().Add(waits))
	default:
		return out, nil
	}
}

// recorded makes the call and keeps request and answer in the task, for the run's record. What
// cannot be kept does not fail the run. A completion may end the execution before the answer is
// there: in mode ASYNC the request is kept before the call.
func (h *targetHandler) recorded(ctx context.Context, target *httptarget.Target, e *consumer.Execution) (HTTPResult, error) {
	call, shown, err := h.call(target, e)
	if err != nil {
		return HTTPResult{}, consumer.Fatal(fmt.Errorf("filling the request: %w", err))
	}
	kept := httptarget.Kept{Call: &schedule.HTTPCall{At: clock.Millis(e.Now()), Attempt: e.Attempt, Request: shown.Record()}}
	keep := func() error { return e.Checkpoint(ctx, kept) }
	if target.Waits() > 0 {
		if err := keep(); errors.Is(err, model.ErrFenced) {
			return HTTPResult{}, err // another worker has the task: it makes the call
		}
	}
	began := clock.Read(h.clock)
	out, err := h.Do(ctx, call)
	kept.Call.Took = began.SinceMonotonic(h.clock).Milliseconds()
	kept.Call.Response, kept.Call.Error = out.Record(), httpcall.RecordError(err)
	_ = keep() // nothing more can be kept of an execution that a completion has ended
	return out, verdict(err)
}

// call fills the request of a run. shown is the same without the completion URL, which allows its
// holder to end the run.
func (h *targetHandler) call(target *httptarget.Target, e *consumer.Execution) (call, shown httpcall.Call, err error) {
	v, by := values(e), callerOf(h.workerID, e)
	worker := by.header()
	if target.Waits() > 0 {
		v.CompletionURL = strings.TrimSuffix(h.completionURL, "/") + "/" + e.Handle
		worker.Set(completionURLHeader, v.CompletionURL)
		if target.CompletionMethod != "" {
			worker.Set(completionMethodHeader, target.CompletionMethod)
		}
	}
	if call, err = target.Fill(v); err != nil {
		return call, shown, err
	}
	if v.CompletionURL != "" {
		v.CompletionURL, call.Hide = safetext.Hidden, e.Handle
	}
	if shown, err = target.Fill(v); err != nil {
		return call, shown, err
	}
	call.Worker, call.Keep = worker, h.limit
	if len(target.Keys) > 0 {
		// The same for every try, as Idempotency-Key is, in letters that a signature may have.
		sum := sha256.Sum256([]byte(by.lifeID))
		call.Sign = &httpcall.Signature{ID: "call_" + hex.EncodeToString(sum[:16]), At: e.Now(), Keys: target.Keys}
	}
	return call, shown, nil
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
