package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// TaskType is the type of the tasks that jobs are.
const TaskType = "mscheduler.bulk"

// Jobs starts, reads and stops jobs. It is safe for concurrent use.
type Jobs struct {
	doors
	store *store.Store
	// change is [Jobs.whole], timeout changeTimeout, and counting countTimeout, unless a test replaces them.
	change   func(ctx context.Context, j *Job, life store.Place, now time.Time) error
	timeout  time.Duration
	counting time.Duration
}

// New makes them from the doors of one database. The producer must outlive them.
func New(p *producer.Producer, a *admin.Admin, s *store.Store) *Jobs {
	b := &Jobs{doors: doors{p, a}, store: s, timeout: changeTimeout, counting: countTimeout}
	b.change = b.whole
	return b
}

// TaskError is an error of one task of a job.
type TaskError struct {
	TaskID string `json:"task_id"`
	Error  string `json:"error"`
}

// mostErrors is how many errors of tasks a job keeps.
const mostErrors = 10

// progress is the checkpoint of a job, and its result.
type progress struct {
	Counts
	Counted         bool        `json:"counted"` // Matched
	Failed          int64       `json:"failed"`
	Errors          []TaskError `json:"errors,omitempty"` // the first of them
	AfterID         string      `json:"after_id,omitempty"`
	AfterGeneration int64       `json:"after_generation,omitempty"`
	Since           time.Time   `json:"since,omitzero"` // nothing behind that place was done before
}

// JobState is a job as JSON.
type JobState struct {
	ID        string          `json:"id"`
	Tenant    string          `json:"tenant" doc:"whose tasks it changes; - for tasks without a tenant, or of all tenants: its filter says which"`
	TaskID    string          `json:"task_id" doc:"the task that the job is"`
	Action    string          `json:"action"`
	Filter    json.RawMessage `json:"filter" doc:"which tasks"`
	Remark    string          `json:"remark,omitempty"`
	Step      string          `json:"step,omitempty"`
	Change    json.RawMessage `json:"change,omitempty" doc:"of update: what it changes"`
	Creator   string          `json:"creator,omitempty" doc:"who started it"`
	Status    model.Status    `json:"status" doc:"of its task: New until a worker has begun, Executing, then Success or Failure; Error while it waits for a retry, Cancelled if it was stopped"`
	Stopping  bool            `json:"stopping,omitempty" doc:"a stop was requested"`
	Created   string          `json:"created_at" format:"date-time"`
	Finished  string          `json:"finished_at,omitempty" format:"date-time"`
	ErrorInfo string          `json:"error_info,omitempty" doc:"the last error of the job itself"`
	Counts
	Counted bool        `json:"counted" doc:"the tasks were counted: matched is their number. False: the job has not begun, or the count failed or took more than 30 s"`
	Failed  int64       `json:"failed" doc:"tasks whose change was an error"`
	Errors  []TaskError `json:"errors,omitempty" doc:"the first of these errors"`
}

// Count counts the tasks of a job, without starting it.
func (b *Jobs) Count(ctx context.Context, j *Job) (int64, error) {
	c, err := b.check(ctx, j)
	if err != nil {
		return 0, err
	}
	return b.store.History.CountLives(ctx, c.filter, c.where)
}

func (b *Jobs) check(ctx context.Context, j *Job) (checked, error) {
	if err := b.store.Ready(ctx); err != nil {
		return checked{}, err
	}
	now, err := b.store.ServerTime(ctx)
	if err != nil {
		return checked{}, err
	}
	// Times of documents have milliseconds: what was sent in the one that has just begun belongs to the job.
	return j.check(now.Add(time.Millisecond))
}

// ErrOtherJob is the error of a start whose key has started another job.
var ErrOtherJob = errors.New("another job has this key")

// Start starts a job. The same key starts it once, and is for no other job: [ErrOtherJob]; "" = a key of its own. The job
// goes over tasks that were created before its start.
func (b *Jobs) Start(ctx context.Context, j *Job, key, creator string) (*JobState, error) {
	request, err := json.Marshal(j)
	if err != nil {
		return nil, fmt.Errorf("starting a job: %w", err)
	}
	if _, err := b.check(ctx, j); err != nil {
		return nil, err
	}
	stored := *j
	stored.DryRun = false
	args, err := json.Marshal(&stored)
	if err != nil {
		return nil, fmt.Errorf("starting a job: %w", err)
	}
	o := []producer.Option{producer.Tenant(tenantOf(j.Filter.Tenant)), producer.Creator(creator)}
	if key != "" {
		o = append(o, producer.Key(key))
	}
	sent, err := b.producer.SendJSON(ctx, TaskType, args, o...)
	if err != nil {
		return nil, fmt.Errorf("starting a job: %w", err)
	}
	t, err := b.producer.Get(ctx, sent.ID)
	if err != nil {
		return nil, err
	}
	if !sent.Created && !startedBy(request, t) {
		return nil, ErrOtherJob
	}
	return viewOf(t)
}

// startedBy says whether a request would have stored the task of a job as it is. The task has the times that the durations
// of its own request stood for at its start.
func startedBy(request []byte, t *model.Task) bool {
	stored, err := form.ReadJSON[Job]("args", 1, codec.ValueJSON(t.Args), "a job")
	if err != nil || stored.Form.Filter == nil {
		return false
	}
	asked := func() *Job {
		doc, _ := form.ReadJSON[Job]("body", 1, request, "a job") // it was written from one
		return doc.Form
	}
	for _, start := range starts(asked(), stored.Form, t.CreatedAt) {
		j := asked()
		if _, err := j.check(start); err != nil {
			continue
		}
		text, err := json.Marshal(j)
		if err != nil {
			return false
		}
		if args, err := codec.EncodeJSON("args", text, input.MaxArgsBytes); err == nil && args.Equal(t.Args) {
			return true
		}
	}
	return false
}

