package flowspec

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
)

// kind checks what the node does when its join lets it start, and fills that in.
func (c *checker) kind(v *graph.Vertex) {
	n, kind := c.n, ""
	for _, k := range []struct {
		field string
		given bool
	}{{"wait", n.Wait != nil}, {"ask", n.Ask != nil}, {"flow", n.Flow != nil}} {
		switch {
		case !k.given:
		case kind != "":
			c.bad(k.field, "is given, but the node has %s; want one of them", kind)
			return
		default:
			kind = k.field
		}
	}
	if kind == "" {
		c.add(input.UserType("type", n.Type))
		if n.Each != nil {
			c.each(v)
		}
		return
	}
	if n.Each != nil {
		c.bad("each", "is given, but the node has %s; it is for nodes with a type", kind)
	}
	for _, p := range []struct {
		field string
		given bool
	}{{"type", n.Type != ""}, {"args", n.Args != nil && n.Flow == nil}, {"priority", n.Priority != nil}, {"options", !n.Options.IsZero()}} {
		if p.given {
			c.bad(p.field, "is given, but no worker runs a node with %s", kind)
		}
	}
	switch kind {
	case "ask":
		c.ask(v)
	case "wait":
		c.wait(v)
	default:
		c.flow(v)
	}
}

// wait checks for how long the node waits.
func (c *checker) wait(v *graph.Vertex) {
	w := c.n.Wait
	switch {
	case w.Until != nil && w.For != 0:
		c.bad("wait", "has both for and until; want one of them")
		return
	case w.Until == nil:
		if v.For = w.For; w.For < time.Millisecond || w.For > input.MaxDuration {
			c.bad("wait.for", "is %s; want 1ms to ten years, or until", w.For)
		}
		return
	}
	at, waits, err := c.template("wait.until", w.Until)
	switch {
	case err != nil:
	case !waits:
		_, err = timeOf("wait.until", at)
	case !isReference(at):
		err = input.Invalid("wait.until", `is %s; want a time such as "2026-01-31T09:00:00Z", or a reference to one`, codec.ValueJSON(at))
	}
	c.add(err)
	v.Until = string(codec.ValueJSON(at))
}

// isReference says whether a value with references is one itself, and has none deeper in it.
func isReference(v bson.RawValue) bool {
	doc, ok := v.DocumentOK()
	if !ok {
		return false
	}
	fields, err := doc.Elements()
	return err == nil && len(fields) == 1 && slices.Contains([]string{refOutput, refArg}, fields[0].Key())
}

// DueAt is the time until which a node waits that may start now. output returns the output of a node,
// as for [Resolve]. It is an error if an output has no time where the node refers to one.
func DueAt(v *graph.Vertex, now time.Time, output func(node string) bson.RawValue) (time.Time, error) {
	if v.Until == "" {
		return now.Add(v.For), nil
	}
	template, err := Template(v.Until)
	if err != nil {
		return time.Time{}, err
	}
	at, err := Resolve(template, output)
	if err != nil {
		return time.Time{}, err
	}
	return timeOf("wait.until", at)
}

// timeOf is the time that a value says.
func timeOf(field string, v bson.RawValue) (time.Time, error) {
	if text, ok := v.StringValueOK(); ok {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return clock.Millis(at), nil
		}
	}
	return time.Time{}, input.Invalid(field, `is %s; want a time such as "2026-01-31T09:00:00Z"`, codec.ValueJSON(v))
}
