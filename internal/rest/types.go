package rest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/form"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/view"
	"github.com/mscheduler/mscheduler/model"
)

// TypePath names a type.
type TypePath struct {
	Code string `path:"type" pattern:"^[a-zA-Z0-9._-]{1,100}$" doc:"name of the type"`
}

// IfMatch is the header of edits: they name the version that the caller read.
type IfMatch struct {
	IfMatch string `header:"If-Match" doc:"the ETag that was read, or * for any version"`
}

// version is the version that an edit names; 0 = any.
func (m IfMatch) version() (int64, error) {
	switch text, err := strconv.Unquote(strings.TrimPrefix(m.IfMatch, "W/")); {
	case m.IfMatch == "":
		return 0, huma.NewError(http.StatusPreconditionRequired, "the header If-Match is required: the ETag that was read, or * for any version")
	case m.IfMatch == "*":
		return 0, nil
	case err != nil:
		return 0, input.Invalid("header.If-Match", "is %q; want the ETag that was read, in quotes, or *", m.IfMatch)
	default:
		version, err := strconv.ParseInt(text, 10, 64)
		if err != nil || version < 1 {
			return 0, huma.Error412PreconditionFailed("If-Match is not an ETag of this thing")
		}
		return version, nil
	}
}

type typeAnswer struct {
	ETag string `header:"ETag" doc:"the version of the type"`
	Body document[model.TaskType]
}

type typeList struct {
	Body struct {
		Types      []document[model.TaskType] `json:"types"`
		Unreadable []unreadable               `json:"unreadable,omitempty" doc:"types of the page that this release cannot read; none of their tasks starts"`
		Next       string                     `json:"next,omitempty" doc:"page_token of the next page; absent on the last one"`
	}
}

type pauseList struct {
	Body struct {
		Types  []string     `json:"types" doc:"types that are paused by name"`
		All    bool         `json:"all" doc:"all types are paused"`
		Pauses []view.Pause `json:"pauses" doc:"who has paused them, when and why"`
	}
}

func (s *API) addTypes() {
	const at = "/types/{type}"
	read, write := rule{access.Viewer, everyTenant}, rule{access.Admin, everyTenant}
	add(s, read, op("list-types", http.MethodGet, "/types", "List the stored types, sorted by name", "Tasks may have other types."), s.listTypes)
	add(s, read, op("get-type", http.MethodGet, at, "Get a type", ""), func(ctx context.Context, in *struct{ TypePath }) (*typeAnswer, error) {
		return s.readType(ctx, in.Code)
	})
	add(s, write, op("put-type", http.MethodPut, at, "Store the settings of a type",
		"The body describes the type completely: settings that it leaves out are removed. If-Match names the version that was read. A new type requires the header If-None-Match: *. "+
			"A repetition with the same Idempotency-Key gets the first answer; if that was lost, what is stored if it is as the request says. Settings with secrets cannot be compared."), s.putType)
	gone := op("delete-type", http.MethodDelete, at, "Delete the settings of a type", "Its tasks stay.")
	gone.DefaultStatus = http.StatusNoContent
	add(s, write, gone, func(ctx context.Context, in *struct {
		TypePath
		IfMatch
	}) (*struct{}, error) {
		version, err := in.version()
		if err != nil {
			return nil, err
		}
		return nil, s.admin.DeleteType(ctx, in.Code, version)
	})
	add(s, read, among("types", op("list-pauses", http.MethodGet, "/pauses", "List what is paused", "")), func(ctx context.Context, _ *struct{}) (*pauseList, error) {
		return s.pauses(ctx, nil)
	})
	const named, replaced = "Types that are paused by name stay so.", "The note of a later pause replaces that of an earlier one."
	add(s, write, op("pause-type", http.MethodPost, at+"/pause", "Pause a type: no task of it starts; those that run go on", replaced), func(ctx context.Context, in *struct {
		TypePath
		Body *body[noted]
	}) (*pauseList, error) {
		return s.pause(ctx, false, []string{in.Code}, in.Body)
	})
	add(s, write, among("types", op("pause-all", http.MethodPost, "/pauses/pause", "Pause all types", named+" "+replaced)), func(ctx context.Context, in *struct{ Body *body[noted] }) (*pauseList, error) {
		return s.pause(ctx, true, nil, in.Body)
	})
	add(s, write, op("resume-type", http.MethodPost, at+"/resume", "Resume a type: its tasks start again", ""), func(ctx context.Context, in *struct{ TypePath }) (*pauseList, error) {
		return s.pauses(ctx, func() error { return s.admin.Resume(ctx, in.Code) })
	})
	add(s, write, among("types", op("resume-all", http.MethodPost, "/pauses/resume", "Resume all types", named)), func(ctx context.Context, _ *struct{}) (*pauseList, error) {
		return s.pauses(ctx, func() error { return s.admin.ResumeAll(ctx) })
	})
}

