package flowplan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/model"
)

var day = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func stream() *graph.Flow {
	return &graph.Flow{ID: "s/g", Kind: graph.KindStream, Status: graph.StatusRunning, Rev: 1, DueAt: day, LookUntil: day.Add(AppendPatience)}
}

// ids are those of the nodes in the window.
func ids(f *graph.Flow) (out []string) {
	for i := range f.Nodes {
		out = append(out, f.Nodes[i].ID)
	}
	return out
}

// inits are n nodes that are to be linked, numbered from the given one on.
func inits(from, n int) (nodes []*graph.Node) {
	for i := from; i < from+n; i++ {
		nodes = append(nodes, &graph.Node{ID: fmt.Sprintf("s/g/%d", i), Node: fmt.Sprint(i), Type: "t", No: int64(i), OnFailure: graph.Suspend})
	}
	return nodes
}

// over ends the node of a stream that is READY, and takes its plans away, as if they were carried
// out.
func over(t *testing.T, f *graph.Flow, status model.Status) *graph.Flow {
	t.Helper()
	i := slices.IndexFunc(f.States, func(st graph.State) bool { return st.Status == graph.NodeReady })
	require.GreaterOrEqual(t, i, 0, "a node of the stream runs")
	c := *f
	c.Planned = nil
	after, err := Ended(&c, []End{{Node: i, Status: status}}, nil, day)
	require.NoError(t, err)
	return after
}

func became(f *graph.Flow) (out []graph.NodeStatus) {
	for i := range f.States {
		out = append(out, f.States[i].Status)
	}
	return out
}

func TestTheFirstLinkStartsTheChain(t *testing.T) {
	f := Link(stream(), inits(1, 3), false, day)
	require.Equal(t, []graph.NodeStatus{graph.NodeReady, graph.NodeWait, graph.NodeWait}, became(f))
	require.Equal(t, []string{"", "1", "2"}, []string{f.Nodes[0].Prev, f.Nodes[1].Prev, f.Nodes[2].Prev})
	require.Equal(t, int64(2), f.Rev)
	require.Len(t, f.Planned, 2, "one plan links all of them, one releases the first")
	require.Equal(t, DoLink, f.Planned[0].Do)
	require.Equal(t, 3, f.Planned[0].N)
	require.Equal(t, DoRelease, f.Planned[1].Do)
}

// Linking and the end of the tail meet on one document: whichever is second starts the next node.
func TestWhicheverOfLinkAndEndIsSecondStartsTheNextNode(t *testing.T) {
	first := Link(stream(), inits(1, 1), false, day)
	linked := over(t, Link(first, inits(2, 1), false, day), model.StatusSuccess)
	ended := Link(over(t, first, model.StatusSuccess), inits(2, 1), false, day)
	for _, f := range []*graph.Flow{linked, ended} {
		i := len(f.Nodes) - 1
		require.Equal(t, "2", f.Nodes[i].ID)
		require.Equal(t, graph.NodeReady, f.States[i].Status)
		require.True(t, slices.ContainsFunc(f.Planned, func(p graph.Planned) bool { return p.Do == DoRelease && Place(f, &p) == i }))
	}
}

// When the record of a node is deleted, its key is free; the window may still show the node.
func TestAKeyComesAgainWhenItsNodeIsOver(t *testing.T) {
	f := over(t, over(t, Link(stream(), inits(1, 2), false, day), model.StatusSuccess), model.StatusSuccess)
	require.NotEmpty(t, f.Planned)
	require.Equal(t, []string{"1", "2"}, ids(Link(f, inits(2, 1), false, day)), "its end is not carried out yet")
	f.Planned = nil
	for _, first := range []int{1, 2} {
		again := Link(f, inits(first, 2), false, day)
		require.Equal(t, graph.NodeReady, again.States[len(again.States)-2].Status)
		want := []string{fmt.Sprint(first), fmt.Sprint(first + 1)}
		require.Equal(t, want, ids(again)[len(again.Nodes)-2:])
		require.Equal(t, 2, again.Trimmed)
		require.Equal(t, "2", again.Nodes[0].Prev)
	}
}

