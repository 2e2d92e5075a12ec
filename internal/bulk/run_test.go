package bulk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/command"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/fakeworker"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/mstest"
	"github.com/mscheduler/mscheduler/producer"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// world is a database with jobs, and who runs them.
type world struct {
	*fakeworker.Worker
	t     *testing.T
	proxy *proxy.Proxy
	db    *mongo.Database
	p     *producer.Producer
	jobs  *Jobs
}

func newWorld(t *testing.T) *world {
	t.Helper()
	proxy := testdb.BehindPatient(t) // what is stored is not held, however slow the machine is
	db := testdb.Through(t, proxy)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	testdb.Closes(t, p.Close)
	w := fakeworker.New(t, db, "")
	return &world{w, t, proxy, db, p, New(p, admin.New(p), w.Store)}
}

// worker is a worker that runs jobs.
func (w *world) worker(change ...func(*consumer.Config)) *consumer.Consumer {
	w.t.Helper()
	cfg := consumer.Config{Database: w.db}
	for _, f := range change {
		f(&cfg)
	}
	c, err := consumer.New(cfg)
	require.NoError(w.t, err)
	require.NoError(w.t, Register(c, w.jobs))
	return c
}

// send sends n held tasks of a type.
func (w *world) send(typ string, n int, opts ...producer.Option) {
	w.t.Helper()
	items := make([]producer.JSONItem, n)
	for i := range items {
		items[i] = producer.JSONItem{Type: typ, Options: append([]producer.Option{producer.Key(fmt.Sprintf("%05d", i)), producer.Held()}, opts...)}
	}
	_, err := w.p.SendManyJSON(w.t.Context(), items)
	require.NoError(w.t, err)
}

func (w *world) start(j *Job) *JobState {
	w.t.Helper()
	v, err := w.jobs.Start(w.t.Context(), j, "", "ann")
	require.NoError(w.t, err)
	// What comes next is younger than the job, also by a clock that is some milliseconds behind.
	for began := w.Now(); w.Now().Sub(began) < 20*time.Millisecond; {
		time.Sleep(time.Millisecond)
	}
	return v
}

func (w *world) get(v *JobState) *JobState {
	w.t.Helper()
	got, err := w.jobs.Get(w.t.Context(), v.Tenant, v.ID)
	require.NoError(w.t, err)
	return got
}

func (w *world) count(status model.Status) int64 {
	w.t.Helper()
	n, err := w.Store.History.Count(w.t.Context(), store.Filter{Type: "mail", Statuses: []model.Status{status}})
	require.NoError(w.t, err)
	return n
}

func TestAJobChangesWhatItsFilterSelectsAndWasThereAtItsStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const n = 2*PageSize + 7
	w.send("mail", n)
	w.send("other", 1)
	j := &Job{Action: "cancel", Filter: &Filter{Type: "mail"}, Remark: "not needed"}
	matched, err := w.jobs.Count(t.Context(), j)
	require.NoError(t, err)
	require.EqualValues(t, n, matched)
	v := w.start(j)
	require.Equal(t, model.StatusNew, v.Status)
	require.False(t, v.Counted)
	_, err = w.p.SendJSON(t.Context(), "mail", nil, producer.Key("later"), producer.Held())
	require.NoError(t, err)

	mstest.Drain(t, w.worker())
	v = w.get(v)
	require.Equal(t, model.StatusSuccess, v.Status)
	require.Equal(t, Counts{Matched: n, Changed: n}, v.Counts)
	require.Equal(t, "ann", v.Creator)
	require.EqualValues(t, n, w.count(model.StatusCancelled))
	require.EqualValues(t, 1, w.count(model.StatusWait), "the one that was sent later")
	task, err := w.p.Get(t.Context(), "-/mail/00000")
	require.NoError(t, err)
	require.Equal(t, "not needed", task.Remark)
	job, err := w.p.Get(t.Context(), v.TaskID)
	require.NoError(t, err)
	require.InDelta(t, 100, job.Progress.Percent, 0)
}