// startTime is how long a start takes at most, from its check on until its task is created.
const startTime = 2 * time.Minute

// starts returns the times at which a stored job may have been checked, if it is the one that the request asks for. Each
// time in the job suggests one.
func starts(asked, stored *Job, created time.Time) []time.Time {
	out := []time.Time{created}
	add := func(asked, stored *form.Time) {
		if stored == nil {
			return
		}
		at, err := form.ParseTime(string(*stored), time.UTC, time.Time{})
		if err != nil {
			return
		}
		if asked != nil {
			if d, err := form.ParseDuration(string(*asked)); err == nil {
				at = at.Add(-d)
			}
		}
		if at.Sub(created).Abs() < startTime {
			out = append(out, at)
		}
	}
	add(asked.Filter.CreatedBefore, stored.Filter.CreatedBefore)
	add(asked.Filter.CreatedAfter, stored.Filter.CreatedAfter)
	if asked.Change != nil && stored.Change != nil {
		add(asked.Change.StartTime, stored.Change.StartTime)
		add(asked.Change.Options.ExpiresAt, stored.Change.Options.ExpiresAt)
	}
	return out
}

// OfAllTenants says whether a stored task is a job that goes over the tasks of all tenants: it belongs to none, and
// its filter names none.
func OfAllTenants(task bson.Raw) bool {
	typ, _ := task.Lookup("type").StringValueOK()
	tenant, _ := task.Lookup("tenant").StringValueOK()
	var job struct{ Filter struct{ Tenant string } }
	return typ == TaskType && tenant == "" && (codec.DecodeValue(task.Lookup("args"), &job) != nil || job.Filter.Tenant == "")
}

// OfAllTenants says whether the job goes over the tasks of all tenants.
func (v *JobState) OfAllTenants() bool {
	var filter struct{ Tenant string }
	return v.Tenant == model.NoTenant && (json.Unmarshal(v.Filter, &filter) != nil || filter.Tenant == "")
}

// tenantOf is the tenant of the task of a job whose filter has that tenant.
func tenantOf(tenant string) string {
	if tenant == model.NoTenant {
		return ""
	}
	return tenant
}

// Get reads a job. tenant is that of its filter, or [model.NoTenant].
func (b *Jobs) Get(ctx context.Context, tenant, id string) (*JobState, error) {
	t, err := b.producer.Get(ctx, model.TaskID(tenantOf(tenant), TaskType, id))
	return known(t, id, err)
}

// missingError is the error of a job that does not exist.
type missingError struct{ id string }

func (e *missingError) Error() string { return "no such job: " + e.id }

func (e *missingError) Unwrap() error { return store.ErrNotFound }

// known is the task of the job id, or why there is none.
func known(t *model.Task, id string, err error) (*JobState, error) {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, &missingError{id}
	case err != nil:
		return nil, err
	default:
		return viewOf(t)
	}
}

// List reads a page of the jobs of a tenant, as [admin.Admin.Find] does. Jobs that a person ran again are
// there once for each life.
func (b *Jobs) List(ctx context.Context, tenant string, size int, token string) (jobs []*JobState, next string, err error) {
	page, err := b.admin.Find(ctx, admin.Filter{Tenant: tenant, Type: TaskType, Past: true}, size, token)
	var unread *model.UnreadableError // the list of tasks names those
	if err != nil && !errors.As(err, &unread) {
		return nil, "", err
	}
	jobs = []*JobState{}
	for _, t := range page.Tasks {
		v, err := viewOf(t)
		if err != nil {
			return nil, "", err
		}
		jobs = append(jobs, v)
	}
	return jobs, page.Next, nil
}

// Stop stops a job: what it has begun ends, and it begins nothing more. What it has changed stays so.
func (b *Jobs) Stop(ctx context.Context, tenant, id, remark string) (*JobState, error) {
	t, err := b.producer.Cancel(ctx, model.TaskID(tenantOf(tenant), TaskType, id), remark)
	return known(t, id, err)
}

// viewOf is the task of a job as a job.
func viewOf(t *model.Task) (*JobState, error) {
	var args struct {
		Action, Remark, Step string
		Filter, Change       json.RawMessage
	}
	var p progress
	err := codec.DecodeValue(secret.HideArgs(t.Type, t.Args), &args)
	if saved := last(t.Result, t.Checkpoint); saved.Type != 0 && saved.Type != bson.TypeNull {
		err = errors.Join(err, codec.DecodeValue(saved, &p))
	}
	if err != nil {
		return nil, fmt.Errorf("reading job %s: %w", t.ID, err)
	}
	tenant := t.Tenant
	if tenant == "" {
		tenant = model.NoTenant
	}
	return &JobState{
		ID: t.Key, Tenant: tenant, TaskID: t.ID, Action: args.Action, Filter: args.Filter, Remark: args.Remark, Step: args.Step, Change: args.Change,
		Creator: t.Creator, Status: t.Status, Stopping: !t.CancelRequestedAt.IsZero() && !t.Status.Ended(), Created: text(t.CreatedAt), Finished: text(t.FinishedAt),
		ErrorInfo: t.ErrorInfo, Counts: p.Counts, Counted: p.Counted, Failed: p.Failed, Errors: p.Errors,
	}, nil
}

func last(result, checkpoint bson.RawValue) bson.RawValue {
	if result.Type != 0 {
		return result
	}
	return checkpoint
}

func text(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(clock.Format)
}
