package lifecycle

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/scenario"
	"github.com/mscheduler/mscheduler/model"
)

// TestScenarios runs testdata/*.txt: one command, and under ---- what became of the
// task and the update that Diff makes of it. Times count from the start of the file.
// `go test ./internal/lifecycle -run Scenarios -rewrite` writes the outputs anew: read the diff.
//
//	new [key=] [n=] [start=] [held] [retry=none|fixed:10s|seq:1s,5s|exp] [max-errors=] [max-lapses=]
//	    [per-worker=] [manual] [timeout=] [lease=] [workers=(a,b)] [args=] [priority=] [retention=]
//	    [tenant=] [creator=] [category=] [claim-by=] [callback=success|error|both|pending] [expires=] [origin=]
//	type …           the same options, said by the type's document: everybody knows them
//	handler …        and by the handlers: only workers know them, and what they left in the task
//	claim w [pulled] w becomes an execution; take w: ends what lapsed and claims, in one write
//	ping w           extends the lease of w's execution
//	finish w ok [result=] [quiet] | error | fatal | panic | timeout | snooze 5s | retry-after 5s | not-before 5s | release | unstarted | cancel | undecodable
//	deliver ok|failed   the callback's delivery has ended; carried-out: the outbox is empty
//	park w 1h [quiet]        expire, leave, cancel, abort, retry, resolve, release, repair
//	conclude Success|Failure|Pending [result=] [why=]   what the task waits for has ended
//	step w name      w's execution saves a step, as the store does; retry-from name
//	local w          a retry inside w's execution begins
//	steps w          the names of the steps that w need not do again
//	update …, send-again [update-args] [update-idle] [restart-failed] [restart-succeeded] [keep-args] …
//	advance 10s      moves the clock
//	can w            what w would be told; must-stop w
//
// An execution is called w.1 after its worker and the number of its claim. A command
// by w means w's last execution; `finish w.1 ok` a certain one.
func TestScenarios(t *testing.T) {
	scenario.Files(t, func() func(scenario.Command) string {
		return (&story{now: epoch, claims: map[string]int{}}).run
	})
}

// story is what a scenario tells: one task, and what its type and its handlers say.
type story struct {
	task    *model.Task
	handler model.Options
	typ     model.Options
	now     time.Time
	claims  map[string]int
}

// said is what type and handler together say to their tasks, as a worker puts it.
func (s *story) said() *model.Options {
	if said := Overlay(s.typ, s.handler); !said.IsZero() {
		return &said
	}
	return nil
}

// eff are the options as a worker sees them; a person's process does not know the handlers.
func (s *story) eff() Effective { return ResolveOptions(s.task.Options, s.typ, s.handler) }

func (s *story) person() Effective { return EffectiveOf(s.task, s.typ) }

