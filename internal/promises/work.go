package promises

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// The types of tasks.
const (
	Work    = "work"    // sent by processes
	Limited = "limited" // the same; at most AtOnce of them run at the same time
	Ticked  = "ticked"  // of the rule
	Node    = "node"    // of flows
	Step    = "step"    // of plans
	Link    = "link"    // of streams
)

// Types are all of them.
var Types = []string{Work, Limited, Ticked, Node, Step, Link}

// What the tasks, the plans and the rule are made with.
const (
	AtOnce    = 2               // tasks of the type Limited that run at the same time
	Lease     = 4 * time.Second // of an execution
	MaxErrors = 3               // of a task
	Steps     = 3               // of a plan
	RuleName  = "rule"

	every = 5 * time.Second // the rule ticks
)

// Options are those of all tasks: short leases, few errors, and as many lapses as there are.
func Options() model.Options {
	errs, lapses := MaxErrors, 1_000_000
	return model.Options{
		WorkerTimeout: Lease, PingInterval: Lease / 4, MaxLapses: &lapses,
		Retry: &model.Retry{Strategy: model.RetryFixed, Interval: time.Second, MaxErrors: &errs},
	}
}

// after are the nodes of a flow, with those that each waits for.
var after = map[string][]string{"a": nil, "b": {"a"}, "c": {"a"}, "d": {"b", "c"}}

// Flow is a flow whose nodes go on when one of them has failed.
func Flow(key string) graph.Spec {
	s := graph.Spec{Key: key}
	for _, id := range []string{"a", "b", "c", "d"} {
		n := graph.NodeSpec{ID: id, Type: Node, After: after[id], OnFailure: graph.Continue, Options: Options()}
		if len(n.After) > 0 {
			n.Join = graph.Join{Strategy: graph.AllEnded}
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

// Links is the scene of all streams.
const Links = "links"

// LinkOf is the node that a sender appends to a stream as its n-th, from 0 on, and the id of its task.
func LinkOf(group, sender string, n int) (node graph.NodeSpec, task string) {
	node = graph.NodeSpec{ID: fmt.Sprintf("%s-%d", strings.ReplaceAll(sender, ".", "_"), n), Type: Link, OnFailure: graph.Continue, Options: Options()}
	_, key := flowspec.StreamID(Links, group)
	return node, model.TaskID("", Link, flowspec.TaskKey(graph.KindStream, key, node.ID))
}

// senderOf is the stream and the sender of a link, and which of its nodes it is.
func senderOf(t *model.Task) (sender string, n int) {
	dash := strings.LastIndexByte(t.Origin.Node, '-')
	n, _ = strconv.Atoi(t.Origin.Node[dash+1:]) // of those that LinkOf names
	return t.Origin.ID + " " + t.Origin.Node[:dash], n
}

// Plan is a plan with a step each second.
func Plan(id string) repeat.Spec {
	return repeat.Spec{PlanID: id, Station: Step, PlanType: repeat.Second, PlanValue: 1, PlanRepet: Steps, NoKeep: true, Messages: []any{1}, Options: Options()}
}

// Rule is a rule that ticks from soon after now, for so long.
func Rule(now time.Time, lasts time.Duration) schedule.Spec {
	from := now.Truncate(every).Add(2 * every)
	return schedule.Spec{
		Name: RuleName, Cron: fmt.Sprintf("*/%d * * * * *", int(every.Seconds())), Type: Ticked, StartAt: from, EndAt: from.Add(lasts), Options: Options(),
	}
}
