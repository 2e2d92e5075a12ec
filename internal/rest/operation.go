package rest

import (
	"context"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// maxBody bounds a request's body: a thousand tasks with arguments of some KiB, or one with the largest.
const maxBody = 8 << 20

// operationTime bounds an operation, the longest wait included. The database gives up what takes longer,
// such as a count of very many tasks.
const operationTime = maxWait + 40*time.Second

// add adds an operation. Its tag is the first part of its path.
func add[I, O any](s *API, need rule, op huma.Operation, handle func(context.Context, *I) (*O, error)) {
	op.Path = "/api/v1" + op.Path
	op.SkipValidateBody = true // the form tells what is wrong, field by field
	op.MaxBodyBytes = maxBody
	op.Errors = answersOf(op, need.role, reflect.TypeFor[I]())
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["431"] = tooLong
	op.Security = []map[string][]string{{"token": {}}}
	op.Extensions = map[string]any{"x-role": string(need.role), "x-tenants": string(need.tenants)}
	r := recordingOf(op)
	op.Middlewares = append(op.Middlewares, keepsAlive, s.admit(need, r), s.traced(op), s.once)
	answer := func(ctx context.Context, in *I) (*O, error) {
		ctx, cancel := context.WithTimeout(ctx, operationTime)
		defer cancel()
		out, err := handle(ctx, in)
		if err != nil {
			return nil, s.problem(err)
		}
		return out, nil
	}
	if need.changes(op) {
		op.Extensions["x-audited"] = true
		answer = recorded(s, r, answer)
	}
	huma.Register(s.api, op, answer)
}
