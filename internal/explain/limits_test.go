package explain

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

func text(r Report) string {
	out := r.Summary + "\n" + strings.Join(r.Because, "\n") + "\n" + strings.Join(r.Next, "\n")
	for _, w := range r.Workers {
		out += "\n" + w.ID + " " + w.Words
	}
	return out
}

func TestATaskThatWaitsForOthersSaysForWhom(t *testing.T) {
	keyed := begin(t, now.Add(-time.Minute), lifecycle.Draft{Options: model.Options{LimitKey: "ann"}})
	held := lifecycle.HoldBack(keyed.doc, now)
	plain := begin(t, now.Add(-time.Minute), lifecycle.Draft{}).doc
	w1 := []Worker{{ID: "w1", Types: []string{"t"}, Concurrency: 10}}
	holders := []lifecycle.Permit{{PermitUse: lifecycle.PermitUse{TaskID: "-/t/a"}, At: now.Add(-time.Hour)}, {PermitUse: lifecycle.PermitUse{TaskID: "-/t/b"}, At: now}}
	for name, c := range map[string]struct {
		facts Facts
		want  []string
	}{
		"its key is full": {Facts{Task: held, Workers: w1, OfKey: holders[:1]}, []string{
			"The limit of its limit_key, ann, holds it back until its turn", "The type t allows 1 at once for the limit_key ann",
			"-/t/a has held a permit since 2026-01-31 08:00:00Z (1h ago)", "mscheduler task cancel 't/a'", "w1 not now: the task waits for its limit_key",
		}},
		"of two, one is free": {Facts{Task: held, Workers: w1, OfKey: holders[:1], Type: &model.TaskType{KeyLimit: &model.KeyLimit{MaxRunning: 2}}}, []string{
			"The type t allows 2 at once for the limit_key ann", "A permit is free",
		}},
		"its key has a rate": {Facts{Task: held, Workers: w1, Type: &model.TaskType{KeyLimit: &model.KeyLimit{RateLimit: &model.RateLimit{Count: 3, Per: time.Minute}}}}, []string{
			"The type t allows 3 per 1m0s for the limit_key ann", "When the rate allows it, the next task starts",
		}},
		"held back, no live worker": {Facts{Task: held}, []string{"holds it back", "No live worker handles the type t"}},
		"held back and paused":      {Facts{Task: held, Workers: w1, PausedAll: true}, []string{"holds it back", "resume --all"}},
		"its type is full": {Facts{Task: plain, Workers: w1, OfType: holders, Type: &model.TaskType{MaxRunning: 2}}, []string{
			"The type t allows 2 at once, and that many are running; -/t/a has held its permit since", "When one of them ends, the next is claimed",
		}},
		"its type has room": {Facts{Task: plain, Workers: w1, OfType: holders, Type: &model.TaskType{MaxRunning: 3}}, []string{"within seconds by the worker w1"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.facts.Now = now
			got := text(Explain(c.facts))
			for _, want := range c.want {
				require.Contains(t, got, want)
			}
			require.NotContains(t, got, "derived fields")
			require.Equal(t, name == "its type has room", strings.Contains(got, "within seconds by"), got)
		})
	}
}

func TestConditionsThatLeaveATaskOutAreNamed(t *testing.T) {
	acme := Worker{ID: "w1", Types: []string{"t"}, Concurrency: 10, Only: &lifecycle.Conditions{Tenants: []string{"acme", "beta"}}}
	mail := Worker{ID: "w2", Types: []string{"t"}, Concurrency: 10, Only: &lifecycle.Conditions{Categories: []string{"mail"}}}
	open := begin(t, now, lifecycle.Draft{Creator: "ann"}).doc
	got := text(Explain(Facts{Task: open, Now: now, Workers: []Worker{acme, mail}}))
	require.Contains(t, got, "It has no tenant, the creator ann. No live worker of its type (2) takes such a task.")
	require.Contains(t, got, "w1 no: it takes only tenants acme, beta")
	require.Contains(t, got, "w2 no: it takes only categories mail")
	require.NotContains(t, got, "within seconds by")

	theirs := begin(t, now, lifecycle.Draft{Tenant: "acme"}).doc
	got = text(Explain(Facts{Task: theirs, Now: now, Workers: []Worker{acme, mail}}))
	require.Contains(t, got, "within seconds by the worker w1.")
	require.Contains(t, got, "w2 no: it takes")

	lapsed := begin(t, now.Add(-time.Hour), lifecycle.Draft{}).claim("w9", now.Add(-time.Minute)).doc
	got = text(Explain(Facts{Task: lapsed, Now: now, Workers: []Worker{acme}}))
	require.Contains(t, got, "No live worker of its type (1) takes such a task")
	require.Contains(t, got, "ends the lapsed execution")

	delivery := lifecycle.NewTask(lifecycle.Delivery(theirs), now)
	acme.Types = []string{input.CallbackType}
	require.Contains(t, text(Explain(Facts{Task: delivery, Now: now, Workers: []Worker{acme}})), "within seconds by the worker w1")
}

