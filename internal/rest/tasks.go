package rest

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// TaskPath is the id of a task, tenant/type/key, as a path.
type TaskPath struct {
	Tenant string `path:"tenant" pattern:"^[a-zA-Z0-9._-]{1,100}$" doc:"tenant of the task; - for a task without one"`
	Type   string `path:"type" pattern:"^[a-zA-Z0-9._-]{1,100}$" doc:"type of the task"`
	Key    string `path:"key" maxLength:"400" doc:"key of the task, percent-encoded where it has a slash"`
}

func (p *TaskPath) id() string { return p.Tenant + "/" + p.Type + "/" + p.Key }

const taskAt = "/tasks/{tenant}/{type}/{key}"

// taskAnswer is the document of a task.
type taskAnswer struct {
	ETag string `header:"ETag" doc:"the rev of the task"`
	Body document[model.Task]
}

func answerTask(t *model.Task, err error) (*taskAnswer, error) {
	if err != nil {
		return nil, err
	}
	return answerRaw(codec.AppendTask(nil, t), t.Rev)
}

func answerRaw(raw bson.Raw, rev int64) (*taskAnswer, error) {
	doc, err := view.Task(raw)
	return &taskAnswer{ETag: etag(rev), Body: document[model.Task]{doc}}, err
}

// etag is a version as an ETag.
func etag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

// TaskFilter selects tasks.
type TaskFilter struct {
	Tenant   string    `query:"tenant" doc:"tenant; - for tasks without one"`
	Type     string    `query:"type"`
	Key      string    `query:"key" doc:"the beginning of the key. Unless tenant and type are both given, a page looks at 100 pairs of a tenant and a type"`
	Status   []string  `query:"status" doc:"any of these"`
	Category string    `query:"category"`
	Creator  string    `query:"creator"`
	WorkerID string    `query:"worker_id" doc:"has an execution of this worker in its list"`
	Error    string    `query:"error" doc:"the last error contains this text, in upper or lower case"`
	Arg      []string  `query:"arg,explode" doc:"PATH=VALUE, such as order.id=17: the arguments have this text, number, true or false there; each of these, if there are several"`
	After    time.Time `query:"created_after" doc:"created at this time or later"`
	Before   time.Time `query:"created_before" doc:"created before this time"`
	History  string    `query:"history" enum:"no,also,only" default:"no" doc:"past lives, too: those that moved to the history"`
}

func (f *TaskFilter) of(ctx context.Context) (admin.Filter, error) {
	tenant, err := tenantIn(ctx, "tenant", f.Tenant)
	out := admin.Filter{
		Tenant: tenant, Type: f.Type, Key: f.Key, Category: f.Category, Creator: f.Creator, WorkerID: f.WorkerID, Error: f.Error, Args: f.Arg, After: f.After, Before: f.Before,
		Past: f.History == "also", OnlyPast: f.History == "only",
	}
	for _, status := range f.Status {
		out.Statuses = append(out.Statuses, model.Status(status))
	}
	return out, err
}

