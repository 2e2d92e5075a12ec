//go:build unix

package chaos

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/promises"
	"github.com/mscheduler/mscheduler/model"
)

// target is the URL of the target, as a process knows it.
type target string

const (
	lookEvery = 10 * time.Millisecond  // at whether the execution may go on
	stalled   = 100 * time.Millisecond // between two looks: the process was frozen, or the machine was busy
)

// The headers are those of the built-in type http.
const (
	headerKey   = "Idempotency-Key"
	headerToken = "Mscheduler-Fencing-Token"
)

// call is what an execution tells the target.
type call struct {
	What   string // begin, alive, effect, end
	Exec   string
	Type   string
	Worker string
	At     time.Time
	Spans  []span
	Step   string // the value of its step; "" = it has none
	Err    string
}

// span is a time in which an execution ran without a stall, and its context had not ended.
type span struct{ From, To time.Time }

// stay is the execution of a handler, on the side of the worker.
type stay struct {
	target
	ctx   context.Context
	e     *consumer.Execution
	told  time.Time
	spans []span
	step  string
}

func (t target) begin(ctx context.Context, worker string, e *consumer.Execution) *stay {
	s := &stay{target: t, ctx: ctx, e: e, told: time.Now()}
	s.post(call{What: "begin", Type: e.Type, Worker: worker, At: s.told})
	return s
}

// stay lets time pass, unless the context ends and the handler is not deaf. It notes when the context had not ended yet.
func (s *stay) stay(d time.Duration, deaf bool) {
	for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(lookEvery) {
		if s.look(); s.ctx.Err() != nil && !deaf {
			return
		}
		if time.Since(s.told) > 500*time.Millisecond { // in case it is killed
			s.told = time.Now()
			s.post(call{What: "alive", At: s.told})
		}
	}
}

// look: if the context has not ended now, then it had not ended a moment ago either.
func (s *stay) look() {
	now := time.Now()
	if s.ctx.Err() != nil {
		return
	}
	s.spans = joined(s.spans, span{now, now})
}

// joined adds a span, to the last one if nothing stalled between them.
func joined(spans []span, next span) []span {
	if n := len(spans); n > 0 && next.From.Sub(spans[n-1].To) < stalled {
		spans[n-1].To = next.To
		return spans
	}
	return append(spans, next)
}

// effect has the effect, unless it is refused.
func (s *stay) effect() bool { return s.post(call{What: "effect", At: time.Now()}) }

func (s *stay) end(err error) {
	c := call{What: "end", At: time.Now()}
	if err != nil {
		c.Err = err.Error()
	}
	s.post(c)
}

// post reports whether the target accepts the call. A process without a target has lost its parent.
func (s *stay) post(c call) bool {
	s.look()
	c.Exec, c.Spans, c.Step = s.e.ID, s.spans, s.step
	s.spans = nil
	body, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, string(s.target), bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set(headerKey, s.e.TaskID)
	req.Header.Set(headerToken, s.e.Token.String())
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = res.Body.Close() // it is empty
	return res.StatusCode == http.StatusOK
}

// ledger is what the target knows of one task.
type ledger struct {
	newest  string // token of an effect, or of an execution that has begun
	effects int    // that were applied: one
	execs   map[string]*visit
	order   []string
}

// visit is an execution, as the target saw it.
type visit struct {
	promises.Execution
	kind, worker, token string
	accepted, refused   bool // its effect
	step                string
	spans               []span
	known               time.Time // the last call
}

// effects is the target: it applies the effect of each task once, and refuses one that is late.
type effects struct {
	*httptest.Server
	mu       sync.Mutex
	tasks    map[string]*ledger
	execs    int
	repeated int // effects of a task that had been applied before
	refused  int // effects with a token that is not the greatest
}

func newEffects() *effects {
	f := &effects{tasks: map[string]*ledger{}}
	f.Server = httptest.NewServer(f)
	return f
}

func (f *effects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var c call
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if !f.take(r.Header.Get(headerKey), r.Header.Get(headerToken), c) {
		w.WriteHeader(http.StatusConflict)
	}
}

// take notes a call; false = it comes too late.
func (f *effects) take(key, token string, c call) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.tasks[key]
	if l == nil {
		l = &ledger{execs: map[string]*visit{}}
		f.tasks[key] = l
	}
	v := l.execs[c.Exec]
	if v == nil {
		v = &visit{Execution: promises.Execution{Name: c.Exec, Began: c.At}, kind: c.Type, worker: c.Worker, token: token}
		l.execs[c.Exec], l.order = v, append(l.order, c.Exec)
		f.execs++
	}
	v.known, v.step = c.At, c.Step
	for _, s := range c.Spans {
		v.spans = joined(v.spans, s)
	}
	l.newest = max(l.newest, token)
	switch c.What {
	case "effect":
		if token < l.newest {
			f.refused++
			v.refused = true
			return false
		}
		v.accepted = true
		if l.effects > 0 {
			f.repeated++
			return true // as before: the key is known
		}
		l.effects++
	case "end":
		v.Ended, v.Err = c.At, c.Err
	}
	return true
}