// A worker that dies leaves its lease to lapse, and its checkpoint.
func TestAJobGoesOnBehindItsCheckpointWhenItsWorkerIsGone(t *testing.T) {
	w := newWorld(t)
	w.send("mail", 10)
	v := w.start(&Job{Action: "release", Filter: &Filter{Type: "mail"}})
	w.Claim(v.TaskID, "dead")
	job, err := w.p.Get(t.Context(), v.TaskID)
	require.NoError(t, err)
	checkpoint, err := codec.EncodeValue("checkpoint", progress{Counts: Counts{Matched: 10, Changed: 4}, Counted: true, AfterID: "-/mail/00003"}, input.MaxCheckpointBytes)
	require.NoError(t, err)
	require.NoError(t, w.Store.Tasks.SaveCheckpoint(t.Context(), v.TaskID, 0, job.WorkerStates[0].ExecID, false, checkpoint))
	w.End(v.TaskID, "dead", lifecycle.Failed(failkind.Lapsed, "its lease lapsed"))

	mstest.Drain(t, w.worker())
	v = w.get(v)
	require.Equal(t, model.StatusSuccess, v.Status)
	require.Equal(t, Counts{Matched: 10, Changed: 10}, v.Counts)
	require.EqualValues(t, 4, w.count(model.StatusWait), "those before the checkpoint were the dead worker's")
	require.EqualValues(t, 6, w.count(model.StatusNew))
}

func TestAWorkerThatStopsLeavesTheRestOfAJobToAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const n = PageSize + 50
	w.send("mail", n)
	v := w.start(&Job{Action: "cancel", Filter: &Filter{Type: "mail"}})
	first := w.worker(func(c *consumer.Config) { c.ShutdownTimeout = -1 })
	ctx, stop := context.WithCancel(t.Context())
	var seen atomic.Int64
	genuine := w.jobs.change
	w.jobs.change = func(ctx context.Context, j *Job, life store.Place, now time.Time) error {
		if seen.Add(1) >= PageSize/2 {
			stop()
			<-ctx.Done()
		}
		return genuine(ctx, j, life, now)
	}
	require.NoError(t, first.Run(ctx))
	half := w.get(v)
	require.Contains(t, []model.Status{model.StatusNew, model.StatusError}, half.Status)
	require.Positive(t, half.Changed)
	require.Less(t, half.Changed, int64(n))
	require.Equal(t, half.Changed, w.count(model.StatusCancelled), "what has begun ends, and is counted")

	w.jobs.change = genuine
	mstest.Drain(t, w.worker())
	v = w.get(v)
	require.Equal(t, Counts{Matched: n, Changed: n}, v.Counts)
	require.EqualValues(t, n, w.count(model.StatusCancelled))
}

func TestAJobThatIsStoppedChangesNothingMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.send("mail", PageSize+50)
	v := w.start(&Job{Action: "cancel", Filter: &Filter{Type: "mail"}})
	genuine, began := w.jobs.change, make(chan struct{}, PageSize+50)
	w.jobs.change = func(ctx context.Context, j *Job, life store.Place, now time.Time) error {
		began <- struct{}{}
		<-ctx.Done()
		return genuine(ctx, j, life, now)
	}
	ctx, end := context.WithCancel(t.Context())
	c := w.worker()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	testdb.Receive(t, began)
	stopped, err := w.jobs.Stop(t.Context(), v.Tenant, v.ID, "a mistake")
	require.NoError(t, err)
	require.True(t, stopped.Stopping)
	task, err := w.p.AwaitTask(t.Context(), producer.Sent{ID: v.TaskID})
	require.NoError(t, err)
	require.Equal(t, model.StatusCancelled, task.Status)
	end()
	require.NoError(t, testdb.Receive(t, ended))
	v = w.get(v)
	require.Equal(t, v.Changed, w.count(model.StatusCancelled))
	require.LessOrEqual(t, v.Changed, int64(atOnce))
	require.EqualValues(t, PageSize+50, v.Matched)
}

