package flowplan

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/scenario"
	"github.com/mscheduler/mscheduler/model"
)

// setLines are the lines of seed 002 that contain a rule for a Set, or for both kinds of flows.
// Headings, and lines that concern streams alone, are left out.
var setLines = []int{
	4, 9, 12, 13, 14, 15, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 35, 37, 38, 39, 43, 44, 45, 50, 58,
	98, 99, 100, 101, 102, 103, 107, 108, 109, 112, 113, 114, 115, 116, 117, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127,
	131, 132, 133,
}

// streamLines are those that contain a rule for streams.
var streamLines = []int{
	4, 9, 11, 13, 14, 22, 23, 24, 43, 44, 45, 46, 51, 55, 63, 64, 65, 66, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 80,
	84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 131, 132, 133,
}

// TestSeed runs testdata/*.txt: the rules of seed 002, sentence by sentence. Each subtest is one
// rule, with the line of the seed that states it. The flow and its tasks follow the real rules;
// under ---- stands the flow, and for each node its status, that of its task, and the reason.
// `go test ./internal/flowplan -run Seed -rewrite` writes the outputs anew: read the diff.
//
//	flow lines=(26,27)    a flow begins; the lines below are its nodes, see specOf
//	start a               a worker claims the task of the node
//	succeed a b [output=JSON], fail a b    the tasks end, for good, and the flow learns of all ends together
//	error a               an execution ends with an error; the task may have retries left
//	task-resolve a, task-retry a, task-cancel a    a person decides about the task, and the flow learns of its end
//	again a               the flow learns of the end of the task once more
//	resolve a SUCCESS|ERROR, cancel, explain a
//	saved a               what the custom join of the node has saved
//	stream lines=(76)     a stream begins; append lines below are its nodes, stored and not linked
//	link, open, chain     a linker looks; the stream is opened again; the relations of the chain
//	counts                the nodes by their statuses
//	elsewhere lines=(132) test=flow.TestX    a test that needs a database or processes shows the rule
func TestSeed(t *testing.T) {
	shown := map[int]bool{}
	scenario.Files(t, func() func(scenario.Command) string {
		var s *seeded
		return func(c scenario.Command) string {
			for _, line := range c.Values("lines") {
				n, err := strconv.Atoi(line)
				require.NoError(c.T, err, c.Pos())
				shown[n] = true
			}
			switch c.Name() {
			case "elsewhere":
				return c.FindTest()
			case "flow", "stream":
				require.NotEmpty(c.T, c.Values("lines"), "%s: name the lines of the seed", c.Pos())
				s = &seeded{now: time.UnixMilli(1_000_000), tasks: map[string]*model.Task{}}
				if c.Name() == "stream" {
					return s.beginStream(c)
				}
				return s.begin(c)
			}
			return s.run(c)
		}
	})
	for _, line := range slices.Concat(setLines, streamLines) {
		require.True(t, shown[line], "line %d of seed 002 has no scenario", line)
	}
}

// seeded is a flow and the tasks of its nodes.
type seeded struct {
	flow  *graph.Flow
	tasks map[string]*model.Task // by node
	now   time.Time
	execs int

	inits    []*graph.Node // of a stream: appended, and not linked
	appended int
}

func (s *seeded) begin(c scenario.Command) string {
	spec := specOf(c)
	f, err := flowspec.Build(&spec, "f", s.now)
	if err != nil {
		return err.Error()
	}
	s.flow = f
	for _, p := range f.Planned {
		s.tasks[f.Nodes[p.Node].ID] = p.Task
	}
	s.flow.Planned = nil
	return s.show(nil)
}

// specOf reads the nodes of a flow, each on a line:
//
//	ID [after=a,b] [join=all_ended|at_least:2|these:a,b|custom:NAME] [context=JSON] [fail=continue|end|suspend] [manual]
//	   [type=T] [args=JSON] [errors=N] [when.PARENT=JSON]
func specOf(c scenario.Command) (spec graph.Spec) {
	for line := range strings.Lines(c.Input()) {
		words := strings.Fields(line)
		n := graph.NodeSpec{ID: words[0], Type: "t"}
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			switch key {
			case "after":
				n.After = strings.Split(value, ",")
			case "join":
				strategy, of, _ := strings.Cut(value, ":")
				n.Join.Strategy = graph.Strategy(strategy)
				switch n.Join.Strategy {
				case graph.AtLeast:
					n.Join.N, _ = strconv.Atoi(of)
				case graph.These:
					n.Join.Nodes = strings.Split(of, ",")
				case graph.Custom:
					n.Join.Custom = of
				}
			case "context":
				n.Join.Context = json.RawMessage(value)
			case "args":
				n.Args = json.RawMessage(value)
			case "fail":
				n.OnFailure = graph.Policy(value)
			case "manual":
				manual := true
				n.Options.NeedManual = &manual
			case "type":
				n.Type = value
			case "errors":
				most, err := strconv.Atoi(value)
				require.NoError(c.T, err, c.Pos())
				n.Options.Retry = &model.Retry{MaxErrors: &most, Strategy: model.RetryFixed, Interval: time.Millisecond}
			default:
				parent, isWhen := strings.CutPrefix(key, "when.")
				require.True(c.T, isWhen, "%s: no word %s", c.Pos(), key)
				if n.When == nil {
					n.When = map[string]any{}
				}
				n.When[parent] = json.RawMessage(value)
			}
		}
		spec.Nodes = append(spec.Nodes, n)
	}
	return spec
}