func TestNodesThatAreLinkedAreNotLinkedAgain(t *testing.T) {
	f := Link(stream(), inits(1, 3), false, day)
	f.DueAt = time.Time{}
	require.Same(t, f, Link(f, inits(1, 3), false, day), "their link is not carried out yet")
	f = Link(f, inits(2, 3), false, day)
	require.Len(t, f.Nodes, 4)
}

// Records stay INIT until their link is carried out, so nobody sees those behind them. Engines would decide without a
// pause until then.
func TestAStreamWhoseLinkIsNotCarriedOutIsLookedAtAfterAPause(t *testing.T) {
	f := Link(stream(), inits(1, PerLink), true, day)
	require.Equal(t, day, f.DueAt, "there is room for more")
	f = Link(f, inits(1, PerLink), true, day)
	require.Equal(t, day.Add(linkAgain), f.DueAt)
	f = Link(f, inits(1, PerLink), true, f.DueAt)
	require.Equal(t, day.Add(2*linkAgain), f.DueAt)
	f.Planned = nil
	require.Equal(t, day, over(t, f, model.StatusSuccess).DueAt, "an end makes room")
	f = Link(f, inits(PerLink+1, 1), false, f.DueAt)
	require.Len(t, f.Nodes, PerLink+1)
}

func TestTheWindowOfALongChainStaysSmall(t *testing.T) {
	f := stream()
	for done, linked := 0, 0; done < 2000; done++ {
		if f.Planned = nil; !f.DueAt.IsZero() || linked == done {
			nodes := inits(linked+1, PerLink)
			f = Link(f, nodes, true, day)
			linked = f.Trimmed + len(f.Nodes)
			f.Planned = nil
		}
		require.LessOrEqual(t, len(f.Nodes), 2*PerLink+2)
		require.Equal(t, fmt.Sprint(done+1), f.Nodes[done-f.Trimmed].ID, "the nodes run in the order of their numbers")
		f = over(t, f, model.StatusSuccess)
	}
	require.Greater(t, f.Trimmed, 1800)
}

func TestWhatSomethingIsPlannedAboutStaysInTheWindow(t *testing.T) {
	f := Link(stream(), inits(1, 3), false, day)
	plans := f.Planned
	f = over(t, f, model.StatusSuccess)
	f.Planned = append(plans, f.Planned...) // the link is not carried out yet
	require.Zero(t, Link(f, inits(4, 1), false, day).Trimmed)
	f.Planned = f.Planned[2:] // of the first node, that it ended
	require.Zero(t, Link(f, inits(4, 1), false, day).Trimmed)
	f.Planned = nil
	f = Link(f, inits(4, 1), false, day)
	require.Equal(t, 1, f.Trimmed)
	require.Equal(t, 3, f.Planned[0].Node, "a plan names the place in the chain")
	require.Equal(t, 2, Place(f, &f.Planned[0]))
}

func TestAStreamIsDueWhileAnAppendMayBringNodesToLight(t *testing.T) {
	f := Link(stream(), nil, false, day.Add(time.Second))
	require.Equal(t, day.Add(time.Second+linkAgain), f.DueAt)
	f = Link(f, nil, false, day.Add(AppendPatience+time.Second))
	require.Zero(t, f.DueAt)
	require.Same(t, f, Link(f, nil, false, day.Add(time.Minute)))
}

func TestABacklogIsLinkedWhenThereIsRoom(t *testing.T) {
	f := stream()
	f.LookUntil = time.Time{}
	f = Link(f, inits(1, PerLink), true, day)
	require.Equal(t, day, f.DueAt, "there is room for more")
	f = Link(f, inits(PerLink+1, PerLink), true, day)
	require.True(t, f.Backlog)
	require.Zero(t, f.DueAt)
	require.Same(t, f, Link(f, inits(2*PerLink+1, PerLink), true, day))
	for range PerLink - 1 {
		f = over(t, f, model.StatusSuccess)
		require.Zero(t, f.DueAt)
	}
	require.Equal(t, day, over(t, f, model.StatusSuccess).DueAt)
}

