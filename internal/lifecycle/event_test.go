package lifecycle

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/model"
)

// changeOf is what a change stream tells of the write that a rule decided.
func changeOf(before, after *model.Task) (codec.Change, error) {
	updated := bson.D{}
	for _, op := range diffOf(before, after) {
		for _, e := range op.Value.(bson.D) {
			switch op.Key {
			case "$set":
				if e.Key != "updated_at" || !before.UpdatedAt.Equal(after.UpdatedAt) { // what stays is not told
					updated = append(updated, e)
				}
			case "$inc":
				updated = append(updated, bson.E{Key: e.Key, Value: after.Rev})
			}
		}
	}
	raw, err := bson.Marshal(updated)
	return codec.Change{TaskID: after.ID, Updated: raw, At: epoch.Add(-time.Hour)}, err
}

// wantedEvent is what happened, by the documents before and after.
func wantedEvent(before, after *model.Task) model.EventKind {
	var lost, failed, given, succeeded, began, parked bool
	for i := range before.WorkerStates {
		b := &before.WorkerStates[i]
		_, a := ExecutionOf(after, b.ExecID)
		switch {
		case !Open(b) || a != nil && Open(a):
			parked = parked || a != nil && Open(a) && a.Parked && !b.Parked
		case a == nil:
			lost = true
		case !a.SuccessTime.IsZero():
			succeeded = true
		case a.FailKind == failkind.Released || a.FailKind == failkind.Undecodable:
			lost, given = true, true
		default:
			lost, failed = true, true
		}
	}
	for i := range after.WorkerStates {
		if _, b := ExecutionOf(before, after.WorkerStates[i].ExecID); b == nil {
			began = true
		}
	}
	life := before.Generation != after.Generation
	switch {
	case after.Status.Ended() && (life || before.Status != after.Status):
		return model.EventEnded
	case life:
		return model.EventSent
	case began && lost:
		return model.EventTakenOver
	case began:
		return model.EventClaimed
	case before.CancelRequestedAt.IsZero() && !after.CancelRequestedAt.IsZero():
		return model.EventCancelling
	case given:
		return model.EventReleased
	case failed:
		return model.EventFailed
	case succeeded:
		return model.EventSucceeded
	case parked:
		return model.EventParked
	case before.Status == model.StatusWait && after.Status == model.StatusNew:
		return model.EventReleased
	}
	same := *before
	same.Rev, same.UpdatedAt, same.LapseAt = after.Rev, after.UpdatedAt, after.LapseAt
	if update := codec.Diff(&same, after); update != nil {
		return model.EventChanged
	}
	return ""
}

// eventFault says in what the event that a stream makes of a rule's write is not what
// happened.
func eventFault(before, after *model.Task) error {
	c, err := changeOf(before, after)
	if err != nil {
		return err
	}
	e, ok := codec.EventOf(c)
	want := wantedEvent(before, after)
	if want == model.EventChanged && !ok && len(diffOf(before, after)) > 0 {
		// Only fields that were dropped: nobody acts on that alone.
		var set bson.D
		if err := bson.Unmarshal(c.Updated, &set); err != nil {
			return err
		}
		for _, f := range set {
			if f.Key != "rev" && f.Key != "updated_at" && f.Key != "lapse_at" {
				return fmt.Errorf("no event of a write that set %s", f.Key)
			}
		}
		return nil
	}
	switch {
	case ok != (want != "") || e.Kind != want:
		return fmt.Errorf("the event is %q, and it was %q: %v", e.Kind, want, c.Updated)
	case !ok:
		return nil
	case e.TaskID != after.ID || e.Rev != after.Rev:
		return fmt.Errorf("the event names %s rev %d, and it was %s rev %d", e.TaskID, e.Rev, after.ID, after.Rev)
	case e.Status != after.Status && (e.Status != "" || want != model.EventChanged):
		return fmt.Errorf("the event %s says %q, and it is %s: %v", want, e.Status, after.Status, c.Updated)
	case (e.Generation != 0) != (before.Generation != after.Generation):
		return fmt.Errorf("the event has generation %d, before was %d, after %d", e.Generation, before.Generation, after.Generation)
	case !after.UpdatedAt.Equal(before.UpdatedAt) && !e.At.Equal(after.UpdatedAt):
		return fmt.Errorf("the event is of %v, the write of %v", e.At, after.UpdatedAt)
	}
	if want == model.EventClaimed || want == model.EventTakenOver {
		_, st := ExecutionOf(after, e.ExecID)
		if st == nil || !Open(st) || st.WorkerID != e.WorkerID || st.Attempt != e.Attempt {
			return fmt.Errorf("the event names the execution %q of %q", e.ExecID, e.WorkerID)
		}
	}
	return nil
}