func TestAJobWhoseTasksTakeTooLongToCountChangesThemAll(t *testing.T) {
	w := newWorld(t)
	const n = 5
	w.send("mail", n)
	genuine := w.jobs.change
	w.jobs.counting = 50 * time.Millisecond
	w.jobs.change = func(ctx context.Context, j *Job, life store.Place, now time.Time) error {
		if life.ID == "-/mail/00004" {
			return passing
		}
		return genuine(ctx, j, life, now)
	}
	v := w.start(&Job{Action: "cancel", Filter: &Filter{Type: "mail"}})
	count := w.proxy.Set(proxy.Rule{Command: "aggregate", Collection: "tasks", Times: -1, Do: proxy.HoldBefore})
	mstest.Drain(t, w.worker())
	require.Equal(t, model.StatusError, w.get(v).Status)
	require.Equal(t, Counts{Changed: 4}, w.get(v).Counts)
	require.Equal(t, 1, count.Sprung())
	note := func() (float64, string) {
		job, err := w.p.Get(t.Context(), v.TaskID)
		require.NoError(t, err)
		return job.Progress.Percent, job.Progress.Message
	}
	percent, text := note()
	require.Zero(t, percent)
	require.Equal(t, "4 tasks cancelled", text)

	w.jobs.change = genuine
	_, err := w.p.Retry(t.Context(), v.TaskID, "")
	require.NoError(t, err)
	mstest.Drain(t, w.worker())
	v = w.get(v)
	require.Equal(t, model.StatusSuccess, v.Status)
	require.Equal(t, Counts{Changed: n}, v.Counts)
	require.False(t, v.Counted)
	require.Equal(t, 1, count.Sprung(), "a job counts once")
	percent, text = note()
	require.InDelta(t, 100, percent, 0)
	require.Equal(t, "5 tasks cancelled", text)
	count.Release()
	require.EqualValues(t, n, w.count(model.StatusCancelled))
}

func TestAnErrorOfOneTaskIsKeptAndTheOthersAreChanged(t *testing.T) {
	w := newWorld(t)
	w.send("mail", 3)
	genuine := w.jobs.change
	w.jobs.change = func(ctx context.Context, j *Job, life store.Place, now time.Time) error {
		if life.ID == "-/mail/00001" {
			return errors.New("it cannot be read")
		}
		return genuine(ctx, j, life, now)
	}
	v := w.start(&Job{Action: "update", Filter: &Filter{Type: "mail"}, Change: &form.Task{Priority: new(9)}})
	mstest.Drain(t, w.worker())
	v = w.get(v)
	require.Equal(t, model.StatusSuccess, v.Status)
	require.Equal(t, Counts{Matched: 3, Changed: 2}, v.Counts)
	require.EqualValues(t, 1, v.Failed)
	require.Equal(t, []TaskError{{"-/mail/00001", "it cannot be read"}}, v.Errors)
	task, err := w.p.Get(t.Context(), "-/mail/00002")
	require.NoError(t, err)
	require.Equal(t, 9, task.Priority)
}

func TestATaskWhoseChangeTheServerRefusesStopsNoJob(t *testing.T) {
	w := newWorld(t)
	w.send("mail", 3)
	const full = 16<<20 - 10_000
	_, err := w.db.Collection("tasks").UpdateByID(t.Context(), "-/mail/00001", bson.D{{Key: "$set", Value: bson.D{{Key: "pad", Value: make([]byte, full)}}}})
	require.NoError(t, err)
	v := w.start(&Job{Action: "update", Filter: &Filter{Type: "mail"}, Change: &form.Task{Args: form.Value(`{"text": "` + strings.Repeat("x", 20_000) + `"}`)}})
	mstest.Drain(t, w.worker())
	v = w.get(v)
	require.Equal(t, model.StatusSuccess, v.Status)
	require.Equal(t, Counts{Matched: 3, Changed: 2}, v.Counts)
	require.EqualValues(t, 1, v.Failed)
	require.Len(t, v.Errors, 1)
	require.Equal(t, "-/mail/00001", v.Errors[0].TaskID)
}