func TestAReaderWhoSeesOneTenantIsToldNothingOfOthers(t *testing.T) {
	keyed := begin(t, now.Add(-time.Minute), lifecycle.Draft{Tenant: "mine", Options: model.Options{LimitKey: "ann"}})
	mine := func(tenant string) bool { return tenant == "mine" }
	workers := []Worker{
		{ID: "w1", Types: []string{"t", "payroll"}, Concurrency: 10},
		{ID: "w2", Types: []string{"t"}, Only: &lifecycle.Conditions{Tenants: []string{"secret"}}, Concurrency: 10},
	}
	holders := []lifecycle.Permit{{PermitUse: lifecycle.PermitUse{TaskID: "secret/t/a"}, At: now}, {PermitUse: lifecycle.PermitUse{TaskID: "mine/t/b"}, At: now}}
	for name, f := range map[string]Facts{
		"its key is full":   {Task: lifecycle.HoldBack(keyed.doc, now), Workers: workers, OfKey: holders},
		"its type is full":  {Task: keyed.doc, Workers: workers[:1], OfType: holders, Type: &model.TaskType{MaxRunning: 2}},
		"one may take it":   {Task: keyed.doc, Workers: workers},
		"none takes it":     {Task: keyed.doc, Workers: workers[1:]},
		"others are served": {Task: keyed.doc, Workers: []Worker{{ID: "w1", Types: []string{"payroll"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			f.Now = now
			require.Regexp(t, "secret|payroll|w1|w2", text(Explain(f)), "else nothing is tested")
			f.Sees = mine
			require.NotRegexp(t, "secret|payroll|w1|w2", text(Explain(f)))
		})
	}
}

func TestAWorkerThatDrainsTakesNothing(t *testing.T) {
	drains := Worker{ID: "w1", Types: []string{"t"}, Concurrency: 10, Draining: true}
	open := begin(t, now, lifecycle.Draft{}).doc
	got := text(Explain(Facts{Task: open, Now: now, Workers: []Worker{drains}}))
	require.Contains(t, got, "All live workers of its type (1) are being drained")
	require.Contains(t, got, "w1 no: it is being drained")
	got = text(Explain(Facts{Task: open, Now: now, Workers: []Worker{drains, {ID: "w2", Types: []string{"t"}, Concurrency: 10}}}))
	require.Contains(t, got, "within seconds by the worker w2.")
	beta := Worker{ID: "w2", Types: []string{"t"}, Concurrency: 10, Only: &lifecycle.Conditions{Tenants: []string{"beta"}}}
	got = text(Explain(Facts{Task: open, Now: now, Workers: []Worker{drains, beta}}))
	require.Contains(t, got, "It has no tenant. No live worker of its type (2) takes such a task.")
}

func TestAWorkerThatIsResumedClaimsFromItsNextHeartbeatOn(t *testing.T) {
	resumes := Worker{ID: "w1", Types: []string{"t"}, Concurrency: 10, Draining: true, Resumes: true}
	got := text(Explain(Facts{Task: begin(t, now, lifecycle.Draft{}).doc, Now: now, Workers: []Worker{resumes, {ID: "w2", Types: []string{"t"}, Draining: true}}}))
	require.Contains(t, got, "All live workers of its type (2) were drained. At least one is resumed.")
	require.Contains(t, got, "A worker that is resumed claims again from its next heartbeat on, within 30s.")
	require.Contains(t, got, "w1 not now: it was drained, and learns at its next heartbeat that it is resumed, within 30s")
	require.Contains(t, got, "w2 no: it is being drained")
}

// The worker stays away for two seconds: in the first one, others could claim the task.
func TestATaskThatNobodyDecodesIsTriedAgainUntilItFails(t *testing.T) {
	since := now.Add(-1500 * time.Millisecond)
	life := begin(t, since.Add(-time.Minute), lifecycle.Draft{}).claim("w1", since)
	life = life.finish("w1", since, lifecycle.Undecodable(life.doc, "decoding the arguments: id is a number", time.Hour, since), since)
	w1 := Worker{ID: "w1", Types: []string{"t"}, Concurrency: 10}
	for _, at := range []time.Time{now, now.Add(-time.Second)} {
		got := text(Explain(Facts{Task: life.doc, Now: at, Workers: []Worker{w1}}))
		require.Contains(t, got, "undecodable: decoding the arguments: id is a number")
		require.Regexp(t, `From 2026-01-31 09:59:58Z \(.*\) on, such a try ends it as Failure, unless the worker has another DecodeGrace\.`, got)
		require.NotContains(t, got, "until its options change")
	}
	require.Contains(t, text(Explain(Facts{Task: life.doc, Now: now, Workers: []Worker{w1}})), "From 2026-01-31 09:00:00Z (now) a worker that has tried it may claim it again.")
}

func TestAWorkerThatPullsSaysNothingOfItsSlots(t *testing.T) {
	open := begin(t, now, lifecycle.Draft{}).doc
	got := text(Explain(Facts{Task: open, Now: now, Workers: []Worker{{ID: "w1", Types: []string{"t"}, Pulls: true}}}))
	require.Contains(t, got, "w1 may claim it with its next fetch")
	require.Contains(t, got, "within seconds by the worker w1.")
}
