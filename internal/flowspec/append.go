package flowspec

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// Bounds of the name of a stream, in characters (seed 002).
const (
	maxScene = 30
	maxGroup = 100
)

// maxStreamKey is how many bytes of a stream's key fit the keys of its tasks.
const maxStreamKey = input.MaxKeyBytes - maxNodeID - len(graph.KindStream+"::")

// StreamID is the id of a stream, and the key that is part of the keys of its tasks: the id, or its
// hash if the id is too long.
func StreamID(scene, group string) (id, key string) {
	id = scene + "/" + group
	if len(id) <= maxStreamKey {
		return id, id
	}
	sum := sha256.Sum256([]byte(id))
	return id, hex.EncodeToString(sum[:])
}

// CheckStream checks the name of a stream.
func CheckStream(scene, group string) error {
	var errs []error
	for _, part := range []struct {
		field, text string
		most        int
	}{{"scene", scene, maxScene}, {"group", group, maxGroup}} {
		switch n := utf8.RuneCountInString(part.text); {
		case n < 1 || n > part.most:
			errs = append(errs, input.Invalid(part.field, "has %d characters; want 1 to %d", n, part.most))
		case !safetext.IsText(part.text):
			errs = append(errs, input.Invalid(part.field, "must be valid UTF-8 without a NUL byte"))
		}
	}
	if strings.Contains(scene, "/") {
		errs = append(errs, input.Invalid("scene", "is %q; a slash is not allowed", safetext.Clip(scene, maxScene)))
	}
	return errors.Join(errs...)
}

// Append checks nodes for a stream and returns their records, each with its waiting task. newID makes
// the ids of nodes without one. The error joins every mistake, each a [model.InvalidError].
func Append(scene, group string, nodes []graph.NodeSpec, newID func() string, now time.Time) ([]*graph.Node, error) {
	err := errors.Join(CheckStream(scene, group), input.InAddress("scene", scene), input.InAddress("group", group))
	if n := len(nodes); n < 1 || n > MaxNodes {
		return nil, errors.Join(err, input.Invalid("nodes", "are %d; want 1 to %d", n, MaxNodes))
	}
	id, key := StreamID(scene, group)
	b := &builder{spec: &graph.Spec{}, kind: graph.KindStream, key: key, now: now}
	b.add(err)
	places := make(map[string]int, len(nodes))
	records := make([]*graph.Node, len(nodes))
	for i := range nodes {
		records[i] = b.appended(id, i, &nodes[i], places, newID)
	}
	if len(b.errs) > 0 {
		return nil, errors.Join(b.errs...)
	}
	return records, nil
}

// appended checks one node and makes its record.
func (b *builder) appended(id string, i int, n *graph.NodeSpec, places map[string]int, newID func() string) *graph.Node {
	c := &checker{b, i, n}
	node := *n
	if node.ID == "" {
		node.ID = newID()
	} else if !isNodeID(n.ID) || n.ID == nullNode {
		c.bad("id", "is %s; want 1 to %d of a-z A-Z 0-9 _ -", shownID(n.ID), maxNodeID)
	}
	if first, twice := places[node.ID]; twice {
		c.bad("id", "is that of nodes[%d], too", first)
	}
	places[node.ID] = i
	for _, p := range []struct {
		field string
		given bool
	}{
		{"after", len(n.After) > 0}, {"when", len(n.When) > 0},
		{"join", n.Join.Strategy != "" || n.Join.N != 0 || len(n.Join.Nodes) > 0 || n.Join.Custom != "" || n.Join.Context != nil},
	} {
		if p.given {
			c.bad(p.field, "is given; in a stream each node follows the one before it")
		}
	}
	for _, p := range []struct {
		field string
		given bool
	}{{"wait", n.Wait != nil}, {"ask", n.Ask != nil}, {"flow", n.Flow != nil}, {"each", n.Each != nil}} {
		if p.given {
			c.bad(p.field, "is given; in a stream each node is a task")
		}
	}
	c.add(input.UserType("type", n.Type))
	c.plain()
	args, err := codec.EncodeValue("args", n.Args, input.MaxArgsBytes)
	c.add(err)
	node.After = []string{"the one before it"} // so its task waits
	return &graph.Node{
		ID: id + "/" + node.ID, FlowID: id, Node: node.ID, Type: n.Type, TaskID: model.TaskID("", n.Type, TaskKey(b.kind, b.key, node.ID)),
		Status: graph.NodeInit, At: b.now, CreatedAt: b.now, OnFailure: cmp.Or(n.OnFailure, graph.Suspend), Task: b.task(&node, id, args),
	}
}

// plain checks what every node has.
func (c *checker) plain() {
	oneOf(c, "on_failure", c.n.OnFailure, "", graph.Suspend, graph.Continue, graph.End)
	c.add(input.Priority(c.n.Priority))
	c.add(input.Under("options", input.Options(&c.n.Options)))
	c.add(input.Under("options", input.OptionsFor(&c.n.Options, c.n.Type)))
}