// Page selects a page of a list.
type Page struct {
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"the most that one page lists"`
	Token string `query:"page_token" doc:"next of the page before; absent for the first page"`
}

type taskList struct {
	Body struct {
		Tasks      []document[model.Task] `json:"tasks"`
		Unreadable []unreadable           `json:"unreadable,omitempty" doc:"tasks of the page that this release cannot read; no worker starts them"`
		Next       string                 `json:"next,omitempty" doc:"page_token of the next page; absent on the last one"`
	}
}

func (s *API) addTasks() {
	add(s, rule{access.Viewer, tenantOfFilter}, op("list-tasks", http.MethodGet, "/tasks", "List tasks, sorted by id",
		sparse), s.listTasks)
	add(s, rule{access.Viewer, tenantOfFilter}, op("count-tasks", http.MethodGet, "/tasks/count", "Count tasks", ""), s.countTasks)
	add(s, rule{access.Viewer, tenantOfPath}, op("get-task", http.MethodGet, taskAt, "Get a task: its newest life, or the one of a generation", ""), s.getTask)
	add(s, rule{access.Viewer, tenantOfPath}, op("list-lives", http.MethodGet, taskAt+"/lives", "List all lives of a task, the newest first", ""), s.listLives)
	add(s, rule{access.Viewer, tenantOfPath}, op("wait-for-task", http.MethodGet, taskAt+"/wait", "Wait until a task has ended",
		"Answers with the task when it ends, or as it is when the time is over: its status says which."), s.waitForTask)
}

func (s *API) listTasks(ctx context.Context, in *struct {
	TaskFilter
	Sort string `query:"sort" enum:"id,-id" default:"id" doc:"- = descending. Keys that the server makes ascend in time, so -id lists the last sent tasks of a type first"`
	Page
}) (*taskList, error) {
	filter, err := in.of(ctx)
	if err != nil {
		return nil, err
	}
	filter.Descending = in.Sort == "-id"
	found, err := s.admin.Find(ctx, filter, in.Limit, in.Token)
	unread := store.Unread{}
	if err := unread.Add(err); err != nil {
		return nil, err
	}
	out := &taskList{}
	out.Body.Unreadable = listed(unread)
	out.Body.Next, out.Body.Tasks = found.Next, []document[model.Task]{}
	for _, raw := range found.Documents {
		if hidden(grantOf(ctx), raw) {
			continue
		}
		doc, err := view.Task(raw)
		if err != nil {
			return nil, err
		}
		out.Body.Tasks = append(out.Body.Tasks, document[model.Task]{doc})
	}
	return out, nil
}

type countAnswer struct {
	Body struct {
		Count int64 `json:"count"`
	}
}

func (s *API) countTasks(ctx context.Context, in *struct{ TaskFilter }) (*countAnswer, error) {
	filter, err := in.of(ctx)
	if err != nil {
		return nil, err
	}
	out := &countAnswer{}
	err = s.counts.within(ctx, func() (err error) {
		out.Body.Count, err = s.admin.Count(ctx, filter)
		return err
	})
	return out, err
}

func (s *API) getTask(ctx context.Context, in *struct {
	TaskPath
	Generation int64 `query:"generation" minimum:"0" doc:"a past life; 0 = the newest"`
}) (*taskAnswer, error) {
	if in.Generation == 0 {
		raw, err := s.admin.Document(ctx, in.id())
		if err != nil {
			return nil, err
		}
		rev, _ := raw.Lookup("rev").AsInt64OK()
		return answerRaw(raw, rev)
	}
	if err := s.mayRead(ctx, grantOf(ctx), in.id(), in.Generation); err != nil {
		return nil, err
	}
	return answerTask(s.admin.Get(ctx, in.id(), in.Generation))
}

func (s *API) listLives(ctx context.Context, in *struct {
	TaskPath
	Page
}) (*taskList, error) {
	if _, _, _, err := input.ParseTaskID(in.id()); err != nil {
		return nil, err
	}
	before := int64(math.MaxInt64)
	if from, err := placeOf(in.Token); err != nil {
		return nil, err
	} else if in.Token != "" {
		if before, err = strconv.ParseInt(from.id, 10, 64); err != nil {
			return nil, input.Invalid("page_token", "is %q; want next of the page before", in.Token)
		}
	}
	lives, more, err := s.store.History.LivesBefore(ctx, in.id(), before, in.Limit)
	if err == nil && len(lives) == 0 && in.Token == "" {
		err = fmt.Errorf("%w: %s", store.ErrNotFound, in.id())
	}
	if err != nil {
		return nil, err
	}
	out := &taskList{}
	out.Body.Tasks = []document[model.Task]{}
	if more {
		generation, _ := lives[len(lives)-1].Lookup("generation").AsInt64OK()
		out.Body.Next = after(strconv.FormatInt(generation, 10))
	}
	unread := store.Unread{}
	for _, raw := range lives {
		if hidden(grantOf(ctx), raw) {
			continue
		}
		t, err := store.Decode(raw)
		if err != nil {
			generation, _ := raw.Lookup("generation").AsInt64OK()
			unread[fmt.Sprintf("%s@%d", in.id(), generation)] = err
			continue
		}
		doc, err := view.Task(codec.AppendTask(nil, t))
		if err != nil {
			return nil, err
		}
		out.Body.Tasks = append(out.Body.Tasks, document[model.Task]{doc})
	}
	out.Body.Unreadable = listed(unread)
	return out, nil
}

func (s *API) waitForTask(ctx context.Context, in *struct {
	TaskPath
	Timeout int64 `query:"timeout_ms" minimum:"0" maximum:"50000" default:"30000" doc:"how long to wait"`
}) (*taskAnswer, error) {
	t, err := s.producer.Get(ctx, in.id())
	if err != nil || t.Status.Ended() {
		return answerTask(t, err)
	}
	wait, cancel := s.patient(ctx, time.Duration(in.Timeout)*time.Millisecond)
	defer cancel()
	ended, err := s.producer.AwaitTask(wait, producer.Sent{ID: t.ID, Generation: t.Generation})
	if wait.Err() != nil && ctx.Err() == nil {
		ended, err = s.producer.Get(ctx, in.id())
	}
	if err == nil {
		err = s.mayStill(ctx)
	}
	return answerTask(ended, err)
}
