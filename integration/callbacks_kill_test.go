package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/fleet"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/upkeep"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// From the end of a task to its callback there are seven writes and a call. A process is
// killed before and after each of them, and another one goes on.

const taken = "taken-by-the-receiver" // the answer, by which the end of a delivery is known

type callbackWrite struct {
	name string
	rule proxy.Rule // of an update, if it does not say otherwise
}

func (w callbackWrite) trap(do proxy.Action) proxy.Rule {
	rule := w.rule
	rule.Collection, rule.Do = "tasks", do
	if rule.Command == "" {
		rule.Command = "update"
	}
	return rule
}

var callbackWrites = []callbackWrite{
	{"the end of a task", proxy.Rule{Contains: "finished_at", Lacks: taken}},
	{"the making of its delivery", proxy.Rule{Command: "insert"}},
	{"the removal of its entry", proxy.Rule{Contains: "outbox.0.rev", Lacks: lifecycle.OutcomeDelivery}},
	{"the claim of the delivery", proxy.Rule{Contains: input.CallbackType, Lacks: "outbox"}},
	{"the end of the delivery", proxy.Rule{Contains: taken}},
	{"the success of the task", proxy.Rule{Contains: string(model.StatusSuccess), Lacks: taken}},
	{"the removal of the delivery's entry", proxy.Rule{Contains: lifecycle.OutcomeDelivery, Lacks: taken}},
}

// TestCallbackChild is no test: it is what a child process runs, a worker that delivers.
func TestCallbackChild(t *testing.T) {
	if os.Getenv(childRole) != "callbacks" {
		t.Skip("only in a child process")
	}
	hearParent()
	// What a dead process leaves is otherwise looked for after a minute or two.
	upkeep.Hurry(upkeep.Pace{Busy: 200 * time.Millisecond, Idle: 200 * time.Millisecond, Grace: 500 * time.Millisecond})
	client, err := engine.Client(os.Getenv(childURI))
	require.NoError(t, err)
	c, err := consumer.New(consumer.Config{
		Database: client.Database(os.Getenv(childDB)), WorkerID: os.Getenv(childName), Concurrency: 5,
		Callbacks: &consumer.CallbackConfig{SecretKey: secretKey},
	})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c, chaosWork, func(_ context.Context, task *consumer.Task[int]) (int, error) {
		if task.Args%2 == 1 {
			return 0, consumer.Fatal(errors.New("odd"))
		}
		return 2 * task.Args, nil
	}))
	require.NoError(t, c.Run(t.Context()))
}

// callbackChild starts such a process. It is killed at the end of the test, if not before.
func (a *arena) callbackChild(name, uri string) *fleet.Process {
	a.t.Helper()
	return a.process("TestCallbackChild", name, "callbacks", uri)
}

// The same writes, and a network that breaks: the process that lost its command, or the
// answer to it, finds out by itself.
func TestNoCallbackIsForgottenWhateverAnswerIsLost(t *testing.T) {
	onEnginesAtFullSizeInRealTime(t, withoutRace(slowInLong(func(t *testing.T, e Engine) {
		for _, w := range callbackWrites {
			for when, action := range map[string]proxy.Action{"before": proxy.CutBefore, "after": proxy.CutAfter} {
				t.Run(when+" "+w.name, func(t *testing.T) {
					t.Parallel()
					k := newKilling(t, e)
					trap := k.px.Set(w.trap(action))
					k.callbackChild("worker", k.px.URI())
					k.awaitSettled()
					k.judge()
					require.Equal(t, 1, trap.Sprung(), "the write never came")
				})
			}
		}
	})))
}

func TestNoCallbackIsForgottenWhereverAProcessIsKilled(t *testing.T) {
	onEnginesAtFullSizeInRealTime(t, withoutRace(inDepth(func(t *testing.T, e Engine) {
		for _, w := range callbackWrites {
			for when, action := range map[string]proxy.Action{"before": proxy.HoldBefore, "after": proxy.HoldAfter} {
				t.Run(when+" "+w.name, func(t *testing.T) {
					t.Parallel()
					k := newKilling(t, e)
					k.run(k.px.Set(w.trap(action)).Hit())
				})
			}
		}
		t.Run("while the receiver answers", func(t *testing.T) {
			t.Parallel()
			k := newKilling(t, e)
			asked, dead := make(chan struct{}), make(chan struct{})
			k.dead = dead
			k.answers(func(n int, _ heard, w http.ResponseWriter) {
				if n == 1 {
					close(asked)
					<-dead
				}
				_, _ = w.Write([]byte(taken))
			})
			k.run(asked)
		})
	})))
}

