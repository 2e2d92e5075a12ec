package flow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// watched gathers the events of a flow until it is over.
type watched struct {
	events chan string
	err    chan error
}

func watchFlow(ctx context.Context, f *flow.Flows, id string) *watched {
	w := &watched{events: make(chan string, 1000), err: make(chan error, 1)}
	go func() {
		defer close(w.events)
		for e, err := range f.Watch(ctx, id) {
			if err != nil {
				w.err <- err
				return
			}
			w.events <- eventText(e)
		}
		w.err <- nil
	}()
	return w
}

func eventText(e flow.Event) string {
	if e.Node == "" {
		return "flow " + string(e.Flow)
	}
	text := e.Node + " " + string(e.Status)
	if e.Life > 0 {
		text += fmt.Sprint(" life ", e.Life)
	}
	return text
}

// until returns the events up to the wanted one.
func (w *watched) until(t *testing.T, want string) (all []string) {
	t.Helper()
	for {
		select {
		case e, more := <-w.events:
			require.True(t, more, "the watch ended after %v", all)
			if all = append(all, e); e == want {
				return all
			}
		case <-time.After(testdb.Patience): // since the last event
			require.FailNow(t, "no event", "%s; there were %v", want, all)
		}
	}
}

// ofNodes are the events of each node.
func ofNodes(events []string) map[string][]string {
	out := map[string][]string{}
	for _, e := range events {
		var node, status string
		_, _ = fmt.Sscan(e, &node, &status)
		out[node] = append(out[node], status)
	}
	return out
}

func TestAWatchTellsEveryChangeOfANodeUntilTheFlowIsOver(t *testing.T) {
	w := newWorld(t)
	w.gate = make(chan struct{})
	w.breaks("f", "b", true)
	f := w.start(diamond("f"))
	watch := watchFlow(t.Context(), w.flows, f.ID)
	require.Equal(t, []string{"a READY", "flow RUNNING"}, watch.until(t, "flow RUNNING"))
	close(w.gate)
	events := watch.until(t, "flow PENDING")
	w.breaks("f", "b", false)
	_, err := w.flows.RetryFrom(t.Context(), f.ID, "b")
	require.NoError(t, err)
	events = append(events, watch.until(t, "flow FINISH")...)
	require.NoError(t, testdb.Receive(t, watch.err))
	told := ofNodes(events)
	delete(told, "flow") // its reason changes, or not, with the order in which b and c end
	require.Equal(t, map[string][]string{
		"a": {"SUCCESS"}, "b": {"READY", "PENDING", "READY", "SUCCESS"}, "c": {"READY", "SUCCESS"}, "d": {"PENDING", "WAIT", "READY", "SUCCESS"},
	}, told, "%v", events)
}

func TestAWatchOfAFlowThatIsOverTellsHowItEnded(t *testing.T) {
	w := newWorld(t)
	f := w.start(diamond("f"))
	w.becomes(f.ID, graph.StatusFinish)
	watch := watchFlow(t.Context(), w.flows, f.ID)
	require.Equal(t, map[string][]string{"a": {"SUCCESS"}, "b": {"SUCCESS"}, "c": {"SUCCESS"}, "d": {"SUCCESS"}, "flow": {"FINISH"}}, ofNodes(watch.until(t, "flow FINISH")))
	require.NoError(t, testdb.Receive(t, watch.err))
	for _, err := range w.flows.Watch(t.Context(), "-/none") {
		require.ErrorIs(t, err, model.ErrNotFound)
	}
}

func TestAWatchEndsWithItsContextAndWithItsLoop(t *testing.T) {
	w := newWorld(t)
	w.gate = make(chan struct{})
	defer close(w.gate)
	f := w.start(diamond("f"))
	ctx, cancel := context.WithCancelCause(t.Context())
	watch := watchFlow(ctx, w.flows, f.ID)
	watch.until(t, "flow RUNNING")
	enough := errors.New("enough")
	cancel(enough)
	require.ErrorIs(t, testdb.Receive(t, watch.err), enough)
	for range w.flows.Watch(t.Context(), f.ID) {
		break
	}
	n, err := w.db.Collection("seats").CountDocuments(t.Context(), bson.D{{Key: "holder", Value: bson.Regex{Pattern: "^flow/"}}, {Key: "expires_at", Value: bson.D{{Key: "$gt", Value: time.Now()}}}})
	require.NoError(t, err)
	require.Zero(t, n, "the seats are free again")
}

