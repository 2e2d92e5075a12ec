package flowspec

import (
	"cmp"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Bounds of the elements of a node.
const (
	usualElements = 1_000
	maxElements   = 10_000
)

// each checks for which elements the node has tasks.
func (c *checker) each(v *graph.Vertex) {
	e := *c.n.Each
	if e.Limit < 0 || e.Limit > maxElements {
		c.bad("each.limit", "is %d; want 1 to %d, or 0 for all at once", e.Limit, maxElements)
	}
	if e.Max < 0 || e.Max > maxElements {
		c.bad("each.max", "is %d; want 1 to %d, or 0 for %d", e.Max, maxElements, usualElements)
	}
	e.Max = cmp.Or(e.Max, usualElements)
	items, waits, err := c.template("each.items", c.n.Each.Items)
	switch {
	case err != nil:
	case !waits:
		_, err = list(&e, items)
	case !isReference(items) && items.Type != bson.TypeArray:
		err = input.Invalid("each.items", "is %s; want a list, or a reference to one", codec.ValueJSON(items))
	}
	c.add(err)
	c.argsBytes += len(items.Value)
	e.Items = string(codec.ValueJSON(items))
	v.Each, v.Type = &e, NodeType
	v.Task = lifecycle.NewTask(lifecycle.Draft{
		Tenant: tenantOf(c.spec), Type: c.n.Type, Category: c.spec.Category, Creator: c.spec.Creator, Priority: c.n.Priority, Options: c.n.Options,
	}, c.now)
}

// list are the elements of a value.
func list(e *graph.Each, items bson.RawValue) ([]bson.RawValue, error) {
	array, ok := items.ArrayOK()
	if !ok {
		return nil, input.Invalid("each.items", "is %s; want a list", clipped(items))
	}
	all, err := array.Values()
	if err != nil {
		return nil, input.Invalid("each.items", "is not a well-formed list: %v", err)
	}
	if len(all) > e.Max {
		return nil, input.Invalid("each.items", "has %d elements; at most %d are allowed (each.max)", len(all), e.Max)
	}
	return all, nil
}

func clipped(v bson.RawValue) string {
	const most = 80
	if text := string(codec.ValueJSON(v)); len(text) <= most {
		return text
	}
	return "something else"
}

// EachItems is the stored template of the list whose elements a node has tasks for.
func EachItems(v *graph.Vertex) string {
	text, _ := v.Each.Items.(string)
	return text
}

// Elements are those of a node that may start now, each with output as for [Resolve].
func Elements(v *graph.Vertex, output func(node string) bson.RawValue) ([]bson.RawValue, error) {
	template, err := Template(EachItems(v))
	if err != nil {
		return nil, err
	}
	items := template
	if !isReference(template) {
		items, err = Resolve(template, output)
	} else { // it may be longer than arguments may be
		err = input.Invalid("each.items", "is no reference")
		for _, node := range Refs(template) {
			fields, _ := bson.Raw(template.Value).Elements() // one, by isReference
			text, _ := fields[0].Value().StringValueOK()
			path := ""
			if len(text) > len(node) {
				path = text[len(node)+1:]
			}
			items, err = pick(output(node), path), nil
		}
	}
	if err != nil {
		return nil, err
	}
	return list(v.Each, items)
}

// ElementArgs are the arguments of the tasks of a node's elements. The error says that they are too
// large.
func ElementArgs(v *graph.Vertex, items []bson.RawValue, output func(node string) bson.RawValue) ([]bson.RawValue, error) {
	out := make([]bson.RawValue, len(items))
	if v.Args == "" {
		return out, nil
	}
	template, err := Template(v.Args)
	if err != nil {
		return nil, err
	}
	total := 0
	for i := range items {
		if out[i], err = resolve(template, items[i], output); err != nil {
			return nil, input.Under("each["+strconv.Itoa(i)+"]", err)
		}
		if total += len(out[i].Value); total > maxFlowBytes {
			return nil, input.Invalid("each", "has arguments of more than %d bytes as BSON for all its elements together", maxFlowBytes)
		}
	}
	return out, nil
}

// ElementID is the id of the task of an element of a node, by its place, in a life of the node.
func ElementID(f *graph.Flow, node, element int, life int64) string {
	v := &f.Nodes[node]
	return model.TaskID(f.Tenant, v.Task.Type, elementKey(f.Key, v.ID, element, life))
}

func elementKey(key, node string, element int, life int64) string {
	key = TaskKey("", key, node) + "/" + strconv.Itoa(element)
	if life > 0 {
		key += "/" + strconv.FormatInt(life, 10)
	}
	return key
}

// Element is the draft of the task of an element.
func Element(f *graph.Flow, node, element int, life int64, args bson.RawValue, held bool) lifecycle.Draft {
	v := &f.Nodes[node]
	t := v.Task
	return lifecycle.Draft{
		Tenant: f.Tenant, Type: t.Type, Key: elementKey(f.Key, v.ID, element, life), Category: t.Category, Creator: t.Creator,
		Args: args, Priority: &t.Priority, Options: t.Options, Held: held,
		Origin: &model.Origin{Kind: lifecycle.OutcomeFlow, ID: f.ID, Node: v.ID, Generation: life, Element: element + 1},
	}
}