// holding has a transaction of another client hold a task until the test ends.
func (w *world) holding(id string) {
	w.t.Helper()
	session, err := w.db.Client().StartSession()
	require.NoError(w.t, err)
	w.t.Cleanup(func() { session.EndSession(context.Background()) })
	require.NoError(w.t, session.StartTransaction())
	_, err = w.db.Collection("tasks").UpdateByID(mongo.NewSessionContext(w.t.Context(), session), id, bson.D{{Key: "$set", Value: bson.D{{Key: "remark", Value: "mine"}}}})
	require.NoError(w.t, err)
}

func TestATaskThatAnotherClientHoldsStopsNoJob(t *testing.T) {
	w := newWorld(t)
	const n, held = 2 * atOnce, "-/mail/00005"
	w.send("mail", n)
	w.holding(held)
	genuine, hasty := w.jobs.change, *w.jobs
	hasty.timeout = 100 * time.Millisecond
	w.jobs.change = func(ctx context.Context, j *Job, life store.Place, now time.Time) error {
		if life.ID == held {
			return hasty.whole(ctx, j, life, now)
		}
		return genuine(ctx, j, life, now)
	}
	v := w.start(&Job{Action: "update", Filter: &Filter{Type: "mail"}, Change: &form.Task{Priority: new(9)}})
	mstest.Drain(t, w.worker())
	v = w.get(v)
	require.Equal(t, model.StatusSuccess, v.Status, v.ErrorInfo)
	require.Equal(t, Counts{Matched: n, Changed: n - 1}, v.Counts)
	require.EqualValues(t, 1, v.Failed)
	require.Len(t, v.Errors, 1)
	require.Equal(t, held, v.Errors[0].TaskID)
	require.Contains(t, v.Errors[0].Error, "not changed within 100ms, perhaps because another client holds the task")
}

func TestAJobOfATenantChangesOnlyItsTasks(t *testing.T) {
	w := newWorld(t)
	w.send("mail", 1, producer.Tenant("other"))
	w.send("mail", 1, producer.Tenant("mine"))
	v := w.start(&Job{Action: "cancel", Filter: &Filter{Tenant: "mine"}})
	require.Equal(t, "mine/"+TaskType+"/"+v.ID, v.TaskID)
	_, err := w.p.SendJSON(t.Context(), TaskType, []byte(`{"action":"cancel","filter":{"tenant":"other","created_before":"2100-01-01T00:00:00Z"}}`), producer.Tenant("mine"), producer.Key("forged"))
	require.NoError(t, err)
	mstest.Drain(t, w.worker())
	require.EqualValues(t, 1, w.get(v).Changed)
	forged, err := w.p.Get(t.Context(), "mine/"+TaskType+"/forged")
	require.NoError(t, err)
	require.Equal(t, model.StatusFailure, forged.Status)
	require.Contains(t, forged.ErrorInfo, "a job of tenant mine changes only its tasks")
	require.EqualValues(t, 1, w.count(model.StatusWait))
	jobs, next, err := w.jobs.List(t.Context(), "mine", 10, "")
	require.NoError(t, err)
	require.Empty(t, next)
	require.Len(t, jobs, 2)
}

// A task that a job has run again, and that has failed again, is not the job's any more.
func TestAJobRetriesATaskOnce(t *testing.T) {
	w := newWorld(t)
	w.send("mail", 2)
	fail := func(id string) {
		_, err := w.p.Release(t.Context(), id)
		require.NoError(t, err)
		w.Run(id, lifecycle.Failed(failkind.Fatal, "no"))
	}
	fail("-/mail/00000")
	fail("-/mail/00001")
	v := w.start(&Job{Action: "retry", Filter: &Filter{Type: "mail"}})
	_, err := w.p.Retry(t.Context(), "-/mail/00000", "")
	require.NoError(t, err)
	w.Run("-/mail/00000", lifecycle.Failed(failkind.Fatal, "again")) // by another page of the job, say, before a crash
	mstest.Drain(t, w.worker())
	require.Equal(t, Counts{Matched: 1, Changed: 1}, w.get(v).Counts)
	require.EqualValues(t, 1, w.count(model.StatusFailure))
	require.EqualValues(t, 1, w.count(model.StatusNew))
}

