package flowdraw

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/flow/graph"
)

// pictureOf is a picture of nodes that have each status in turn.
func pictureOf(nodes []graph.Vertex) Picture {
	p := Picture{Title: "order-7 · RUNNING", Subtitle: "created 2027-01-15 08:00:00 UTC", Nodes: nodes, Began: time.Unix(1_800_000_000, 0)}
	for i := range nodes {
		if nodes[i].Type == "" && nodes[i].For == 0 && nodes[i].Ask == nil {
			nodes[i].Type = "t"
		}
		status := colors[i%len(colors)].status
		reason := ""
		if status == graph.NodePending {
			reason = "its task failed: no answer from the shop"
		}
		p.Statuses, p.Since, p.Reasons = append(p.Statuses, status), append(p.Since, p.Began.Add(time.Duration(i)*time.Minute)), append(p.Reasons, reason)
	}
	return p
}

// read parses a picture. It returns the texts that people see, and fails on anything that could load
// or run something.
func read(t require.TestingT, picture string) (texts []string) {
	dec := xml.NewDecoder(strings.NewReader(picture))
	var within []string
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		require.NoError(t, err)
		switch x := token.(type) {
		case xml.StartElement:
			require.Contains(t, []string{"svg", "title", "defs", "marker", "path", "rect", "text", "g", "circle"}, x.Name.Local)
			for _, a := range x.Attr {
				require.False(t, strings.HasPrefix(a.Name.Local, "on"), a.Name.Local)
				require.NotContains(t, a.Name.Local, "href")
				if a.Name.Local != "xmlns" {
					require.NotContains(t, a.Value, "//")
				}
				if strings.Contains(a.Value, "url(") {
					require.Equal(t, "url(#tip)", a.Value)
				}
			}
			within = append(within, x.Name.Local)
		case xml.EndElement:
			within = within[:len(within)-1]
		case xml.CharData:
			if len(within) > 0 && within[len(within)-1] == "text" {
				texts = append(texts, string(x))
			}
		}
	}
}

func TestThePictureSaysIDStatusTimeAndReasonOfEachNode(t *testing.T) {
	texts := read(t, SVG(pictureOf(flowOf("a\nb a\nc a\nd b c\ne d\nf d\nlast e f"))))
	require.Equal(t, []string{
		"order-7 · RUNNING", "created 2027-01-15 08:00:00 UTC",
		"1 WAIT", "1 READY", "1 RUNNING", "1 PENDING", "1 SUCCESS", "1 ERROR", "1 SKIPPED",
		"a", "WAIT 08:00:00", "b", "READY 08:01:00", "c", "RUNNING 08:02:00", "d", "PENDING 08:03:00", "its task failed:… the shop",
		"e", "SUCCESS 08:04:00", "f", "ERROR 08:05:00", "last", "SKIPPED 08:06:00",
	}, texts)
	for _, c := range colors {
		require.NotEmpty(t, marks[c.status], "%s has a shape of its own, not a colour alone", c.status)
	}
}

func TestNothingInAPictureIsMoreThanText(t *testing.T) {
	p := pictureOf(flowOf("a\nb a\nc a\nd b c"))
	evil := `"/><script>alert(1)</script>&<image href="http://x/"/>` + "\x00\x1b]]>"
	p.Title, p.Subtitle, p.Reasons[1], p.Nodes[2].Type = evil, evil, evil, evil
	p.Nodes[3].ID = strings.Repeat("<", 100)
	texts := read(t, SVG(p))
	require.Equal(t, strings.NewReplacer("\x00", "\uFFFD", "\x1b", "\uFFFD").Replace(evil), texts[0])
}

func TestANodeWithoutATaskSaysWhatItDoes(t *testing.T) {
	nodes := flowOf("a\nb a\nc b")
	nodes[1].Type, nodes[1].For = "", time.Hour
	nodes[2].Type, nodes[2].Ask = "", &graph.Ask{Title: "approve?"}
	texts := read(t, SVG(pictureOf(nodes)))
	require.Contains(t, texts, "a")
	require.Contains(t, texts, "b: wait 1h0m0s")
	require.Contains(t, texts, "c: ask")
}