// killing is the scenario: tasks of even numbers succeed and others fail, a victim, an heir.
type killing struct {
	*arena
	*receiver
	px     *proxy.Proxy
	tasks  map[string]int
	manual bool          // what fails is Pending
	dead   chan struct{} // closed when the victim is; nil = nobody waits for it
}

func newKilling(t *testing.T, e Engine) *killing { return newKillingOf(t, e, []int{1, 2, 4}, false) }

func newKillingOf(t *testing.T, e Engine, numbers []int, manual bool) *killing {
	k := &killing{arena: secretive(t, e), receiver: newReceiver(t), tasks: map[string]int{}, manual: manual}
	k.px, _ = k.behind()
	k.answers(func(_ int, _ heard, w http.ResponseWriter) { _, _ = w.Write([]byte(taken)) })
	// The leases of a dead process's deliveries end soon.
	_, err := k.admin.PutType(t.Context(), model.TaskType{Code: input.CallbackType, Options: model.Options{WorkerTimeout: 3 * time.Second}})
	require.NoError(t, err)
	hook := k.to()
	hook.OnPending = manual
	for _, n := range numbers {
		k.tasks[k.sendKey(fmt.Sprint(n), n, producer.Callback(hook), producer.NeedManual(manual), seconds(3), producer.MaxLapses(100)).ID] = n
	}
	return k
}

func (k *killing) run(reached <-chan struct{}) {
	t := k.arena.t
	victim := k.callbackChild("victim", k.px.URI())
	select {
	case <-reached:
	case <-time.After(chaosPatience):
		require.Fail(t, "the victim never came there")
	}
	victim.Kill()
	k.px.Drop() // what was held is lost with its sender
	if k.dead != nil {
		close(k.dead)
	}
	k.callbackChild("heir", k.e.URI)
	k.awaitSettled()
	k.judge()
}

// awaitSettled waits until every task has its last status and nothing is left to follow.
func (k *killing) awaitSettled() {
	t := k.arena.t
	awaitTrue(t, func() string {
		for id, n := range k.tasks {
			want := k.statusOf(n)
			task := k.get(id)
			if task.Status != want {
				return inWords(task)
			}
			delivery, err := k.store.Tasks.Get(t.Context(), lifecycle.DeliveryID(task))
			if err != nil {
				return err.Error()
			}
			if delivery.Status != model.StatusSuccess {
				return inWords(delivery)
			}
		}
		left, err := k.db.Collection("tasks").CountDocuments(t.Context(), bson.D{noSentinel, {Key: "$or", Value: bson.A{
			bson.D{{Key: "outbox", Value: bson.D{{Key: "$exists", Value: true}}}},
			bson.D{{Key: "outbox_at", Value: bson.D{{Key: "$exists", Value: true}}}},
		}}})
		require.NoError(t, err)
		if left > 0 {
			return fmt.Sprintf("%d outboxes are left", left)
		}
		return ""
	})
}

// statusOf is the last status of the task with that number.
func (k *killing) statusOf(n int) model.Status {
	switch {
	case n%2 == 0:
		return model.StatusSuccess
	case k.manual:
		return model.StatusPending
	default:
		return model.StatusFailure
	}
}

func (k *killing) judge() {
	t := k.arena.t
	told := map[string]int{}
	for _, h := range k.all() {
		require.NoError(t, h.signed)
		n, ours := k.tasks[h.task]
		require.True(t, ours, h.task)
		told[h.task]++
		require.Equal(t, k.get(lifecycle.DeliveryID(k.get(h.task))).Key, h.id, "the id is the same each time, so that repeats can be dropped")
		want := fmt.Sprintf(`{"ext": %d, "result": %d}`, n, 2*n)
		if n%2 == 1 {
			want = fmt.Sprintf(`{"task_id": %q, "error_info": "odd", "ext": %d}`, h.task, n)
		}
		if k.statusOf(n) == model.StatusPending {
			want = fmt.Sprintf(`{"task_id": %q, "error_info": "odd", "status": "Pending", "ext": %d}`, h.task, n)
		}
		require.JSONEq(t, want, h.body)
	}
	for id, n := range k.tasks {
		require.GreaterOrEqual(t, told[id], 1, "nobody was told of %s", id)
		task := k.get(id)
		require.Equal(t, n%2, task.ErrorCount, "a kill costs no error: %s", inWords(task))
		require.Equal(t, k.statusOf(n) == model.StatusPending, task.ArchiveAt.IsZero(), "what waits for a person stays")
	}
}