// eventLife is a task and what was told of each write to it.
type eventLife struct {
	*testing.T
	task *model.Task
	now  time.Time
	eff  Effective
}

func newEventLife(t *testing.T, o model.Options) *eventLife {
	return &eventLife{T: t, now: epoch, eff: ResolveOptions(o),
		task: NewTask(Draft{Tenant: "acme", Type: "t", Key: "k", Options: o}, epoch)}
}

func (l *eventLife) does(after *model.Task, err error) model.TaskEvent {
	l.Helper()
	require.NoError(l, err)
	require.NotNil(l, after)
	require.NoError(l, eventFault(l.task, after))
	c, err := changeOf(l.task, after)
	require.NoError(l, err)
	e, _ := codec.EventOf(c)
	l.task = after
	l.now = l.now.Add(time.Second)
	return e
}

func (l *eventLife) claim(worker string) model.TaskEvent {
	l.Helper()
	from := l.task
	if expired := Expire(from, l.eff, l.now, 0); expired != nil {
		from = expired
	}
	after, no := Claim(from, Claimant{WorkerID: worker, ExecID: worker + "-exec"}, l.eff, l.now)
	require.Empty(l, no)
	if from != l.task {
		after.Rev = l.task.Rev + 1 // one write, as the store makes it
	}
	return l.does(after, nil)
}

func (l *eventLife) finish(worker string, out Outcome) model.TaskEvent {
	l.Helper()
	return l.does(Finish(l.task, worker+"-exec", out, l.eff, l.now, 0))
}

func TestASentTaskIsToldOfByItsInsert(t *testing.T) {
	task := NewTask(Draft{Tenant: "acme", Type: "t", Key: "a/b"}, epoch)
	raw, err := marshal(task)
	require.NoError(t, err)
	e, ok := codec.EventOf(codec.Change{TaskID: task.ID, Inserted: raw})
	require.True(t, ok)
	require.Equal(t, model.TaskEvent{
		Kind: model.EventSent, TaskID: "acme/t/a/b", Tenant: "acme", Type: "t", Key: "a/b",
		At: epoch, Rev: 1, Status: model.StatusNew, Generation: epoch.UnixMilli(),
	}, e)

	held := NewTask(Draft{Type: "t", Key: "k", Held: true}, epoch)
	raw, err = marshal(held)
	require.NoError(t, err)
	e, _ = codec.EventOf(codec.Change{TaskID: held.ID, Inserted: raw})
	require.Equal(t, model.StatusWait, e.Status)
	require.Empty(t, e.Tenant)
}

func TestAPlainLifeIsToldStepByStep(t *testing.T) {
	l := newEventLife(t, model.Options{})
	e := l.claim("w1")
	require.Equal(t, model.TaskEvent{
		Kind: model.EventClaimed, TaskID: "acme/t/k", Tenant: "acme", Type: "t", Key: "k", At: epoch, Rev: 2,
		Status: model.StatusExecuting, WorkerID: "w1", ExecID: "w1-exec", Attempt: 1,
	}, e)
	e = l.finish("w1", Success(bson.RawValue{}))
	require.Equal(t, model.EventEnded, e.Kind)
	require.Equal(t, model.StatusSuccess, e.Status)
	require.Equal(t, epoch.Add(time.Second), e.At)
	require.Empty(t, e.FailKind)
}

