package flowspec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// maxNesting is how deep flows may nest.
const maxNesting = 8

// longLife is a life with as many digits as any node will have.
const longLife = 999_999

// ChildID is the id of the flow that a node starts in one of its lives.
func ChildID(f *graph.Flow, node int, life int64) string {
	return input.RuleName(f.Tenant, ChildKey(f, node, life))
}

// ChildKey is the key of the flow that a node starts in one of its lives.
func ChildKey(f *graph.Flow, node int, life int64) string {
	return childKey(f.Key, f.Nodes[node].ID, life)
}

// childKey has marks that no id of a node has, so that no two lives of nodes have the same.
func childKey(key, node string, life int64) string {
	key += "." + node
	if life > 0 {
		key += "+" + strconv.FormatInt(life, 10)
	}
	return key
}

// flow checks the definition of the flow that the node starts, as far as its arguments are known.
func (c *checker) flow(v *graph.Vertex) {
	s := *c.n.Flow
	if s.Key != "" {
		c.bad("flow.key", "is given; it follows from the key of the flow around it and from the node")
	}
	if s.Tenant != "" {
		c.bad("flow.tenant", "is given; it is that of the flow around it")
	}
	if c.n.Args != nil && s.Args != nil {
		c.bad("args", "is given, but flow.args is, too; want one of them")
	}
	if c.depth+1 > maxNesting {
		c.bad("flow", "nests flows more than %d deep", maxNesting)
		return
	}
	s.Tenant, s.Creator, s.Category = "", cmp.Or(s.Creator, c.spec.Creator), cmp.Or(s.Category, c.spec.Category)
	inner := &builder{spec: &s, key: childKey(c.key, c.n.ID, longLife), now: c.now, depth: c.depth + 1, open: c.n.Args != nil || c.open && s.Args == nil}
	_, err := inner.build()
	c.add(input.Under("flow", err))
	if err == nil {
		v.Type = NodeType
		v.Flow, err = packed(&s)
		c.add(err)
	}
}

// Child is the flow that a node starts in its present life, with the arguments that it has for it.
func Child(f *graph.Flow, node int, args bson.RawValue, now time.Time) (*graph.Flow, error) {
	v, life := &f.Nodes[node], f.States[node].Life
	s, err := unpacked(v.Flow)
	if err != nil {
		return nil, err
	}
	s.Tenant = f.Tenant
	if v.Args != "" {
		s.Args = json.RawMessage(codec.ValueJSON(args))
	}
	doc, err := Build(s, childKey(f.Key, v.ID, life), now)
	if err != nil {
		return nil, err
	}
	doc.Parent = &model.Origin{Kind: lifecycle.OutcomeFlow, ID: f.ID, Node: v.ID, Generation: life}
	return doc, nil
}

// ParentTask is the id of the task of the node that started a flow.
func ParentTask(f *graph.Flow) string {
	_, key, _ := strings.Cut(f.Parent.ID, "/")
	return model.TaskID(f.Tenant, NodeType, TaskKey("", key, f.Parent.Node))
}

// packed is a definition as it is stored: its JSON values are texts, because references and filters
// have names that not every server stores.
func packed(s *graph.Spec) (*graph.Spec, error) {
	return repacked(s, func(v any) (any, error) {
		stored, err := codec.EncodeTemplate("value", v, math.MaxInt32)
		if err != nil || stored.Type == 0 {
			return nil, err
		}
		return string(codec.ValueJSON(stored)), nil
	})
}

// unpacked is a definition that was stored.
func unpacked(s *graph.Spec) (*graph.Spec, error) {
	return repacked(s, func(v any) (any, error) {
		text, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("a value in the stored definition of a flow is %T", v)
		}
		return json.RawMessage(text), nil
	})
}

// repacked is a copy of a definition with its JSON values changed.
func repacked(s *graph.Spec, change func(any) (any, error)) (out *graph.Spec, err error) {
	c := *s
	do := func(v *any) {
		if err == nil && *v != nil {
			*v, err = change(*v)
		}
	}
	do(&c.Args)
	do(&c.Ext)
	c.Nodes = make([]graph.NodeSpec, len(s.Nodes))
	for i := range s.Nodes {
		n := s.Nodes[i]
		do(&n.Args)
		do(&n.Join.Context)
		if n.Wait != nil {
			w := *n.Wait
			do(&w.Until)
			n.Wait = &w
		}
		if n.Each != nil {
			e := *n.Each
			do(&e.Items)
			n.Each = &e
		}
		if n.When != nil {
			n.When = make(map[string]any, len(s.Nodes[i].When))
			for parent, filter := range s.Nodes[i].When {
				do(&filter)
				n.When[parent] = filter
			}
		}
		if n.Flow != nil && err == nil {
			n.Flow, err = repacked(n.Flow, change)
		}
		c.Nodes[i] = n
	}
	return &c, err
}