func TestAJobChangesNeitherJobsNorTasksThatNoWorkerRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.send(input.NodeType, 2)
	w.send(TaskType, 1)
	nodes := w.start(&Job{Action: "release", Filter: &Filter{Type: input.NodeType}})
	jobs := w.start(&Job{Action: "release", Filter: &Filter{Type: TaskType}})
	mstest.Drain(t, w.worker())
	for v, n := range map[*JobState]int64{nodes: 2, jobs: 1} {
		v = w.get(v)
		require.Equal(t, model.StatusSuccess, v.Status)
		require.Zero(t, v.Changed)
		require.Equal(t, n, v.Skipped)
	}
	for reason := range w.get(nodes).Reasons {
		require.Contains(t, reason, "use `flow retry` or `flow resolve`")
	}
}

// A page names 500 tasks. By the time the last of them is changed, one may have ended and been sent again.
func TestAJobSparesLivesThatBeganAfterItsPageWasRead(t *testing.T) {
	t.Parallel()
	for action, change := range map[string]*form.Task{"cancel": nil, "release": nil, "update": {Priority: new(9)}} {
		w := newWorld(t)
		w.send("mail", 3)
		genuine := w.jobs.change
		w.jobs.change = func(ctx context.Context, j *Job, life store.Place, now time.Time) error {
			switch life.ID {
			case "-/mail/00000":
				_, err := w.p.Cancel(t.Context(), life.ID, "by hand")
				require.NoError(t, err)
				_, err = w.p.SendJSON(t.Context(), "mail", nil, producer.Key("00000"), producer.Held(), producer.OnExisting(model.RestartFailed))
				require.NoError(t, err)
			case "-/mail/00001":
				_, err := w.p.Release(t.Context(), life.ID)
				require.NoError(t, err)
			}
			return genuine(ctx, j, life, now)
		}
		v := w.start(&Job{Action: action, Filter: &Filter{Type: "mail", Status: []string{"Wait"}}, Change: change})
		mstest.Drain(t, w.worker())
		reasons := map[string]int64{"a new life of its key has begun": 1, "its status is New by now": 1}
		require.Equal(t, Counts{Matched: 3, Changed: 1, Skipped: 2, Reasons: reasons}, w.get(v).Counts, action)
		again, err := w.p.Get(t.Context(), "-/mail/00000")
		require.NoError(t, err)
		require.Equal(t, model.StatusWait, again.Status, action)
		released, err := w.p.Get(t.Context(), "-/mail/00001")
		require.NoError(t, err)
		require.Equal(t, model.StatusNew, released.Status, action)
	}
}

// completed sends n tasks of type mail that succeed, and returns the delivery of the callback of each.
func (w *world) completed(n int) (deliveries []producer.Sent) {
	w.t.Helper()
	w.send("mail", n, producer.Callback(model.Callback{Success: &model.CallbackTarget{URL: "https://example.org/done"}}))
	for i := range n {
		id := fmt.Sprintf("-/mail/%05d", i)
		_, err := w.p.Release(w.t.Context(), id)
		require.NoError(w.t, err)
		require.Equal(w.t, model.StatusCompleted, w.Run(id, lifecycle.Outcome{}).Status)
		d, err := w.jobs.admin.Redeliver(w.t.Context(), id, 0)
		require.NoError(w.t, err)
		deliveries = append(deliveries, d)
	}
	return deliveries
}

func TestAJobDoesNotRedeliverWhatHasBeenDeliveredSinceItsPageWasRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.completed(2)
	w.Run(first[1].ID, lifecycle.Failed(failkind.Fatal, "404"))
	genuine := w.jobs.change
	w.jobs.change = func(ctx context.Context, j *Job, life store.Place, now time.Time) error {
		if life.ID == "-/mail/00000" {
			w.Run(first[0].ID, lifecycle.Outcome{})
			w.Change(life.ID, func(t *model.Task, now time.Time) (*model.Task, error) {
				return lifecycle.Delivered(t, true, lifecycle.ResolveOptions(t.Options), now), nil
			})
		}
		return genuine(ctx, j, life, now)
	}
	v := w.start(&Job{Action: "redeliver", Filter: &Filter{Type: "mail"}})
	mstest.Drain(t, w.worker())
	require.Equal(t, Counts{Matched: 2, Changed: 1, Skipped: 1, Reasons: map[string]int64{"its status is Success by now": 1}}, w.get(v).Counts)
	for i, d := range first {
		now, err := w.p.Get(t.Context(), d.ID)
		require.NoError(t, err)
		require.Equal(t, i == 0, now.Generation == d.Generation, "only the failed delivery begins anew")
	}
}

