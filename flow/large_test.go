package flow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/testdb"
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
