package flow

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestASweepLinksNodesForWhichNobodyLooks(t *testing.T) {
	f, err := New(Config{Database: testdb.New(t)})
	require.NoError(t, err)
	var lost []*graph.Node
	for s := range 3 {
		group := fmt.Sprint(s)
		_, err = f.Append(t.Context(), "s", group, graph.NodeSpec{ID: "a", Type: "t"})
		require.NoError(t, err)
		nodes, err := flowspec.Append("s", group, []graph.NodeSpec{{ID: "b", Type: "t"}, {ID: "c", Type: "t"}}, nil, f.store.Clock.Now())
		require.NoError(t, err)
		nodes[0].No, nodes[1].No = 2, 7 // the document knows of one
		lost = append(lost, nodes...)
	}
	require.NoError(t, f.Flush(t.Context()))
	require.NoError(t, f.store.Nodes.Append(t.Context(), lost))
	require.NoError(t, planner{f}.Sweep(t.Context()))
	for s := range 3 {
		doc, err := f.Get(t.Context(), fmt.Sprint("s/", s))
		require.NoError(t, err)
		require.Len(t, doc.Nodes, 3)
	}
}

func TestEndsAreDecidedAlthoughNodesToLinkCannotBeRead(t *testing.T) {
	f, err := New(Config{Database: testdb.New(t)})
	require.NoError(t, err)
	_, err = f.Append(t.Context(), "s", "g", graph.NodeSpec{ID: "a", Type: "t"})
	require.NoError(t, err)
	require.NoError(t, f.Flush(t.Context()))
	doc, err := f.Get(t.Context(), "s/g")
	require.NoError(t, err)
	due, err := f.Get(t.Context(), "s/g")
	require.NoError(t, err)
	end := store.OutboxLife{Task: &model.Task{Status: model.StatusSuccess, Origin: &model.Origin{Kind: lifecycle.OutcomeFlow, ID: "s/g", Node: "a"}}}
	gone, cancel := context.WithCancel(t.Context())
	cancel() // a read of nodes fails
	answers, err := planner{f}.Decide(gone, []decision.Case[*graph.Flow]{{Doc: doc, Ends: []store.OutboxLife{end}}, {Doc: due, Due: true}}, f.store.Clock.Now())
	require.NoError(t, err)
	require.True(t, answers[0].Changed)
	require.Equal(t, graph.NodeSuccess, answers[0].After.States[0].Status)
	require.False(t, answers[1].Changed)
}

// Of streams that are linked together, one is held and another was decided by somebody else in between.
func TestAHeldStreamKeepsNoOtherFromBeingLinkedAgain(t *testing.T) {
	f, err := New(Config{Database: testdb.New(t)})
	require.NoError(t, err)
	ids := []string{"s/crossed", "s/free", "s/held"}
	for _, id := range ids {
		_, err = f.Append(t.Context(), "s", id[2:], graph.NodeSpec{ID: "a", Type: "t"})
		require.NoError(t, err)
		require.NoError(t, f.Flush(t.Context()))
		nodes, err := flowspec.Append("s", id[2:], []graph.NodeSpec{{ID: "b", Type: "t"}}, nil, f.store.Clock.Now())
		require.NoError(t, err)
		nodes[0].No = 2
		require.NoError(t, f.store.Nodes.Append(t.Context(), nodes))
	}
	f.decider.Documents = &refusing{Documents: f.decider.Documents, held: "s/held", crossed: "s/crossed"}
	more, err := f.linkOnce(t.Context(), ids, everything, anyStream)
	require.ErrorIs(t, err, store.ErrHeld)
	require.Equal(t, []string{"s/crossed"}, more)
	doc, err := f.Get(t.Context(), "s/free")
	require.NoError(t, err)
	require.Len(t, doc.Nodes, 2)
}

// refusing writes no decision about two documents.
type refusing struct {
	decision.Documents[*graph.Flow]
	held, crossed string
}

func (r *refusing) Write(ctx context.Context, writes []store.Decision[*graph.Flow]) (applied []bool, refused map[int]error, err error) {
	applied, refused = make([]bool, len(writes)), map[int]error{}
	for i, w := range writes {
		switch w.After.ID {
		case r.held:
			refused[i] = store.ErrHeld
		case r.crossed:
		default:
			some, _, err := r.Documents.Write(ctx, writes[i:i+1])
			if err != nil {
				return nil, nil, err
			}
			applied[i] = some[0]
		}
	}
	return applied, refused, nil
}

func TestExplainCountsTheNodesBeforeOneThatIsNotLinked(t *testing.T) {
	t.Parallel()
	d := newDriven(t)
	var nodes []graph.NodeSpec
	for i := range 300 {
		nodes = append(nodes, graph.NodeSpec{ID: fmt.Sprint("n", i), Type: "t"})
	}
	_, err := d.f.Append(t.Context(), "s", "g", nodes...)
	require.NoError(t, err)
	require.NoError(t, d.f.Flush(t.Context()))
	said, err := d.f.Explain(t.Context(), "s/g", "n250")
	require.NoError(t, err)
	require.Equal(t, []string{"It is appended and not linked to the chain yet. Nodes before it: 250.", "It is linked when at most 100 linked nodes have not ended."}, said)
}

func TestExplainCountsNodesThatAreLinkedMeanwhile(t *testing.T) {
	t.Parallel()
	p := testdb.BehindPatient(t)
	db := testdb.Through(t, p)
	d := drive(t, db, db, clock.System())
	nodes := make([]graph.NodeSpec, 300)
	for i := range nodes {
		nodes[i] = graph.NodeSpec{ID: fmt.Sprint("n", i), Type: "t"}
	}
	session, err := db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(t.Context())
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) { // so an engine links them
		return d.f.Append(ctx, "s", "g", nodes...)
	})
	require.NoError(t, err)
	counts := p.Set(proxy.Rule{Command: "aggregate", Collection: "flow_nodes", Do: proxy.HoldBefore})
	said := make(chan []string, 1)
	go func() {
		text, err := d.f.Explain(t.Context(), "s/g", "n250")
		assert.NoError(t, err)
		said <- text
	}()
	<-counts.Hit()
	require.Eventually(t, func() bool {
		d.e.Round(t.Context())
		doc, err := d.f.Get(t.Context(), "s/g")
		require.NoError(t, err)
		return len(doc.Nodes) > 0
	}, testdb.Patience, time.Millisecond)
	d.e.Flush(t.Context())
	counts.Release()
	require.Contains(t, fmt.Sprint(<-said), "Nodes before it: 250.")
}