// Connections break again and again while the flow goes on: no change is lost, and none comes twice.
func TestAWatchWhoseConnectionsBreakMissesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	chain := graph.Spec{Key: "f"}
	for i := range 40 {
		n := node(fmt.Sprint("n", i))
		if i > 0 {
			n.After = []string{fmt.Sprint("n", i-1)}
		}
		chain.Nodes = append(chain.Nodes, n)
	}
	between := testdb.Behind(t)
	client, err := mongo.Connect(options.Client().ApplyURI(between.URI()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	far, err := flow.New(flow.Config{Database: client.Database(w.db.Name())})
	require.NoError(t, err)
	w.gate = make(chan struct{})
	f := w.start(chain)
	watch := watchFlow(t.Context(), far, f.ID)
	watch.until(t, "flow RUNNING")
	for i := range 40 {
		w.gate <- struct{}{}
		if i%4 == 0 {
			between.Drop()
		}
	}
	events := ofNodes(watch.until(t, "flow FINISH"))
	require.NoError(t, testdb.Receive(t, watch.err))
	require.Equal(t, []string{"SUCCESS"}, events["n0"])
	for i := 1; i < 40; i++ {
		require.Equal(t, []string{"READY", "SUCCESS"}, events[fmt.Sprint("n", i)], "n%d", i)
	}
}

// Other watchers hold all seats: the flow is read now and then.
func TestAWatchWithoutASeatTellsHowTheFlowEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.gate = make(chan struct{})
	f := w.start(diamond("f"))
	first, second, third := watchFlow(t.Context(), w.flows, f.ID), watchFlow(t.Context(), w.flows, f.ID), watchFlow(t.Context(), w.flows, f.ID)
	for _, watch := range []*watched{first, second, third} {
		watch.until(t, "flow RUNNING")
	}
	close(w.gate)
	for _, watch := range []*watched{first, second, third} {
		events := ofNodes(watch.until(t, "flow FINISH"))
		require.Equal(t, "SUCCESS", events["d"][len(events["d"])-1])
		require.NoError(t, testdb.Receive(t, watch.err))
	}
}

func TestAWatchOfAStreamTellsOfEachNodeUntilItIsClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.flows.Append(t.Context(), "orders", "g", node("n0"))
	require.NoError(t, err)
	watch := watchFlow(t.Context(), w.flows, "orders/g")
	watch.until(t, "flow RUNNING")
	const n = 250
	for i := 1; i < n; i += 10 {
		var nodes []graph.NodeSpec
		for k := i; k < min(i+10, n); k++ {
			nodes = append(nodes, node(fmt.Sprint("n", k)))
		}
		_, err := w.flows.Append(t.Context(), "orders", "g", nodes...)
		require.NoError(t, err)
	}
	events := watch.until(t, fmt.Sprintf("n%d SUCCESS", n-1))
	_, err = w.flows.Cancel(t.Context(), "orders/g", "enough")
	require.NoError(t, err)
	watch.until(t, "flow FINISH")
	require.NoError(t, testdb.Receive(t, watch.err))
	told := ofNodes(events)
	for i := 1; i < n; i++ {
		became := told[fmt.Sprint("n", i)]
		require.Contains(t, [][]string{{"WAIT", "READY", "SUCCESS"}, {"READY", "SUCCESS"}}, became, "n%d: %v", i, became)
	}
}

// The stream is read once a second, and more nodes run in that time than it shows at once.
func TestAWatchWithoutASeatTellsHowEachNodeOfAStreamEnded(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
	w := newWorld(t)
	for range 2 { // they hold the seats
		w.appends("orders", "idle", node("n0"))
		watchFlow(t.Context(), w.flows, "orders/idle").until(t, "flow RUNNING")
	}
	w.appends("orders", "g", node("n0"))
	watch := watchFlow(t.Context(), w.flows, "orders/g")
	all := watch.until(t, "flow RUNNING")
	const n = 800
	for i := 1; i < n; i += 100 {
		var nodes []graph.NodeSpec
		for k := i; k < min(i+100, n); k++ {
			nodes = append(nodes, node(fmt.Sprint("n", k)))
		}
		w.appends("orders", "g", nodes...)
	}
	all = append(all, watch.until(t, fmt.Sprintf("n%d SUCCESS", n-1))...)
	told := ofNodes(all)
	var ended []string
	for _, e := range all {
		if id, is := strings.CutSuffix(e, " SUCCESS"); is {
			ended = append(ended, id)
		}
	}
	require.Len(t, ended, n, "each node, once")
	for i := range n {
		id := fmt.Sprint("n", i)
		require.Equal(t, id, ended[i], "in the order of the chain")
		require.Equal(t, "SUCCESS", told[id][len(told[id])-1])
	}
}

func TestALoopThatIsLeftWhenItsContextEndsIsNotCalledAgain(t *testing.T) {
	w := newWorld(t)
	f := w.start(diamond("f"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := 0
	for range w.flows.Watch(ctx, f.ID) {
		calls++
		cancel()
		break
	}
	require.Equal(t, 1, calls)
}
