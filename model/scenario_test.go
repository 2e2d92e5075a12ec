package model

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// TestScenarios runs testdata/*.txt: one command, and under ---- what became of the
// task and the update that Diff makes of it. Times count from the start of the file.
// `go test ./model -run Scenarios -rewrite` writes the outputs anew: read the diff.
//
//	new [key=] [n=] [start=] [held] [retry=none|fixed:10s|seq:1s,5s|exp] [max-errors=] [max-lapses=]
//	    [per-worker=] [manual] [timeout=] [lease=] [workers=(a,b)] [args=] [priority=] [retention=]
//	    [tenant=] [creator=] [category=] [claim-by=] [callback=success|error|both] [expires=] [origin=]
//	type …           the same options, said by the type's document: everybody knows them
//	handler …        and by the handlers: only workers know them, and what they left in the task
//	claim w          w becomes an execution; take w: ends what lapsed and claims, in one write
//	ping w           extends the lease of w's execution
//	finish w ok [result=] [quiet] | error | fatal | panic | timeout | snooze 5s | retry-after 5s | release | cancel | undecodable
//	deliver ok|failed   the callback's delivery has ended; carried-out: the outbox is empty
//	park w 1h        expire, leave, cancel, retry, resolve, release, repair
//	step w name      w's execution saves a step, as the store does; retry-from name
//	steps w          the names of the steps that w need not do again
//	update …, send-again [update-args] [update-idle] [restart-failed] [restart-succeeded] …
//	advance 10s      moves the clock
//	can w            what w would be told; must-stop w
//
// An execution is called w.1 after its worker and the number of its claim. A command
// by w means w's last execution; `finish w.1 ok` a certain one.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			s := &scenario{now: epoch, claims: map[string]int{}}
			datadriven.RunTest(t, file, s.run)
		})
	}
}

type scenario struct {
	task    *Task
	handler Options
	typ     Options
	now     time.Time
	claims  map[string]int
}

// said is what type and handler together say to their tasks, as a worker puts it.
func (s *scenario) said() *Options {
	if said := Overlay(s.typ, s.handler); !said.IsZero() {
		return &said
	}
	return nil
}

// eff are the options as a worker sees them; a person's process does not know the handlers.
func (s *scenario) eff() Effective { return ResolveOptions(s.task.Options, s.typ, s.handler) }

func (s *scenario) person() Effective { return s.task.Effective(s.typ) }

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	a := scenarioArgs{t: t, d: d}
	before := s.task
	switch d.Cmd {
	case "advance":
		s.now = s.now.Add(a.duration(a.word(0)))
		return "t=" + span(s.now)
	case "handler":
		s.handler = a.options(Options{})
		return "ok"
	case "type":
		s.typ = a.options(Options{})
		return "ok"
	case "can":
		if no := Claimable(s.task, a.word(0), s.eff(), s.now); no != "" {
			stale := ""
			if no.Stale() {
				stale = " (stale)"
			}
			return "no: " + string(no) + stale
		}
		return "yes"
	case "steps":
		var names []string
		for _, step := range s.task.StepsOf(a.word(0)) {
			names = append(names, step.Name)
		}
		return strings.Join(names, " ")
	case "must-stop":
		return strconv.FormatBool(s.task.MustStop(a.word(0)))
	case "new":
		draft := a.draft(s.now)
		require.NoError(t, draft.Validate())
		draft.TypeOptions = s.typ
		s.task = NewTask(draft, s.now)
		require.NoError(t, stateFault(s.task, s.eff(), s.now))
		return s.show()
	}
	snapshot := deepCopy(before)
	after, err := s.rule(a)
	require.Equal(t, snapshot, before, "the rule changed its input")
	switch {
	case err != nil:
		return err.Error()
	case after == nil || after == before:
		return "unchanged"
	}
	s.task = after
	if d.Cmd != "ping" && d.Cmd != "step" && d.Cmd != "hand-edit" && d.Cmd != "carried-out" {
		require.NoError(t, diffFault(before, after))
		if s.task.Status != "" && before.Options.ConcurrentWorkerCount == after.Options.ConcurrentWorkerCount && s.handler.IsZero() {
			require.NoError(t, stateFault(s.task, s.eff(), s.now))
		}
		return s.show() + showUpdate(diffOf(before, after))
	}
	return s.show()
}