// afterTheNextMillisecond waits: lives that begin later differ in their generations from what was before.
func (w *world) afterTheNextMillisecond() {
	room := command.Of(w.p).Store
	for began := room.Clock.Now(); !room.Clock.Now().After(began); {
		time.Sleep(time.Millisecond)
	}
}

func TestARedeliveryThatAJobHasBegunIsNotRepeated(t *testing.T) {
	t.Parallel()
	failed := func(w *world, n int) []producer.Sent {
		deliveries := w.completed(n)
		for _, d := range deliveries {
			w.Run(d.ID, lifecycle.Failed(failkind.Fatal, "404"))
		}
		w.afterTheNextMillisecond()
		return deliveries
	}
	generation := func(w *world, d producer.Sent) int64 {
		task, err := w.p.Get(t.Context(), d.ID)
		require.NoError(t, err)
		return task.Generation
	}
	t.Run("the worker was killed in mid-page", func(t *testing.T) {
		w := newWorld(t)
		first := failed(w, 2)
		v := w.start(&Job{Action: "redeliver", Filter: &Filter{Type: "mail"}})
		w.Claim(v.TaskID, "dead")
		job, err := w.p.Get(t.Context(), v.TaskID)
		require.NoError(t, err)
		checkpoint, err := codec.EncodeValue("checkpoint", progress{Counts: Counts{Matched: 2}, Counted: true, Since: w.jobs.now()}, input.MaxCheckpointBytes)
		require.NoError(t, err)
		require.NoError(t, w.Store.Tasks.SaveCheckpoint(t.Context(), v.TaskID, 0, job.WorkerStates[0].ExecID, false, checkpoint))
		again, err := w.jobs.admin.Redeliver(t.Context(), "-/mail/00000", 0)
		require.NoError(t, err)
		w.Run(again.ID, lifecycle.Failed(failkind.Fatal, "404"))
		w.End(v.TaskID, "dead", lifecycle.Failed(failkind.Lapsed, "its lease lapsed"))

		mstest.Drain(t, w.worker())
		require.Equal(t, Counts{Matched: 2, Changed: 2}, w.get(v).Counts)
		require.Equal(t, again.Generation, generation(w, first[0]))
		require.Greater(t, generation(w, first[1]), first[1].Generation)
	})
	t.Run("another task of its page failed", func(t *testing.T) {
		w := newWorld(t)
		first := failed(w, 3)
		behind := make(chan struct{})
		genuine := w.jobs.change
		w.jobs.change = func(ctx context.Context, j *Job, life store.Place, now time.Time) error {
			if life.ID == "-/mail/00001" {
				<-behind
				return passing
			}
			err := genuine(ctx, j, life, now)
			if life.ID == "-/mail/00002" {
				w.Run(first[2].ID, lifecycle.Failed(failkind.Fatal, "404"))
				w.afterTheNextMillisecond()
				close(behind)
			}
			return err
		}
		v := w.start(&Job{Action: "redeliver", Filter: &Filter{Type: "mail"}})
		mstest.Drain(t, w.worker())
		require.Equal(t, model.StatusError, w.get(v).Status)
		begun := generation(w, first[2])
		require.Greater(t, begun, first[2].Generation)

		w.jobs.change = genuine
		_, err := w.p.Retry(t.Context(), v.TaskID, "")
		require.NoError(t, err)
		mstest.Drain(t, w.worker())
		require.Equal(t, Counts{Matched: 3, Changed: 3}, w.get(v).Counts)
		require.Equal(t, begun, generation(w, first[2]))
		require.Greater(t, generation(w, first[1]), first[1].Generation)
	})
}