func (s *story) run(c scenario.Command) string {
	a, t := scenarioCommand{c}, c.T
	before := s.task
	switch a.Name() {
	case "advance":
		s.now = s.now.Add(a.Duration(a.Word(0)))
		return "t=" + span(s.now)
	case "handler":
		s.handler = a.options(model.Options{})
		return "ok"
	case "type":
		s.typ = a.options(model.Options{})
		return "ok"
	case "can":
		if no := Claimable(s.task, a.Word(0), s.eff(), s.now); no != "" {
			stale := ""
			if no.Stale() {
				stale = " (stale)"
			}
			return "no: " + string(no) + stale
		}
		return "yes"
	case "steps":
		var names []string
		for _, step := range StepsOf(s.task, a.Word(0)) {
			names = append(names, step.Name)
		}
		return strings.Join(names, " ")
	case "must-stop":
		return strconv.FormatBool(MustStop(s.task, a.Word(0)))
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
	if a.Name() != "ping" && a.Name() != "step" && a.Name() != "local" && a.Name() != "hand-edit" && a.Name() != "carried-out" {
		require.NoError(t, diffFault(before, after))
		succeeded := a.Name() == "conclude" && s.task.Status == model.StatusSuccess // without a worker
		if s.task.Status != "" && !succeeded && before.Options.ConcurrentWorkerCount == after.Options.ConcurrentWorkerCount && s.handler.IsZero() {
			require.NoError(t, stateFault(s.task, s.eff(), s.now))
		}
		return s.show() + showUpdate(diffOf(before, after))
	}
	return s.show()
}

func (s *story) rule(a scenarioCommand) (*model.Task, error) {
	t, eff, now := s.task, s.eff(), s.now
	switch a.Name() {
	case "claim", "take":
		return s.claim(a, t, eff)
	case "ping":
		return ping(t, s.exec(a), eff.Lease, now)
	case "step":
		return saveStep(t, s.exec(a), a.Word(1), now)
	case "local": // a retry inside w's execution begins, as the store notes it
		i, w := ExecutionOf(t, s.exec(a))
		if w == nil || !Open(w) {
			return nil, model.ErrFenced
		}
		c := *t
		c.WorkerStates = slices.Clone(t.WorkerStates)
		c.WorkerStates[i].LocalRetries++
		return &c, nil
	case "retry-from":
		return RetryFrom(t, a.Word(0), a.Value("remark"), s.person(), now)
	case "finish":
		return Finish(t, s.exec(a), a.outcome(t, now), eff, now, 0.5)
	case "park":
		return Park(t, s.exec(a), now.Add(a.Duration(a.Word(1))), Outcome{NoCallback: a.Has("quiet")}, eff, now)
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
		return Cancel(t, a.Value("remark"), s.person(), now)
	case "retry":
		return RetryNow(t, a.Value("remark"), s.person(), now)
	case "resolve":
		return Resolve(t, a.Value("remark"), s.person(), now)
	case "abort":
		return Abort(t, a.Value("remark"), s.person(), now)
	case "release":
		return Release(t, s.person(), now)
	case "conclude":
		return Conclude(t, model.Status(a.Word(0)), a.json("result"), a.Value("why"), s.person(), now), nil
	case "update":
		return Update(t, a.patch(t.Options, now), s.typ, now)
	case "send-again":
		draft := a.draft(now)
		if !a.hasOptions() {
			draft.Options = model.Options{}
		}
		draft.TypeOptions = s.typ
		return SendAgain(t, draft, a.policy(), now)
	case "deliver":
		return Delivered(t, a.Word(0) == "ok", s.person(), now), nil
	case "carried-out": // what the store does entry by entry, without a rev
		c := *t
		c.Outbox, c.OutboxAt = nil, time.Time{}
		return &c, nil
	case "hand-edit": // somebody's tool wrote the document
		c := *t
		c.DueAt, c.LapseAt = time.Time{}, time.Time{}
		if v := a.Value("status"); v != "" {
			c.Status = model.Status(v)
		}
		if v := a.Value("due"); v != "" {
			c.DueAt = epoch.Add(a.Duration(v))
		}
		return &c, nil
	default:
		return nil, fmt.Errorf("no command %q", a.Name())
	}
}

func (s *story) claim(a scenarioCommand, t *model.Task, eff Effective) (*model.Task, error) {
	w := a.Word(0)
	if a.Name() == "take" {
		if c := Expire(t, eff, s.now, 0.5); c != nil {
			t = c
		}
	}
	c, no := Claim(t, Claimant{WorkerID: w, ExecID: fmt.Sprintf("%s.%d", w, s.claims[w]+1), Applied: s.said(), Pulled: a.Has("pulled")}, eff, s.now)
	if no != "" {
		return nil, errors.New("refused: " + string(no))
	}
	s.claims[w]++
	return c, nil
}

// exec is the execution that a command's first word means.
func (s *story) exec(a scenarioCommand) string {
	w := a.Word(0)
	if strings.Contains(w, ".") {
		return w
	}
	return fmt.Sprintf("%s.%d", w, s.claims[w])
}