func jsonOf(c scenario.Command, text string) bson.RawValue {
	v, err := codec.EncodeTemplate("json", json.RawMessage(text), 1<<20)
	require.NoError(c.T, err, c.Pos())
	return v
}

func (s *seeded) run(c scenario.Command) string {
	switch c.Name() {
	case "explain":
		return strings.Join(Explain(s.flow, s.place(c, c.Word(0))), "\n")
	case "append":
		return s.append(c)
	case "chain":
		return s.chain()
	case "counts":
		return s.counts()
	case "saved":
		if saved := s.flow.States[s.place(c, c.Word(0))].Context; saved.Type != 0 {
			return string(codec.ValueJSON(saved))
		}
		return "nothing"
	}
	before, err := bson.Marshal(s.flow)
	require.NoError(c.T, err)
	input := s.flow
	after, err := s.decide(c)
	same, marshalErr := bson.Marshal(input)
	require.NoError(c.T, marshalErr)
	require.Equal(c.T, before, same, "%s: the decision changed its input", c.Pos())
	if err != nil {
		return err.Error()
	}
	planned := after.Planned
	if after == input && c.Name() != "start" && c.Name() != "task-retry" {
		return "unchanged"
	}
	s.flow = after
	for i := range planned {
		s.carryOut(c, &planned[i])
	}
	s.flow.Planned = nil
	return s.show(planned)
}

func (s *seeded) decide(c scenario.Command) (*graph.Flow, error) {
	s.now = s.now.Add(time.Second)
	switch c.Name() {
	case "start":
		s.claim(c, s.place(c, c.Word(0)))
		return s.flow, nil
	case "succeed", "fail", "error":
		return s.end(c)
	case "task-resolve", "task-retry", "task-cancel":
		return s.decideTask(c)
	case "again":
		i := s.place(c, c.Word(0))
		return Ended(s.flow, []End{endOf(i, s.tasks[c.Word(0)])}, s.inputs(), s.now)
	case "resolve":
		return Resolve(s.flow, s.place(c, c.Word(0)), graph.NodeStatus(c.Word(1)), "by hand", s.inputs(), s.now)
	case "link":
		some := s.inits[:min(len(s.inits), PerLink)]
		return Link(s.flow, some, len(some) < len(s.inits), s.now), nil
	case "open":
		return Open(s.flow, s.now)
	case "cancel":
		return Cancel(s.flow, "", s.inputs(), s.now)
	}
	c.Unknown("command " + c.Name())
	return nil, nil
}

func (s *seeded) place(c scenario.Command, id string) int {
	i := slices.IndexFunc(s.flow.Nodes, func(v graph.Vertex) bool { return v.ID == id })
	require.GreaterOrEqual(c.T, i, 0, "%s: no node %s", c.Pos(), id)
	return i
}

// claim makes a worker the execution of a task, which must be one that may run.
func (s *seeded) claim(c scenario.Command, i int) {
	s.execs++
	id := s.flow.Nodes[i].ID
	t, refused := lifecycle.Claim(s.tasks[id], lifecycle.Claimant{WorkerID: "w", ExecID: fmt.Sprint("w.", s.execs)}, lifecycle.EffectiveOf(s.tasks[id], model.Options{}), s.now)
	require.Empty(c.T, refused, "%s: no worker may run the task of %s", c.Pos(), id)
	s.tasks[id] = t
}

