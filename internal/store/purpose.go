package store

import "context"

// Purpose names what a worker needs a command for. The store attaches it to the context
// of the call, so that a command monitor of the driver can tell claims from ends.
type Purpose string

// The purposes that a monitor can tell apart.
const (
	Finding  Purpose = "find"
	Claiming Purpose = "claim"
	Ending   Purpose = "end"
)

// Call describes one command: its purpose, and how many tasks an update names.
type Call struct {
	Purpose Purpose
	Tasks   int // 0 for a query
}

type callKey struct{}

// For attaches a purpose to the calls that ctx is given to.
func For(ctx context.Context, p Purpose) context.Context {
	return context.WithValue(ctx, callKey{}, Call{Purpose: p})
}

// CallOf returns the [Call] of the context that a command monitor receives. ok is false
// for a command without a purpose.
func CallOf(ctx context.Context) (c Call, ok bool) {
	c, ok = ctx.Value(callKey{}).(Call)
	return c, ok
}

// naming adds the number of tasks that an update names to the call of ctx, if it has one.
func naming(ctx context.Context, tasks int) context.Context {
	c, ok := CallOf(ctx)
	if !ok {
		return ctx
	}
	c.Tasks = tasks
	return context.WithValue(ctx, callKey{}, c)
}
