package decision

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
)

// note is a document that plans things.
type note struct {
	id    string
	plans []string
}

type notes struct{ Documents[*note] }

func (notes) ID(n *note) string        { return n.id }
func (notes) PlanIDs(n *note) []string { return n.plans }

func (notes) WithoutPlans(n *note) *note { return &note{id: n.id} }

type notePlanner struct{ Planner[*note] }

func (notePlanner) MustKnow(*note) []string { return nil }

// The plans of a stored document leave with the next decision that plans something. Until then the engine must not
// take the document for one without plans: a stream's decision moved its window past their nodes.
func TestADocumentWhosePlansStillStandIsRemembered(t *testing.T) {
	d := New(Config[*note]{Documents: notes{}, Planner: notePlanner{}})
	known := func() (doc *note, drop bool) { return d.known(d.recent.docs["n"]) }

	planned := &note{"n", []string{"a"}}
	d.remember(store.Decision[*note]{After: planned})
	require.Empty(t, d.recent.docs, "what it plans is not carried out")

	d.carried["n"] = carried[*note]{doc: planned, plans: planned.plans}
	d.remember(store.Decision[*note]{After: planned})
	doc, drop := known()
	require.Empty(t, doc.plans)
	require.True(t, drop)

	d.remember(store.Decision[*note]{Before: doc, After: &note{id: "n"}, Drop: drop}) // it plans nothing, so nothing left
	require.Empty(t, d.recent.docs, "a stands in the stored document, and nobody would drop it")

	d.remember(store.Decision[*note]{After: &note{id: "n"}})
	_, drop = known()
	require.False(t, drop)
}

func TestPlansAreAmongOthersInTheirOrder(t *testing.T) {
	for _, c := range []struct {
		some, others []string
		want         bool
	}{
		{nil, nil, true}, {[]string{"a", "c"}, []string{"a", "b", "c"}, true}, {[]string{"c"}, []string{"a", "b", "c"}, true},
		{[]string{"a", "d"}, []string{"a", "b", "c"}, false}, {[]string{"a", "a"}, []string{"a", "b"}, false}, {[]string{"a"}, nil, false},
	} {
		require.Equal(t, c.want, amongInOrder(c.some, c.others), "%v of %v", c.some, c.others)
	}
}