// pause pauses types, or all, with the note of a body.
func (s *API) pause(ctx context.Context, all bool, types []string, b *body[noted]) (*pauseList, error) {
	note := said(b).Note
	if err := input.Note(note); err != nil {
		return nil, input.Under("body", err)
	}
	if err := s.room.Prepare(ctx); err != nil {
		return nil, err
	}
	return s.pauses(ctx, func() error { return s.store.Control.Pause(ctx, all, types, note, byOf(ctx)) })
}

// pauses answers with what is paused after a change.
func (s *API) pauses(ctx context.Context, change func() error) (*pauseList, error) {
	if change != nil {
		if err := change(); err != nil {
			return nil, err
		}
	}
	found, err := s.store.Control.Pauses(ctx)
	out := &pauseList{}
	out.Body.Types, out.Body.Pauses = []string{}, view.PausesOf(found)
	for i := range found {
		if typ := found[i].Type(); typ != "" {
			out.Body.Types = append(out.Body.Types, typ)
		} else {
			out.Body.All = true
		}
	}
	return out, err
}

func (s *API) listTypes(ctx context.Context, in *struct{ Page }) (*typeList, error) {
	from, err := placeOf(in.Token)
	if err != nil {
		return nil, err
	}
	types, broken, next, err := s.store.Types.Page(ctx, from.id, in.Limit)
	if err != nil {
		return nil, err
	}
	paused, _, err := s.admin.Paused(ctx)
	if err != nil {
		return nil, err
	}
	out := &typeList{}
	out.Body.Next = after(next)
	for _, b := range broken {
		out.Body.Unreadable = append(out.Body.Unreadable, unreadable{b.ID, fmt.Sprintf("the stored task type %s cannot be read: %v", b.ID, b.Err)})
	}
	out.Body.Types = []document[model.TaskType]{}
	for _, t := range types {
		doc, err := typeDocument(t, paused)
		if err != nil {
			return nil, err
		}
		out.Body.Types = append(out.Body.Types, doc)
	}
	return out, nil
}

func typeDocument(t *model.TaskType, paused []string) (document[model.TaskType], error) {
	doc, err := view.Stored(t, "code", bson.E{Key: "paused", Value: slices.Contains(paused, t.Code)})
	return document[model.TaskType]{doc}, err
}

func (s *API) readType(ctx context.Context, code string) (*typeAnswer, error) {
	t, err := s.admin.Type(ctx, code)
	if err != nil {
		return nil, err
	}
	return s.answerType(ctx, t)
}

func (s *API) answerType(ctx context.Context, t *model.TaskType) (*typeAnswer, error) {
	paused, _, err := s.admin.Paused(ctx)
	if err != nil {
		return nil, err
	}
	doc, err := typeDocument(t, paused)
	return &typeAnswer{ETag: etag(t.Version), Body: doc}, err
}

func (s *API) putType(ctx context.Context, in *struct {
	TypePath
	Idempotent
	IfMatch
	IfNoneMatch string `header:"If-None-Match" doc:"* for a new type"`
	Body        body[form.Type]
}) (*typeAnswer, error) {
	f := in.Body.form
	if f.Code != "" && f.Code != in.Code {
		return nil, input.Invalid("body.code", "is %q; the path names %q", f.Code, in.Code)
	}
	f.Code = in.Code
	if f.Paused != nil {
		return nil, input.Invalid("body.paused", "is not a setting of a type here; use /types/%s/pause or /types/%s/resume", in.Code, in.Code)
	}
	if f.Version != 0 {
		return nil, input.Invalid("body.version", "belongs to the header If-Match")
	}
	t, err := f.Model()
	if err != nil {
		return nil, input.Under("body", err)
	}
	if in.IfNoneMatch != "*" {
		if t.Version, err = in.version(); err != nil {
			return nil, err
		}
		if t.Version == 0 { // any version: the one that is stored
			stored, err := s.admin.Type(ctx, in.Code)
			if err != nil {
				return nil, err
			}
			t.Version = stored.Version
		}
	}
	put, err := s.admin.PutType(ctx, t)
	if err != nil {
		return nil, input.Under("body", err)
	}
	return s.answerType(ctx, put)
}