func TestPoliciesOfAStream(t *testing.T) {
	linked := func(policy graph.Policy) *graph.Flow {
		nodes := inits(1, 2)
		nodes[0].OnFailure = policy
		return Link(stream(), nodes, false, day)
	}
	f := over(t, linked(graph.Continue), model.StatusFailure)
	require.Equal(t, []graph.NodeStatus{graph.NodeError, graph.NodeReady}, became(f))

	f = over(t, linked(graph.Suspend), model.StatusFailure)
	require.Equal(t, []graph.NodeStatus{graph.NodePending, graph.NodeWait}, became(f))
	require.Equal(t, graph.StatusPending, f.Status)
	_, err := RetryFrom(f, 1, nil, day)
	require.ErrorContains(t, err, "it has not run yet")
	again, err := RetryFrom(f, 0, nil, day)
	require.NoError(t, err)
	require.Equal(t, []graph.NodeStatus{graph.NodeReady, graph.NodeWait}, became(again))
	f, err = Resolve(f, 0, graph.NodeError, "", nil, day)
	require.NoError(t, err)
	require.Equal(t, []graph.NodeStatus{graph.NodeError, graph.NodeReady}, became(f))
	require.Equal(t, graph.StatusRunning, f.Status)
	_, err = RetryFrom(f, 0, nil, day)
	require.ErrorContains(t, err, "it is ERROR; in a stream only PENDING can be retried")

	f = over(t, linked(graph.End), model.StatusFailure)
	require.Equal(t, []graph.NodeStatus{graph.NodeError, graph.NodeWait}, became(f))
	require.Equal(t, graph.StatusFinish, f.Status)
	require.True(t, f.Closed)
	require.Zero(t, f.DeleteAt, "what waits goes on some day")
	require.Equal(t, []string{"The stream is closed: node 1 failed and ends the stream.", "Open the stream to let it go on."}, Explain(f, 1))
	f, err = Open(f, day)
	require.NoError(t, err)
	require.Equal(t, []graph.NodeStatus{graph.NodeError, graph.NodeReady}, became(f))
}

func TestACancelledStreamKeepsWhatWaits(t *testing.T) {
	f, err := Cancel(Link(stream(), inits(1, 2), false, day), "no more", nil, day)
	require.NoError(t, err)
	require.Equal(t, graph.StatusRunning, f.Status, "its node is being cancelled")
	require.Equal(t, DoAbort, f.Planned[len(f.Planned)-1].Do)
	f = over(t, f, model.StatusCancelled)
	require.Equal(t, []graph.NodeStatus{graph.NodeError, graph.NodeWait}, became(f))
	require.Equal(t, graph.StatusFinish, f.Status)
	require.Equal(t, "no more", f.Reason)
}

// racing is a database of one stream, on which linkers, engines and appenders race. Each reads, and
// writes later what it has decided, if the rev has not moved.
type racing struct {
	t        *testing.T
	r        *rand.Rand
	doc      *graph.Flow
	numbers  int64
	inserts  []*graph.Node // numbered, and not stored yet
	records  map[string]*graph.Node
	acked    map[string]int64 // by node: the number of the last append that was answered before it began
	pending  []func()         // writes that are decided and not done
	released map[string]bool  // tasks that may run
	tasks    map[string]bool  // tasks that are stored
	ended    map[string]model.Status
	linked   []string // the whole chain
	order    []string // in which the nodes began
	answered int64
}

func (w *racing) append() {
	began := w.answered
	for range 1 + w.r.IntN(60) {
		w.numbers++
		id := fmt.Sprint(w.numbers)
		w.acked[id] = began
		policy := []graph.Policy{graph.Continue, graph.Continue, graph.Suspend, graph.End}[w.r.IntN(4)]
		w.inserts = append(w.inserts, &graph.Node{ID: "s/g/" + id, Node: id, Type: "t", No: w.numbers, OnFailure: policy, Status: graph.NodeInit})
	}
	w.doc.Appended, w.doc.DueAt, w.doc.LookUntil = w.numbers, day, day.Add(AppendPatience)
}