// grace is for how long an execution may go on after another has begun: as long as a process that wakes takes to hear
// that it has lost its lease.
const grace = 300 * time.Millisecond

// check looks at what the target saw of the tasks as they are stored in the end.
func (f *effects) check(s *promises.Stored, violated func(task, format string, values ...any)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ran := promises.Ran{}
	var limited []span
	streams := map[string][]span{}
	for id, l := range f.tasks {
		tokens, step := map[string]bool{}, ""
		t := s.Tasks[id]
		for _, exec := range l.order {
			v := l.execs[exec]
			ran[id] = append(ran[id], &v.Execution)
			for _, later := range l.execs {
				if d := v.wentOn(later); d > grace {
					violated(id, "an execution of %s on %s held it for %v after another had begun on %s", id, v.worker, d, later.worker)
				}
			}
			if v.kind == promises.Limited {
				limited = append(limited, v.spans...)
			}
			if v.kind == promises.Link && t != nil {
				streams[t.Origin.ID] = append(streams[t.Origin.ID], v.spans...)
			}
			if v.step != "" && step != "" && v.step != step {
				violated(id, "a step of %s had the value %s, and then %s", id, step, v.step)
			}
			step = cmp.Or(step, v.step)
			if tokens[v.token] {
				violated(id, "two executions of %s have the fencing token %s", id, v.token)
			}
			tokens[v.token] = true
		}
		if t == nil || t.Status != model.StatusSuccess {
			continue
		}
		if l.effects != 1 {
			violated(id, "%s succeeded, and its effect was applied %d times", id, l.effects)
		}
		if v := l.execs[promises.Result(t)]; v != nil && (v.refused || !v.accepted) {
			violated(id, "%s succeeded by %s, whose effect was refused", id, v.Name)
		}
	}
	if d := crowded(limited, promises.AtOnce); d > grace {
		violated("", "more than %d tasks of the type %s ran at once for %v", promises.AtOnce, promises.Limited, d)
	}
	for id, live := range streams {
		if d := crowded(live, 1); d > grace {
			violated("", "two nodes of the stream %s ran at once for %v", id, d)
		}
	}
	s.Check(ran, violated)
}

// cutOff counts the executions that were going on when their process was killed, and those of them after which the
// task ran again.
func (f *effects) cutOff(kills []kill) (n, again int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.tasks {
		for _, v := range l.execs {
			if v.Ended.IsZero() && slices.ContainsFunc(kills, func(k kill) bool { return k.name == v.worker && v.Began.Before(k.at) }) {
				if n++; l.newest > v.token {
					again++
				}
			}
		}
	}
	return n, again
}

// wentOn is for how long an execution went on without a stall after a later one, by its token, had begun.
func (v *visit) wentOn(later *visit) (longest time.Duration) {
	if later.token <= v.token {
		return 0
	}
	for _, s := range v.spans {
		from := s.From
		if later.Began.After(from) {
			from = later.Began
		}
		longest = max(longest, s.To.Sub(from))
	}
	return longest
}

// crowded is the longest time in which there are more than so many spans at once.
func crowded(spans []span, most int) (longest time.Duration) {
	type change struct {
		at time.Time
		by int
	}
	var changes []change
	for _, s := range spans {
		changes = append(changes, change{s.From, 1}, change{s.To, -1})
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	n, since := 0, time.Time{}
	for _, c := range changes {
		if n > most {
			longest = max(longest, c.at.Sub(since))
		}
		if n += c.by; n == most+1 && c.by > 0 {
			since = c.at
		}
	}
	return longest
}

// tell is the history of a task, for people.
func (f *effects) tell(id string) (lines []line) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.tasks[id]
	if l == nil {
		return nil
	}
	for _, exec := range l.order {
		v := l.execs[exec]
		lines = append(lines, line{v.Began, v.worker, fmt.Sprintf("begins %s, token %s", exec, v.token)})
		for _, s := range v.spans {
			lines = append(lines, line{s.From, v.worker, fmt.Sprintf("has it, for %v", s.To.Sub(s.From))})
		}
		effect := map[bool]string{true: "its effect was accepted", false: "without effect"}[v.accepted]
		if v.refused {
			effect = "its effect was refused"
		}
		if v.Ended.IsZero() {
			lines = append(lines, line{v.known, v.worker, fmt.Sprintf("is not heard of again, %s", effect)})
		} else {
			lines = append(lines, line{v.Ended, v.worker, fmt.Sprintf("ends, %s: %s", effect, map[bool]string{true: "success", false: v.Err}[v.Err == ""])})
		}
	}
	return lines
}