func TestATimeOfAnotherDayHasItsDate(t *testing.T) {
	p := pictureOf(flowOf("a\nb a"))
	p.Since[1] = p.Began.AddDate(0, 0, 2)
	require.Contains(t, read(t, SVG(p)), "READY 01-17 08:00")
}

// In any graph the boxes of a layer keep their distance, children stand below their parents, and
// the same graph gives the same picture.
func TestBoxesNeverOverlapAndEdgesGoDown(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n := rapid.IntRange(1, 60).Draw(r, "nodes")
		nodes := make([]graph.Vertex, n)
		for i := range nodes {
			nodes[i].ID = fmt.Sprint("n", i)
			if i > 0 {
				nodes[i].After = rapid.SliceOfNDistinct(rapid.IntRange(0, i-1), 1, min(i, 4), rapid.ID).Draw(r, "parents")
			}
		}
		p := arrange(nodes)
		for i := range nodes {
			require.GreaterOrEqual(r, p.across[i], apart/2-1e-9)
			require.LessOrEqual(r, p.across[i], p.width-apart/2+1e-9)
			for k := range i {
				if p.layer[i] == p.layer[k] {
					require.GreaterOrEqual(r, max(p.across[i], p.across[k])-min(p.across[i], p.across[k]), apart-1e-9)
				}
			}
			for _, parent := range nodes[i].After {
				require.Less(r, p.layer[parent], p.layer[i])
			}
		}
		for _, e := range p.bends {
			require.Len(r, e.across, p.layer[e.to]-p.layer[e.from]-1)
		}
		first, again := SVG(pictureOf(nodes)), SVG(pictureOf(nodes))
		require.Equal(r, first, again)
		read(r, first)
	})
}

func TestTheOrderWithinLayersAvoidsCrossings(t *testing.T) {
	for _, c := range []struct {
		flow string
		most int
	}{
		{"s\na s\nb s\nc s\nd c\ne b\nf a\nz d e f", 0},
		{"s\na s\nb s\nc s\nd s\nw d\nx c\ny b\nz a\nend w x y z", 0},
		{"s\na s\nb s\nx a b\ny a b\nend x y", 1}, // each of two with each of two: one pair crosses
	} {
		nodes := flowOf(c.flow)
		l := &layout{slots: make([]slot, len(nodes))}
		for i, at := range layersOf(nodes) {
			for len(l.layers) <= at {
				l.layers = append(l.layers, nil)
			}
			l.layers[at] = append(l.layers[at], i)
		}
		edges(nodes, func(from, to int, _ bool) { l.join(from, to) })
		l.number()
		l.sort()
		require.Equal(t, c.most, l.crossings(), c.flow)
	}
}

// A wide graph goes to the right, so that people scroll down, and a long one goes down.
func TestALargePictureStaysNarrow(t *testing.T) {
	fan, chain := []graph.Vertex{{ID: "split"}}, []graph.Vertex{{ID: "first"}}
	last := graph.Vertex{ID: "gather"}
	for i := range 500 {
		fan = append(fan, graph.Vertex{ID: fmt.Sprint("part-", i), After: []int{0}})
		chain = append(chain, graph.Vertex{ID: fmt.Sprint("step-", i), After: []int{i}})
		last.After = append(last.After, i+1)
	}
	for _, nodes := range [][]graph.Vertex{append(fan, last), chain} {
		d := &svg{Picture: pictureOf(nodes), placed: arrange(nodes)}
		d.measure()
		require.Less(t, d.width, 1000.0)
	}
}

// The largest flow is drawn within seconds, whatever its shape.
// Whatever grows faster than the drawing would not end.
func TestTheLargestFlowsAreDrawn(t *testing.T) {
	const n = 10_000
	for _, parents := range []func(i int) []int{
		func(i int) []int { return []int{i - 1} },
		func(int) []int { return []int{0} },
		func(i int) []int { return []int{i / 2} },
		func(i int) []int { // each after the one before and the first one: most edges are as long as the flow
			if i == 1 {
				return []int{0}
			}
			return []int{0, i - 1}
		},
	} {
		nodes := []graph.Vertex{{ID: "n0"}}
		for i := 1; i < n; i++ {
			nodes = append(nodes, graph.Vertex{ID: fmt.Sprint("n", i), After: parents(i)})
		}
		require.Len(t, read(t, SVG(pictureOf(nodes))), 2*n+2+len(colors)+(n+3)/7)
	}
}