// end ends executions. The ends of tasks that have ended by that are told to the flow together.
func (s *seeded) end(c scenario.Command) (*graph.Flow, error) {
	out := map[string]lifecycle.Outcome{
		"fail": lifecycle.Failed(failkind.Fatal, "no"), "error": lifecycle.Failed(failkind.Error, "no"),
	}[c.Name()]
	if c.Has("output") {
		out.Result = jsonOf(c, c.Value("output"))
	}
	var ends []End
	for _, id := range c.Words() {
		i := s.place(c, id)
		if lifecycle.OpenExecutions(s.tasks[id]) == 0 {
			s.claim(c, i)
		}
		t := s.tasks[id]
		exec := t.WorkerStates[len(t.WorkerStates)-1].ExecID
		t, err := lifecycle.Finish(t, exec, out, lifecycle.EffectiveOf(t, model.Options{}), s.now, 0)
		require.NoError(c.T, err, c.Pos())
		s.tasks[id] = t
		if slices.ContainsFunc(t.Outbox, func(e model.OutboxEntry) bool { return e.Kind == lifecycle.OutcomeFlow }) {
			ends = append(ends, endOf(i, t))
		}
	}
	return Ended(s.flow, ends, s.inputs(), s.now)
}

// decideTask is what a person does with the task of a node.
func (s *seeded) decideTask(c scenario.Command) (*graph.Flow, error) {
	id := c.Word(0)
	do := map[string]func(*model.Task, string, lifecycle.Effective, time.Time) (*model.Task, error){
		"task-resolve": lifecycle.Resolve, "task-retry": lifecycle.RetryNow, "task-cancel": lifecycle.Cancel,
	}[c.Name()]
	t, err := do(s.tasks[id], "by hand", lifecycle.EffectiveOf(s.tasks[id], model.Options{}), s.now)
	require.NoError(c.T, err, c.Pos())
	if s.tasks[id] = t; !t.Status.Ended() {
		return s.flow, nil
	}
	return Ended(s.flow, []End{endOf(s.place(c, id), t)}, s.inputs(), s.now)
}

func endOf(i int, t *model.Task) End {
	return End{Node: i, Life: t.Origin.Generation, Status: t.Status, ErrorInfo: t.ErrorInfo}
}

// carryOut does what the engine does with the task of a node.
func (s *seeded) carryOut(c scenario.Command, p *graph.Planned) {
	if p.Do == DoLink {
		for _, n := range p.Links {
			s.tasks[n.Node] = n.Task
			s.inits = slices.DeleteFunc(s.inits, func(o *graph.Node) bool { return o == n })
		}
		return
	}
	id := s.flow.Nodes[Place(s.flow, p)].ID
	t := s.tasks[id]
	eff := lifecycle.EffectiveOf(t, model.Options{})
	switch p.Do {
	case DoRelease:
		released, err := lifecycle.Release(t, eff, s.now)
		require.NoError(c.T, err, c.Pos())
		t = released
	case DoAbort:
		t = Aborted(s.flow, p, t, eff, s.now)
	}
	s.tasks[id] = t
}

func (s *seeded) inputs() *Inputs {
	in := &Inputs{Outputs: map[Life]bson.RawValue{}, Joins: map[string]JoinFunc{"majority": majority}}
	for i := range s.flow.Nodes {
		in.Outputs[LifeOf(s.flow, i)] = s.tasks[s.flow.Nodes[i].ID].Result
	}
	return in
}

// majority is a custom join: as many parents must succeed as its context wants. It saves what it
// has seen.
func majority(parents []Parent, saved bson.RawValue) (graph.NodeStatus, bson.RawValue, error) {
	var state struct {
		Want int      `bson:"want"`
		Seen []string `bson:"seen"`
	}
	if err := saved.Unmarshal(&state); err != nil {
		return "", bson.RawValue{}, err
	}
	state.Seen = nil
	yes, open := 0, 0
	for _, p := range parents {
		state.Seen = append(state.Seen, fmt.Sprintf("%s %s", p.Node, p.Status))
		switch p.Status {
		case graph.NodeSuccess:
			yes++
		case graph.NodeError:
		default:
			open++
		}
	}
	kind, raw, err := bson.MarshalValue(state)
	verdict := graph.NodeWait
	switch {
	case yes >= state.Want:
		verdict = graph.NodeReady
	case yes+open < state.Want:
		verdict = graph.NodePending
	}
	return verdict, bson.RawValue{Type: kind, Value: raw}, err
}

func (s *seeded) show(planned []graph.Planned) string {
	const many = 20
	if len(s.flow.Nodes)+len(s.inits) > many {
		return s.counts()
	}
	var b strings.Builder
	b.WriteString(begunAs(s.flow) + " " + string(s.flow.Status) + "\n")
	for i, v := range s.flow.Nodes {
		st := s.flow.States[i]
		line := fmt.Sprintf("%-5s %-8s task %-10s %s", v.ID, StatusNow(st.Status, s.tasks[v.ID]), s.tasks[v.ID].Status, st.Reason)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	for _, n := range s.inits {
		fmt.Fprintf(&b, "%-5s %-8s no task\n", n.Node, n.Status)
	}
	for _, p := range planned {
		if p.Do == DoAlert {
			b.WriteString("alert " + s.flow.Nodes[Place(s.flow, &p)].ID + "\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}