func (s *scenario) rule(a scenarioArgs) (*Task, error) {
	t, eff, now := s.task, s.eff(), s.now
	switch a.d.Cmd {
	case "claim", "take":
		return s.claim(a, t, eff)
	case "ping":
		return ping(t, s.exec(a), eff.Lease, now)
	case "step":
		return saveStep(t, s.exec(a), a.word(1), now)
	case "retry-from":
		return RetryFrom(t, a.word(0), a.value("remark"), s.person(), now)
	case "finish":
		return Finish(t, s.exec(a), a.outcome(t, now), eff, now, 0.5)
	case "park":
		return Park(t, s.exec(a), now.Add(a.duration(a.word(1))), now, eff)
	case "expire":
		return Expire(t, eff, now, 0.5), nil
	case "leave":
		if c := Expire(t, eff, now, 0.5); c != nil {
			return Leave(c, now), nil
		}
		return nil, nil
	case "repair":
		return Repair(t, eff, now), nil
	case "cancel":
		return Cancel(t, a.value("remark"), s.person(), now)
	case "retry":
		return RetryNow(t, a.value("remark"), s.person(), now)
	case "resolve":
		return Resolve(t, a.value("remark"), s.person(), now)
	case "release":
		return Release(t, s.person(), now)
	case "update":
		return Update(t, a.patch(t.Options, now), s.typ, now)
	case "send-again":
		draft := a.draft(now)
		if !a.hasOptions() {
			draft.Options = Options{}
		}
		draft.TypeOptions = s.typ
		return SendAgain(t, draft, a.policy(), now), nil
	case "deliver":
		return Delivered(t, a.word(0) == "ok", s.person(), now), nil
	case "carried-out": // what the store does entry by entry, without a rev
		c := *t
		c.Outbox, c.OutboxAt = nil, time.Time{}
		return &c, nil
	case "hand-edit": // somebody's tool wrote the document
		c := *t
		c.DueAt, c.LapseAt = time.Time{}, time.Time{}
		if v := a.value("status"); v != "" {
			c.Status = Status(v)
		}
		if v := a.value("due"); v != "" {
			c.DueAt = epoch.Add(a.duration(v))
		}
		return &c, nil
	default:
		return nil, fmt.Errorf("no command %q", a.d.Cmd)
	}
}

func (s *scenario) claim(a scenarioArgs, t *Task, eff Effective) (*Task, error) {
	w := a.word(0)
	if a.d.Cmd == "take" {
		if c := Expire(t, eff, s.now, 0.5); c != nil {
			t = c
		}
	}
	c, no := Claim(t, Claimant{WorkerID: w, ExecID: fmt.Sprintf("%s.%d", w, s.claims[w]+1), Applied: s.said()}, eff, s.now)
	if no != "" {
		return nil, errors.New("refused: " + string(no))
	}
	s.claims[w]++
	return c, nil
}

// exec is the execution that a command's first word means.
func (s *scenario) exec(a scenarioArgs) string {
	w := a.word(0)
	if strings.Contains(w, ".") {
		return w
	}
	return fmt.Sprintf("%s.%d", w, s.claims[w])
}

