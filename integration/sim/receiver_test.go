package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// receivers is the server that gets the callbacks of all worlds. It is none of them: it answers at once, while time
// stands still in the world that calls. Each answer ends its connection, since one that waits would hold up time.
var receivers = &receiving{worlds: map[string]*world{}}

type receiving struct {
	server *httptest.Server
	mu     sync.Mutex
	opened int
	worlds map[string]*world
}

// open has a world receive callbacks until close.
func (r *receiving) open(w *world) (closes func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened++
	path := fmt.Sprintf("/%d", r.opened)
	w.receiver = receiver{url: r.server.URL + path, draw: newChance(w.seed, 5), got: map[string]*delivered{}}
	r.worlds[path] = w
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.worlds, path)
	}
}

func (r *receiving) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	r.mu.Lock()
	w := r.worlds[in.URL.Path]
	r.mu.Unlock()
	out.Header().Set("Connection", "close")
	if w == nil {
		out.WriteHeader(http.StatusGone)
		return
	}
	w.receives(out, in)
}

// receiver is that of one world.
type receiver struct {
	url  string
	draw *chance
	mu   sync.Mutex
	got  map[string]*delivered // by the id of the delivery
}

// delivered is what the receiver knows of one id.
type delivered struct {
	body     []byte
	times    int
	accepted bool // it was answered so; the sender may not have heard it
}

var receiverKey = callback.Key{AccessKey: "sim", Secret: "a secret of the receiver"}

// callback has every end told to the receiver.
func (r *receiver) callback() model.Callback {
	to := &model.CallbackTarget{URL: r.url}
	return model.Callback{Success: to, Error: to, OnPending: true, Security: &model.CallbackSecurity{Type: model.SecurityAKSK, Keys: []callback.Key{receiverKey}}}
}

// receives takes a callback. At times it refuses it, or its answer is lost.
func (w *world) receives(out http.ResponseWriter, in *http.Request) {
	// The worlds are in another century.
	d, err := callback.Verifier{Keys: []callback.Key{receiverKey}, Window: 200 * 365 * 24 * time.Hour}.Verify(in)
	if err != nil {
		w.violated("a callback cannot be verified: %v", err)
		out.WriteHeader(callback.Status(err))
		return
	}
	r := &w.receiver
	r.mu.Lock()
	defer r.mu.Unlock()
	got := r.got[d.ID]
	if got == nil {
		got = &delivered{body: d.Body}
		r.got[d.ID] = got
	}
	got.times++
	if !bytes.Equal(got.body, d.Body) {
		w.violated("the callback %s was %s, and is %s", d.ID, got.body, d.Body)
	}
	mayFail := !w.healed.Load() && got.times == 1 // the third try is a minute later
	if mayFail && r.draw.of(0.3) {
		w.note("receiver", "refuses %s", d.ID)
		out.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	got.accepted = true
	w.note("receiver", "takes %s, for the %d. time", d.ID, got.times)
	if mayFail && r.draw.of(0.2) {
		panic(http.ErrAbortHandler) // the answer is lost
	}
}

// checkCallbacks: every end has reached the receiver, and says how the life ended; nothing else has. The ends of all
// lives are told, also of those that a person has begun again since.
func (w *world) checkCallbacks(f *found) {
	if !w.callbacks {
		return
	}
	w.receiver.mu.Lock()
	defer w.receiver.mu.Unlock()
	known := map[string]bool{}
	for _, t := range f.lives {
		if t.Options.Callback == nil {
			continue
		}
		// A past life has another id.
		id := lifecycle.DeliveryKey(model.TaskID(t.Tenant, t.Type, t.Key), t.Generation)
		known[id] = true
		got := w.receiver.got[id]
		switch {
		case t.Status == model.StatusCancelled:
			if got != nil {
				w.violated("the callback of %s, which was cancelled, was delivered", t.ID)
			}
		case t.Status == model.StatusManuallyProcessed: // whoever resolves a task before its callback arrived knows of it
		case got == nil || !got.accepted:
			w.violated("the callback of %s, which ended as %s, was not delivered", t.ID, t.Status)
		default:
			w.checkBody(t, got)
		}
	}
	for id := range w.receiver.got {
		if !known[id] {
			w.violated("the callback %s is of no life of a task", id)
		}
	}
}

// checkBody compares a callback with the life that it is about.
func (w *world) checkBody(t *model.Task, got *delivered) {
	var body callback.Body
	if err := json.Unmarshal(got.body, &body); err != nil {
		w.violated("the callback of %s is no JSON: %v", t.ID, err)
		return
	}
	result, _ := t.Result.StringValueOK()
	told := strings.Trim(string(body.Result), `"`)
	failed := !t.Status.Succeeded() && (body.TaskID != model.TaskID(t.Tenant, t.Type, t.Key) || body.ErrorInfo != t.ErrorInfo)
	if t.Status.Succeeded() && told != result || failed {
		w.violated("the callback of %s, which ended as %s with %q, says %s", t.ID, t.Status, result, got.body)
	}
}