// insert stores some of the nodes that have numbers, in any order, and answers the appends of which
// all are.
func (w *racing) insert(all bool) {
	w.r.Shuffle(len(w.inserts), func(i, k int) { w.inserts[i], w.inserts[k] = w.inserts[k], w.inserts[i] })
	n := len(w.inserts)
	if !all && n > 0 {
		n = w.r.IntN(n + 1)
	}
	for _, node := range w.inserts[:n] {
		w.records[node.ID] = node
	}
	if w.inserts = slices.Clone(w.inserts[n:]); len(w.inserts) == 0 {
		w.answered = w.numbers
	}
}

// decide reads the stream, decides, and leaves the write for later.
func (w *racing) decide(f func(doc *graph.Flow) *graph.Flow) {
	before := *w.doc
	after := f(&before)
	if after == &before {
		return
	}
	w.pending = append(w.pending, func() {
		cleared := !before.DueAt.IsZero() && after.DueAt.IsZero()
		if w.doc.Rev != before.Rev || cleared && w.doc.Appended != before.Appended {
			return // somebody decided in between
		}
		now := *after
		now.Appended, now.LookUntil = w.doc.Appended, w.doc.LookUntil // of which a decision writes nothing
		if len(w.doc.Planned) < len(before.Planned) {                 // nothing that was carried out comes back
			now.Planned = slices.DeleteFunc(slices.Clone(after.Planned), func(p graph.Planned) bool {
				return slices.ContainsFunc(before.Planned, func(old graph.Planned) bool { return old.ID == p.ID }) &&
					!slices.ContainsFunc(w.doc.Planned, func(old graph.Planned) bool { return old.ID == p.ID })
			})
		}
		for i := before.Trimmed + len(before.Nodes) - now.Trimmed; i < len(now.Nodes); i++ {
			w.linked = append(w.linked, now.Nodes[i].ID)
		}
		w.doc = &now
	})
}

func (w *racing) link() {
	w.decide(func(doc *graph.Flow) *graph.Flow {
		found, more := w.waiting(doc)
		return Link(doc, found, more, day)
	})
}

// waiting are the nodes that are to be linked, as a linker reads them.
func (w *racing) waiting(doc *graph.Flow) (found []*graph.Node, more bool) {
	for _, n := range w.records {
		if n.Status == graph.NodeInit && n.No <= doc.Appended {
			found = append(found, n)
		}
	}
	slices.SortFunc(found, func(a, b *graph.Node) int { return int(a.No - b.No) })
	n := min(len(found), PerLink)
	return found[:n], len(found) > n
}

// carry carries out what the stream plans, as it was read; what it has done leaves the stream later.
func (w *racing) carry() {
	doc := *w.doc
	for k := range doc.Planned {
		p := &doc.Planned[k]
		first := Place(&doc, p)
		for i := first; i < first+max(p.N, 1); i++ {
			id, st := doc.Nodes[i].ID, doc.States[i]
			if p.Do == DoLink {
				w.tasks[id] = true
			}
			if p.Do == DoRelease {
				require.True(w.t, w.tasks[id], "the task of %s is stored before it may run", id)
				w.released[id] = true
			}
			if r := w.records["s/g/"+id]; r.Rev <= doc.Rev {
				w.records["s/g/"+id] = &graph.Node{ID: r.ID, Node: id, No: r.No, Status: st.Status, Rev: doc.Rev}
			}
		}
	}
	w.pending = append(w.pending, func() {
		now := *w.doc
		now.Planned = slices.DeleteFunc(slices.Clone(now.Planned), func(p graph.Planned) bool {
			return slices.ContainsFunc(doc.Planned, func(done graph.Planned) bool { return done.ID == p.ID })
		})
		w.doc = &now
	})
}

// run runs a task that may run, and end tells the stream of an end, perhaps again.
func (w *racing) run() {
	for id := range w.released {
		if _, over := w.ended[id]; !over {
			w.order = append(w.order, id)
			w.ended[id] = []model.Status{model.StatusSuccess, model.StatusSuccess, model.StatusFailure}[w.r.IntN(3)]
			return
		}
	}
}