// show is the state in one line, and one for each execution.
func (s *scenario) show() string {
	t := s.task
	var b strings.Builder
	fmt.Fprintf(&b, "%s due=%s lapse=%s audience=%s", t.Status, span(t.DueAt), span(t.LapseAt), strings.Join(t.Audience, ","))
	field := func(name string, show bool, v any) {
		if show {
			fmt.Fprintf(&b, " %s=%v", name, v)
		}
	}
	field("attempt", t.Attempt > 0, t.Attempt)
	field("errors", t.ErrorCount > 0, t.ErrorCount)
	field("lapses", t.LapseCount > 0, t.LapseCount)
	field("cancel", !t.CancelRequestedAt.IsZero(), span(t.CancelRequestedAt))
	field("undecodable", !t.UndecodableSince.IsZero(), span(t.UndecodableSince))
	field("expires", !t.ExpireAt.IsZero(), span(t.ExpireAt))
	field("outbox", len(t.Outbox) > 0, kinds(t.Outbox))
	field("result", t.Result.Type != 0, string(ValueJSON(t.Result)))
	field("generation", true, span(time.UnixMilli(t.Generation)))
	for i := range t.Steps {
		field("step", true, t.Steps[i].Name+"/"+t.Steps[i].WorkerID)
	}
	b.WriteByte('\n')
	for i := range t.WorkerStates {
		w := &t.WorkerStates[i]
		switch {
		case w.Open() && w.Parked:
			fmt.Fprintf(&b, "  %s parked until %s", w.ExecID, span(w.PingExpireTime))
		case w.Open():
			fmt.Fprintf(&b, "  %s open until %s", w.ExecID, span(w.PingExpireTime))
		case w.FailTime.IsZero():
			fmt.Fprintf(&b, "  %s succeeded at %s", w.ExecID, span(w.SuccessTime))
		default:
			fmt.Fprintf(&b, "  %s %s at %s", w.ExecID, w.FailKind, span(w.FailTime))
			if !w.RetryAt.IsZero() {
				fmt.Fprintf(&b, ", retry at %s", span(w.RetryAt))
			}
			if w.FailReason != "" {
				fmt.Fprintf(&b, ": %s", w.FailReason)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func kinds(entries []OutboxEntry) string {
	var out []string
	for _, e := range entries {
		out = append(out, fmt.Sprintf("%s@%d", e.Kind, e.Rev))
	}
	return strings.Join(out, ",")
}

func span(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Sub(epoch).String()
}

// showUpdate is one line for each operator, times as in show.
func showUpdate(u bson.D) string {
	var b strings.Builder
	for _, op := range u {
		fields := slices.DeleteFunc(slices.Clone(op.Value.(bson.D)), func(e bson.E) bool { return e.Key == "updated_at" }) // always there
		if len(fields) == 0 {
			continue
		}
		fmt.Fprintf(&b, "  %-6s", op.Key)
		for _, e := range fields {
			if op.Key == "$unset" {
				fmt.Fprintf(&b, " %s", e.Key)
				continue
			}
			fmt.Fprintf(&b, " %s=%s", e.Key, showValue(e.Key, e.Value))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func showValue(key string, v any) string {
	if at, ok := v.(bson.DateTime); ok {
		return span(at.Time())
	}
	if key == "generation" {
		return span(time.UnixMilli(v.(int64)))
	}
	if id := execOf(v); id != "" {
		return "{" + id + "}"
	}
	if steps, ok := v.(bson.A); ok && key == "steps" {
		return fmt.Sprintf("(%d steps)", len(steps))
	}
	if ws, ok := v.(bson.A); ok && execOf(ws[0]) != "" {
		var ids []string
		for _, w := range ws {
			ids = append(ids, "{"+execOf(w)+"}")
		}
		return "[" + strings.Join(ids, " ") + "]"
	}
	raw, err := marshal(bson.D{{Key: "v", Value: v}})
	if err != nil {
		return err.Error()
	}
	return string(ValueJSON(raw.Lookup("v")))
}

// execOf is the exec id of what is an element of worker_states, else "".
func execOf(v any) string {
	d, _ := v.(bson.D)
	if len(d) == 0 || d[0].Key != "exec_id" {
		return ""
	}
	return fmt.Sprint(d[0].Value)
}

// scenarioArgs reads a command's words (without =) and named values.
type scenarioArgs struct {
	t *testing.T
	d *datadriven.TestData
}

func (a scenarioArgs) word(i int) string {
	n := 0
	for _, arg := range a.d.CmdArgs {
		if len(arg.Vals) > 0 {
			continue
		}
		if n == i {
			return arg.Key
		}
		n++
	}
	require.Failf(a.t, "missing word", "%s needs word %d", a.d.Pos, i)
	return ""
}

func (a scenarioArgs) has(key string) bool {
	return slices.ContainsFunc(a.d.CmdArgs, func(c datadriven.CmdArg) bool { return c.Key == key })
}

func (a scenarioArgs) values(key string) []string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key {
			return arg.Vals
		}
	}
	return nil
}

func (a scenarioArgs) value(key string) string { return strings.Join(a.values(key), ",") }

func (a scenarioArgs) duration(s string) time.Duration {
	d, err := time.ParseDuration(strings.TrimPrefix(s, "+"))
	require.NoError(a.t, err, a.d.Pos)
	return d
}

func (a scenarioArgs) number(key string) int {
	n, err := strconv.Atoi(a.value(key))
	require.NoError(a.t, err, a.d.Pos)
	return n
}

func (a scenarioArgs) json(key string) bson.RawValue {
	v, err := EncodeJSON(key, []byte(a.value(key)), MaxArgsBytes)
	require.NoError(a.t, err, a.d.Pos)
	return v
}

var optionWords = []string{"n", "retry", "max-errors", "max-lapses", "per-worker", "manual", "timeout", "lease", "workers", "retention", "claim-by", "callback", "expires"}

func (a scenarioArgs) hasOptions() bool { return slices.ContainsFunc(optionWords, a.has) }

func (a scenarioArgs) options(o Options) Options {
	for _, word := range optionWords {
		if !a.has(word) {
			continue
		}
		if word == "retry" || word == "max-errors" {
			r := ptrCopy(o.Retry)
			if r == nil {
				r = &Retry{}
			}
			o.Retry = r
		}
		switch word {
		case "n":
			o.ConcurrentWorkerCount = a.number(word)
		case "retry":
			o.Retry = a.retry(*o.Retry)
		case "max-errors":
			o.Retry.MaxErrors = new(a.number(word))
		case "max-lapses":
			o.MaxLapses = new(a.number(word))
		case "per-worker":
			o.MaxErrorsPerWorker = a.number(word)
		case "manual":
			o.NeedManual = new(true)
		case "timeout":
			o.ExecutionTimeout = a.duration(a.value(word))
		case "lease":
			o.WorkerTimeout = a.duration(a.value(word))
		case "workers":
			o.SpecificWorkerIDs = a.values(word)
		case "retention":
			o.Retention = a.duration(a.value(word))
		case "claim-by":
			o.ClaimBy = ClaimBy(a.value(word))
		case "callback":
			o.Callback = a.callback()
		case "expires": // counted from the start of the file
			o.ExpiresAt = epoch.Add(a.duration(a.value(word)))
		}
	}
	return o
}

func (a scenarioArgs) callback() *Callback {
	c, which := &Callback{}, a.value("callback")
	if which == "success" || which == "both" {
		c.Success = &CallbackTarget{URL: "http://receiver/success"}
	}
	if which == "error" || which == "both" {
		c.Error = &CallbackTarget{URL: "http://receiver/error"}
	}
	return c // "none" is one that tells nobody
}

func (a scenarioArgs) retry(r Retry) *Retry {
	strategy, rest, _ := strings.Cut(a.value("retry"), ":")
	switch strategy {
	case "none":
		r.Strategy = RetryNone
	case "fixed":
		r.Strategy, r.Interval = RetryFixed, a.duration(rest)
	case "seq":
		r.Strategy = RetrySequence
		for _, d := range strings.Split(rest, ",") {
			r.Sequence = append(r.Sequence, a.duration(d))
		}
	default:
		r.Strategy, r.Jitter = RetryExponential, -1
	}
	return &r
}

func (a scenarioArgs) draft(now time.Time) Draft {
	d := Draft{Type: "t", Key: "k", Held: a.has("held"), Options: a.options(Options{})}
	if a.has("key") {
		d.Key = a.value("key")
	}
	d.Tenant, d.Creator, d.Category = a.value("tenant"), a.value("creator"), a.value("category")
	if a.has("origin") {
		d.Origin = &Origin{Kind: a.value("origin"), ID: "rule"}
	}
	if a.has("args") {
		d.Args = a.json("args")
	}
	if a.has("start") {
		d.Start = now.Add(a.duration(a.value("start")))
	}
	if a.has("priority") {
		d.Priority = new(a.number("priority"))
	}
	return d
}

func (a scenarioArgs) patch(o Options, now time.Time) Patch {
	d := a.draft(now)
	p := Patch{Priority: d.Priority}
	if a.has("category") {
		p.Category = &d.Category
	}
	if a.has("creator") {
		p.Creator = &d.Creator
	}
	if a.has("args") {
		p.Args = &d.Args
	}
	if a.has("start") {
		p.Start = &d.Start
	}
	if a.hasOptions() {
		p.Options = new(a.options(o))
	}
	return p
}

func (a scenarioArgs) policy() Existing {
	var p Existing
	for word, flag := range map[string]Existing{"update-args": UpdateArgs, "update-idle": UpdateIdle, "restart-failed": RestartFailed, "restart-succeeded": RestartSucceeded} {
		if a.has(word) {
			p |= flag
		}
	}
	return p
}

func (a scenarioArgs) outcome(t *Task, now time.Time) Outcome {
	kind := a.word(1)
	switch kind {
	case "ok":
		out := Success(a.json("result"))
		out.NoCallback = a.has("quiet")
		return out
	case "error", "fatal", "panic", "timeout":
		return Failed(FailKind(kind), kind)
	case "snooze":
		return Failed(FailReleased, "snoozed").After(a.duration(a.word(2)))
	case "retry-after":
		return Failed(FailError, "later").After(a.duration(a.word(2)))
	case "release":
		return Failed(FailReleased, "released")
	case "cancel":
		return Outcome{Kind: FailCancelled, Reason: "not wanted", CancelTask: true}
	case "undecodable":
		return Undecodable(t, "a field is missing", time.Hour, now)
	default:
		require.Failf(a.t, "unknown outcome", "%s: %s", a.d.Pos, kind)
		return Outcome{}
	}
}