func TestEachEndOfAnExecutionIsTold(t *testing.T) {
	none := model.Options{Retry: &model.Retry{MaxErrors: new(0)}}
	manual := model.Options{Retry: &model.Retry{MaxErrors: new(0)}, NeedManual: new(true)}
	for _, c := range []struct {
		name   string
		o      model.Options
		out    Outcome
		kind   model.EventKind
		status model.Status
	}{
		{"error", model.Options{}, Failed(failkind.Error, "e"), model.EventFailed, model.StatusError},
		{"panic", model.Options{}, Failed(failkind.Panic, "e"), model.EventFailed, model.StatusError},
		{"budget spent", none, Failed(failkind.Error, "e"), model.EventEnded, model.StatusFailure},
		{"a person must decide", manual, Failed(failkind.Error, "e"), model.EventEnded, model.StatusPending},
		{"fatal", model.Options{}, Failed(failkind.Fatal, "e"), model.EventEnded, model.StatusFailure},
		{"given back", model.Options{}, Failed(failkind.Released, "e"), model.EventReleased, model.StatusNew},
		{"not understood", model.Options{}, Failed(failkind.Undecodable, "e"), model.EventReleased, model.StatusNew},
		{"cancelled by its handler", model.Options{}, Outcome{CancelTask: true, Reason: "e"}, model.EventEnded, model.StatusCancelled},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newEventLife(t, c.o)
			l.claim("w1")
			e := l.finish("w1", c.out)
			require.Equal(t, c.kind, e.Kind)
			require.Equal(t, c.status, e.Status)
			require.Equal(t, "e", e.Reason)
			require.NotEmpty(t, e.FailKind)
		})
	}
}

func TestATakeOverIsToldAsOne(t *testing.T) {
	l := newEventLife(t, model.Options{})
	l.claim("w1")
	l.now = l.now.Add(time.Hour)
	e := l.claim("w2")
	require.Equal(t, model.EventTakenOver, e.Kind)
	require.Equal(t, "w2", e.WorkerID)
	require.Equal(t, failkind.Lapsed, e.FailKind)
	require.Contains(t, e.Reason, "w1 sent no ping")
	require.Equal(t, 2, e.Attempt)

	l.now = l.now.Add(time.Hour)
	e = l.does(Expire(l.task, l.eff, l.now, 0), nil)
	require.Equal(t, model.EventFailed, e.Kind, "lapsed, and nobody took it")
	require.Equal(t, failkind.Lapsed, e.FailKind)
}

func TestOfSeveralWorkersEachIsTold(t *testing.T) {
	l := newEventLife(t, model.Options{ConcurrentWorkerCount: 2})
	l.claim("w1")
	e := l.claim("w2")
	require.Equal(t, model.EventClaimed, e.Kind)
	require.Equal(t, "w2-exec", e.ExecID)
	e = l.finish("w1", Success(bson.RawValue{}))
	require.Equal(t, model.EventSucceeded, e.Kind)
	require.Equal(t, model.StatusExecuting, e.Status)
	require.Equal(t, model.EventEnded, l.finish("w2", Success(bson.RawValue{})).Kind)
}

// The send takes a parked execution from a worker that its filter excludes. The failure that it resets did not end now.
func TestASendThatResetsAFailureAndEndsAnExecutionIsToldAsThatEnd(t *testing.T) {
	l := newEventLife(t, model.Options{ConcurrentWorkerCount: 2})
	l.claim("w1")
	l.finish("w1", Failed(failkind.Error, "e"))
	l.claim("w2")
	l.does(Park(l.task, "w2-exec", l.now.Add(time.Hour), Outcome{}, l.eff, l.now))
	draft := Draft{Type: "t", Key: "k", Options: model.Options{ConcurrentWorkerCount: 2, SpecificWorkerIDs: []string{"w1", "w3"}}}
	e := l.does(SendAgain(l.task, draft, model.RestartFailed|model.UpdateArgs, l.now))
	require.Equal(t, failkind.Cleaned, l.task.WorkerStates[0].FailKind)
	require.Equal(t, model.EventReleased, e.Kind)
	require.Equal(t, failkind.Released, e.FailKind)
	require.Equal(t, Excluded, e.Reason)
}