func (w *racing) tell() {
	w.decide(func(doc *graph.Flow) *graph.Flow {
		var ends []End
		for i := range doc.Nodes {
			if status, over := w.ended[doc.Nodes[i].ID]; over {
				ends = append(ends, End{Node: i, Status: status})
			}
		}
		after, err := Ended(doc, ends, nil, day)
		require.NoError(w.t, err)
		if after != doc && Dry(after) {
			found, more := w.waiting(doc)
			require.Equal(w.t, doc.Rev+1, after.Rev)
			after = LinkDry(after, found, more, day)
			require.Equal(w.t, doc.Rev+1, after.Rev, "it is one decision")
		}
		return after
	})
}

// people resolve what is PENDING, and open what is closed.
func (w *racing) people() {
	w.decide(func(doc *graph.Flow) *graph.Flow {
		var err error
		after := doc
		for i := range doc.States {
			if doc.States[i].Status == graph.NodePending {
				after, err = Resolve(doc, i, graph.NodeSuccess, "", nil, day)
			}
		}
		if doc.Closed {
			after, err = Open(doc, day)
		}
		require.NoError(w.t, err)
		return after
	})
}

func (w *racing) write() {
	if len(w.pending) > 0 {
		i := w.r.IntN(len(w.pending))
		do := w.pending[i]
		w.pending = slices.Delete(w.pending, i, i+1)
		do()
	}
}

func TestAStreamKeepsItsOrderWhoeverRaces(t *testing.T) {
	for seed := range uint64(40) {
		w := &racing{
			t: t, r: rand.New(rand.NewPCG(seed, 1)), doc: stream(), records: map[string]*graph.Node{}, acked: map[string]int64{},
			released: map[string]bool{}, tasks: map[string]bool{}, ended: map[string]model.Status{},
		}
		steps := []func(){w.append, func() { w.insert(false) }, w.link, w.link, w.carry, w.run, w.run, w.tell, w.people, w.write, w.write, w.write, w.write}
		for range 1500 {
			if n := w.r.IntN(len(steps)); n > 0 || w.r.IntN(8) == 0 {
				steps[n]()
			}
			require.LessOrEqual(t, len(w.doc.Nodes), 4*PerLink)
		}
		w.insert(true)
		for range 20_000 {
			if len(w.order) == int(w.numbers) {
				break
			}
			w.link()
			w.write()
			w.carry()
			w.write()
			w.run()
			w.tell()
			w.write()
			w.people()
			w.write()
		}
		require.Len(t, w.order, int(w.numbers), "seed %d: every node runs, and once", seed)
		require.Equal(t, w.linked, w.order, "seed %d: each node is linked once, and they run in that order", seed)
		at := map[string]int{}
		for i, id := range w.order {
			_, twice := at[id]
			require.False(t, twice, "seed %d: %s runs twice", seed, id)
			at[id] = i
		}
		last := make([]int, w.numbers+1) // of the nodes up to a number: the place of the one that ran last
		for n := int64(1); n <= w.numbers; n++ {
			last[n] = max(last[n-1], at[fmt.Sprint(n)])
		}
		for id, began := range w.acked {
			require.True(t, began == 0 || last[began] < at[id], "seed %d: what was stored before the append of %s began runs before it", seed, id)
		}
	}
}

func TestALookAtAClosedStreamDoesNotChangeWhenItEnded(t *testing.T) {
	f := &graph.Flow{ID: "s/g", Kind: graph.KindStream, Status: graph.StatusRunning, Rev: 1, DueAt: time.UnixMilli(5_000_000), LookUntil: time.UnixMilli(9_000_000)}
	f, err := Cancel(f, "", &Inputs{}, time.UnixMilli(4_000_000))
	require.NoError(t, err)
	require.Equal(t, graph.StatusFinish, f.Status)
	at := f.EndedAt
	g := Link(f, nil, false, time.UnixMilli(6_000_000))
	require.Equal(t, at.UnixMilli(), g.EndedAt.UnixMilli())
}
