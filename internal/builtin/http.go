package builtin

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/httpcall"
	"github.com/mscheduler/mscheduler/internal/secret"
)

// httpHandler makes the calls of tasks, with what those of the type http and those of rules share.
type httpHandler struct {
	*httpcall.Caller
	workerID string
	limit    int
	clock    clock.Clock
}

func newHTTPHandler(o HTTPOptions, secrets *secret.Box) *httpHandler {
	h := &httpHandler{limit: orDefault(o.BodyLimit), clock: clock.System()}
	h.Caller = httpcall.New(o.Reach, secrets, h.clock.Now)
	return h
}

func (h *httpHandler) handle(ctx context.Context, t *consumer.Task[json.RawMessage]) (HTTPResult, error) {
	var args HTTPArgs
	if err := decode(t.Args, &args, false); err != nil {
		return HTTPResult{}, consumer.Fatal(err)
	}
	call := args.call()
	call.Worker, call.Keep = callerOf(h.workerID, t.Execution).header(), h.limit
	out, err := h.Do(ctx, call)
	return out, verdict(err)
}

// verdict turns the error of a call into that of a handler.
func verdict(err error) error {
	var v *httpcall.VerdictError
	switch {
	case errors.As(err, new(*httpcall.TimeoutError)):
		return consumer.TimedOut(err)
	case !errors.As(err, &v):
		return err
	case v.NotHere:
		return consumer.NotHere(err)
	case v.Fatal:
		return consumer.Fatal(err)
	default:
		return err
	}
}
