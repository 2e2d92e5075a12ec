package rest

import (
	"context"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// maxBody bounds a request's body: a thousand tasks with arguments of some KiB, or one with the largest.
const maxBody = 8 << 20

// operationTime bounds an operation, the longest wait included. The database gives up what takes longer,
// such as a count of very many tasks.
const operationTime = maxWait + 40*time.Second

// op describes an operation. Its tag is the first part of its path.
func op(id, method, path, summary, more string) huma.Operation {
	tag, _, _ := strings.Cut(path[1:], "/")
	return huma.Operation{OperationID: id, Method: method, Path: path, Tags: []string{tag}, Summary: summary, Description: more}
}

// among puts an operation under another tag.
func among(tag string, o huma.Operation) huma.Operation {
	o.Tags = []string{tag}
	return o
}

// add adds an operation.
func add[I, O any](s *API, need rule, o huma.Operation, handle func(context.Context, *I) (*O, error)) {
	o.Path = "/api/v1" + o.Path
	o.SkipValidateBody = true // the form tells what is wrong, field by field
	o.MaxBodyBytes = maxBody
	o.Errors = answersOf(o, need.role, reflect.TypeFor[I]())
	if o.Responses == nil {
		o.Responses = map[string]*huma.Response{}
	}
	o.Responses["431"] = tooLong
	o.Security = []map[string][]string{{"token": {}}}
	o.Extensions = map[string]any{"x-role": string(need.role), "x-tenants": string(need.tenants)}
	r := recordingOf(o)
	o.Middlewares = append(o.Middlewares, keepsAlive, s.admit(need, r), s.traced(o), s.once)
	answer := func(ctx context.Context, in *I) (*O, error) {
		ctx, cancel := context.WithTimeout(ctx, operationTime)
		defer cancel()
		out, err := handle(ctx, in)
		if err != nil {
			return nil, s.problem(err)
		}
		return out, nil
	}
	if need.changes(o) {
		o.Extensions["x-audited"] = true
		answer = recorded(s, r, answer)
	}
	huma.Register(s.api, o, answer)
}
