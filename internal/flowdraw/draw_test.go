package flowdraw

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/flow/graph"
)

// flowOf reads a graph, a node on each line before its parents: "d b c".
func flowOf(text string) (nodes []graph.Vertex) {
	places := map[string]int{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		v := graph.Vertex{ID: words[0]}
		for _, parent := range words[1:] {
			v.After = append(v.After, places[parent])
		}
		places[v.ID] = len(nodes)
		nodes = append(nodes, v)
	}
	return nodes
}

func lines(nodes []graph.Vertex) string {
	var b strings.Builder
	for _, l := range Tree(nodes) {
		b.WriteString(l.Text + "\n")
	}
	return b.String()
}

func TestTheTreeShowsChainsAsColumnsAndBranchesBelowTheirNode(t *testing.T) {
	for _, c := range []struct{ name, flow, want string }{
		{"one node", "a", "a\n"},
		{"a chain", "a\nb a\nc b", "a\nb\nc\n"},
		{"a diamond", "a\nb a\nc a\nd b c", "a\n├─ b\n├─ c\nd\n"},
		{"diamonds in a row", "a\nb a\nc a\nd b c\ne d\nf d\ng e f", "a\n├─ b\n├─ c\nd\n├─ e\n├─ f\ng\n"},
		{"a diamond in a branch", "a\nb a\nx b\ny b\nz x y\nc a\nd z c", "a\n├─ b\n│  ├─ x\n│  ├─ y\n│  z\n├─ c\nd\n"},
		{"a shortcut", "a\nb a\nc a b", "a\n├─ b\nc\n"},
		{"crossing edges", "a\nb a\nc a\nx b c\ny b c\nd x y", "a\n├─ b\n├─ c\n├─ x\n├─ y\nd\n"},
		{"branches that end", "a\nb a\nc a", "a\n├─ b\n└─ c\n"},
		{"below the last branch", "a\nb a\nc a\nx c\ny c", "a\n├─ b\n└─ c\n   ├─ x\n   └─ y\n"},
	} {
		require.Equal(t, c.want, lines(flowOf(c.flow)), c.name)
	}
}

// Every node has one line, after those of its parents.
func TestTheTreeHasEachNodeOnceAndAfterItsParents(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(r, "nodes")
		nodes := make([]graph.Vertex, n)
		for i := range nodes {
			nodes[i].ID = fmt.Sprint("n", i)
			if i > 0 {
				nodes[i].After = rapid.SliceOfNDistinct(rapid.IntRange(0, i-1), 1, min(i, 4), rapid.ID).Draw(r, "parents")
			}
		}
		drawn := map[int]bool{}
		for _, l := range Tree(nodes) {
			require.False(r, drawn[l.Node])
			for _, parent := range nodes[l.Node].After {
				require.True(r, drawn[parent], "n%d is drawn before its parent n%d", l.Node, parent)
			}
			drawn[l.Node] = true
		}
		require.Len(r, drawn, n)
	})
}

func TestTheLinesOfALargeGraphStayShort(t *testing.T) {
	const n = 3000 // each node has a leaf and the next node
	nodes := []graph.Vertex{{ID: "a"}}
	for i := range n {
		nodes = append(nodes, graph.Vertex{ID: "b", After: []int{2 * i}}, graph.Vertex{ID: "a", After: []int{2 * i}})
	}
	for _, l := range Tree(nodes) {
		require.LessOrEqual(t, len([]rune(l.Text)), 3*deepest+4)
	}
}

func TestTheGraphInEachLanguage(t *testing.T) {
	nodes := flowOf("pay\nstock pay\nend pay stock")
	nodes[2].When = []string{"", `{"output": 1}`}
	statuses := []graph.NodeStatus{graph.NodeSuccess, graph.NodePending, graph.NodeWait}
	require.Equal(t, `pay  SUCCESS
├─ stock  PENDING
end  WAIT  after pay, stock
`, Text(nodes, statuses))
	require.Equal(t, `digraph flow {
  node [shape=box, style="rounded,filled"];
  "pay" [label="pay\nSUCCESS", fillcolor="#b6d7a8"];
  "stock" [label="stock\nPENDING", fillcolor="#ffd966"];
  "end" [label="end\nWAIT", fillcolor="#eeeeee"];
  "pay" -> "stock";
  "pay" -> "end";
  "stock" -> "end" [label="when"];
}
`, Dot(nodes, statuses))
	require.Equal(t, `flowchart TD
  n0["pay<br/>SUCCESS"]:::success
  n1["stock<br/>PENDING"]:::pending
  n2["end<br/>WAIT"]:::wait
  n0 --> n1
  n0 --> n2
  n1 -->|when| n2
  classDef wait fill:#eeeeee,stroke:#555555,color:#000000
  classDef ready fill:#cfe2ff,stroke:#555555,color:#000000
  classDef running fill:#8fb8ff,stroke:#555555,color:#000000
  classDef pending fill:#ffd966,stroke:#555555,color:#000000
  classDef success fill:#b6d7a8,stroke:#555555,color:#000000
  classDef error fill:#ea9999,stroke:#555555,color:#000000
  classDef skipped fill:#ffffff,stroke:#555555,color:#000000
`, Mermaid(nodes, statuses))
}

func TestADefinitionSaysWhatItsNodesDo(t *testing.T) {
	nodes := flowOf("pay\nrest pay")
	nodes[0].Type, nodes[1].Until = "payment", `{"$output":"pay.due"}`
	none := make([]graph.NodeStatus, 2)
	require.Equal(t, "pay  payment\nrest  wait until "+nodes[1].Until+"\n", Text(nodes, none))
	require.Contains(t, Dot(nodes, none), `"pay" [label="pay\npayment", fillcolor="#ffffff"];`)
	require.Contains(t, Dot(nodes, none), `[label="rest\nwait until {\"$output\":\"pay.due\"}", fillcolor`)
	require.Contains(t, Mermaid(nodes, none), "  n0[\"pay<br/>payment\"]\n")
	require.Contains(t, Mermaid(nodes, none), "wait until {#quot;$output#quot;:")
	texts := read(t, SVG(Picture{Title: "new", Subtitle: "2 nodes", Nodes: nodes, Statuses: none, Since: make([]time.Time, 2), Reasons: make([]string, 2)}))
	require.Subset(t, texts, []string{"pay", "payment", "rest"})
}