func TestWhatPeopleDoIsTold(t *testing.T) {
	l := newEventLife(t, model.Options{Retry: &model.Retry{MaxErrors: new(0)}, NeedManual: new(true)})
	l.claim("w1")
	e := l.does(Cancel(l.task, "not needed", l.eff, l.now))
	require.Equal(t, model.EventCancelling, e.Kind)
	require.Equal(t, "not needed", e.Reason)
	require.Equal(t, model.StatusCancelled, l.finish("w1", Failed(failkind.Cancelled, "")).Status)
	e = l.does(RetryNow(l.task, "again", l.eff, l.now))
	require.Equal(t, model.EventSent, e.Kind)
	require.Equal(t, model.StatusNew, e.Status)
	require.Equal(t, l.task.Generation, e.Generation)
	require.Equal(t, model.EventChanged, l.does(Update(l.task, Patch{Priority: new(9)}, model.Options{}, l.now)).Kind)
	l.claim("w2")
	e = l.does(Park(l.task, "w2-exec", l.now.Add(time.Hour), Outcome{}, l.eff, l.now))
	require.Equal(t, model.EventParked, e.Kind)
	require.Equal(t, model.StatusPending, l.finish("w2", Failed(failkind.Error, "e")).Status)
	e = l.does(Resolve(l.task, "by hand", l.eff, l.now))
	require.Equal(t, model.EventEnded, e.Kind)
	require.Equal(t, model.StatusManuallyProcessed, e.Status)
	require.Equal(t, "by hand", e.Reason)

	l.task = NewTask(Draft{Type: "t", Key: "k", Held: true}, l.now)
	e = l.does(Release(l.task, l.eff, l.now))
	require.Equal(t, model.EventReleased, e.Kind)
	require.Equal(t, model.StatusNew, e.Status)
}

func TestProgressIsToldWithWhatItSays(t *testing.T) {
	raw, err := marshal(bson.D{{Key: "progress", Value: model.Progress{Percent: 40, Message: "two of five", At: epoch}}})
	require.NoError(t, err)
	e, ok := codec.EventOf(codec.Change{TaskID: "-/t/k", Updated: raw, At: epoch.Add(time.Hour)})
	require.True(t, ok)
	require.Equal(t, model.TaskEvent{
		Kind: model.EventProgress, TaskID: "-/t/k", Type: "t", Key: "k", At: epoch, Status: model.StatusExecuting,
		Progress: &model.Progress{Percent: 40, Message: "two of five", At: epoch},
	}, e)
}

func TestWhatDecidesNothingIsNoEvent(t *testing.T) {
	for name, updated := range map[string]bson.D{
		"ping":       {{Key: "worker_states.0.ping_expire_time", Value: epoch}, {Key: "lapse_at", Value: epoch}},
		"checkpoint": {{Key: "checkpoint", Value: 1}},
		"step":       {{Key: "steps.0", Value: bson.D{{Key: "name", Value: "a"}}}},
		"outcome":    {},
		"fence":      {{Key: "rev", Value: int64(7)}},
		"lapse_at":   {{Key: "rev", Value: int64(7)}, {Key: "updated_at", Value: epoch}, {Key: "lapse_at", Value: epoch}},
	} {
		raw, err := bson.Marshal(updated)
		require.NoError(t, err)
		e, ok := codec.EventOf(codec.Change{TaskID: "-/t/k", Updated: raw})
		require.False(t, ok, "%s is %v", name, e)
	}
	_, ok := codec.EventOf(codec.Change{TaskID: "somebody else's", Inserted: bson.Raw{5, 0, 0, 0, 0}})
	require.False(t, ok)
}

// A server may tell of a whole array where one element was set.
func TestAWholeArrayOfExecutionsTellsTheNewest(t *testing.T) {
	l := newEventLife(t, model.Options{ConcurrentWorkerCount: 2})
	l.claim("w1")
	l.claim("w2")
	raw, err := marshal(struct {
		Rev    int64               `bson:"rev"`
		States []model.WorkerState `bson:"worker_states"`
	}{l.task.Rev, l.task.WorkerStates})
	require.NoError(t, err)
	e, ok := codec.EventOf(codec.Change{TaskID: "-/t/k", Updated: raw})
	require.True(t, ok)
	require.Equal(t, model.EventClaimed, e.Kind)
	require.Equal(t, "w2", e.WorkerID)
	require.Equal(t, l.task.UpdatedAt, e.At)
}
