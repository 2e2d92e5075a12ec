package flow

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// A look decodes only some of them, and the next one goes on.
func TestManyLargeFlowsThatAreDueAtOnceAreAllDecidedAbout(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	var all []*graph.Flow
	for i := range 30 {
		spec := graph.Spec{Key: fmt.Sprint("f", i), Nodes: []graph.NodeSpec{{ID: "n0", Wait: &graph.Wait{For: time.Millisecond}}}}
		for n := range 4 {
			spec.Nodes = append(spec.Nodes, graph.NodeSpec{ID: fmt.Sprint("n", n+1), Type: "t", After: []string{fmt.Sprint("n", n)}, Args: strings.Repeat("x", 250_000)})
		}
		doc, err := d.f.Start(t.Context(), spec)
		require.NoError(t, err)
		all = append(all, doc)
	}
	require.Eventually(t, func() bool {
		d.e.Round(t.Context())
		for _, doc := range all {
			if d.get(doc).States[1].Status != graph.NodeReady {
				return false
			}
		}
		return true
	}, testdb.Patience, time.Millisecond)
}

// large is an output that is about as large as it may be.
func large(n int) map[string]any {
	return map[string]any{"n": n, "rest": make([]byte, input.MaxResultBytes-1000)}
}

// needing are flows whose second node needs a part of the large output of the first, which has ended.
func (d *driven) needing(n int) (docs []*graph.Flow) {
	d.t.Helper()
	for i := range n {
		doc, err := d.f.Start(d.t.Context(), graph.Spec{Key: fmt.Sprint("f", i), Nodes: []graph.NodeSpec{
			{ID: "a", Type: "t"}, {ID: "b", Type: "t", After: []string{"a"}, Args: map[string]any{"n": Output("a.n")}},
		}})
		require.NoError(d.t, err)
		d.succeeds(taskID(doc, 0), large(i))
		docs = append(docs, d.get(doc))
	}
	return docs
}

const manyLarge = 24 // more of them than are read at a time

func TestOnlySoManyLargeOutputsAreHeldForDecisionsAboutSeveralFlows(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	var all []*making
	for _, doc := range d.needing(manyLarge) {
		all = append(all, &making{flow: doc})
	}
	most, portions := 0, 0
	for left := all; len(left) > 0; portions++ {
		n, err := d.f.provide(t.Context(), left, func(m *making) {
			held := 0
			for _, m := range all {
				if m.known != nil {
					for _, out := range m.known.outputs {
						held += len(out.Value)
					}
				}
			}
			most = max(most, held)
			if _, known, _ := m.output(0); !known {
				m.missing = []int{0}
			}
		})
		require.NoError(t, err)
		for _, m := range left[:n] {
			_, known, _ := m.output(0)
			require.True(t, known)
			m.known = nil
		}
		left = left[n:]
	}
	require.Greater(t, portions, 1)
	const page = 8 << 20
	require.Less(t, most, maxOutputs+page+2*input.MaxResultBytes)
}

// ended decides about flows whose first nodes have succeeded.
func (d *driven) ended(docs []*graph.Flow) []decision.Answer[*graph.Flow] {
	d.t.Helper()
	var cases []decision.Case[*graph.Flow]
	for _, doc := range docs {
		end := store.OutboxLife{Task: &model.Task{Status: model.StatusSuccess, Origin: &model.Origin{Kind: lifecycle.OutcomeFlow, ID: doc.ID, Node: "a"}}}
		cases = append(cases, decision.Case[*graph.Flow]{Doc: doc, Ends: []store.OutboxLife{end}})
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), perCall)
	defer cancel()
	answers, err := planner{d.f}.Decide(ctx, cases, d.f.store.Clock.Now())
	require.NoError(d.t, err)
	return answers
}

func TestDecisionsThatReadManyLargeOutputsAreAllMadeAndCarriedOut(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	docs := d.needing(manyLarge)
	var decided []*graph.Flow
	for _, a := range d.ended(docs) {
		require.True(t, a.Changed)
		require.NoError(t, a.Err)
		require.Equal(t, graph.NodeReady, a.After.States[1].Status)
		for k := range a.After.Planned {
			require.False(t, filled(&a.After.Planned[k]), "who carries many out reads them again")
		}
		decided = append(decided, a.After)
	}
	require.Empty(t, d.finish(decided...))
	for i, doc := range docs {
		task := d.task(doc, 1)
		require.Equal(t, model.StatusNew, task.Status)
		require.EqualValues(t, i, task.Args.Document().Lookup("n").AsInt64())
	}
}

// A call is over before all is read. What it has decided and carried out counts.
func TestOnASlowDatabaseEachCallDecidesAboutSomeOfManyFlowsWithLargeOutputs(t *testing.T) {
	slow(t, 2*time.Second, func(t *testing.T, d *driven, slow func()) {
		docs := d.needing(2 * manyLarge)
		slow()
		var decided []*graph.Flow
		for tries := 1; len(docs) > 0; tries++ {
			require.Less(t, tries, 10)
			var left []*graph.Flow
			for i, a := range d.ended(docs) {
				require.NoError(t, a.Err)
				if a.Changed {
					decided = append(decided, a.After)
				} else {
					require.Zero(t, a.Told)
					left = append(left, docs[i])
				}
			}
			require.Less(t, len(left), len(docs))
			docs = left
		}
		for tries := 1; len(decided) > 0; tries++ {
			require.Less(t, tries, 10)
			held := d.inOneCall(decided...)
			require.Less(t, len(held), len(decided))
			decided = slices.DeleteFunc(decided, func(f *graph.Flow) bool { return held[f.ID] == nil })
		}
	})
}

func TestNoMoreOutputsAreReadOnceArgumentsAreTooLarge(t *testing.T) {
	t.Parallel()
	c := newCounted(t)
	args := map[string]any{}
	spec := fan(manyLarge, func(v *graph.NodeSpec) { args[v.ID] = Output(v.ID) })
	spec.Nodes[manyLarge+1].Args = args
	doc, err := c.f.Start(t.Context(), spec)
	require.NoError(t, err)
	var ends []flowplan.End
	for i := range manyLarge {
		c.succeeds(taskID(doc, i+1), large(i))
		ends = append(ends, flowplan.End{Node: i + 1, Status: model.StatusSuccess})
	}
	doc = c.decided(doc, flowplan.End{Status: model.StatusSuccess})
	before := c.read()
	m := &making{flow: doc, decide: func(in *flowplan.Inputs, now time.Time) (*graph.Flow, error) {
		return flowplan.Ended(doc, ends, in, now)
	}}
	n, err := c.f.make(t.Context(), []*making{m}, c.f.store.Clock.Now())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, m.err)
	last := m.after.States[manyLarge+1]
	require.Equal(t, graph.NodePending, last.Status)
	require.Contains(t, last.Reason, "when its references are filled in")
	require.Less(t, c.read()-before, manyLarge/2*input.MaxResultBytes)
}
