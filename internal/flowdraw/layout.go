package flowdraw

import (
	"cmp"
	"slices"

	"github.com/mscheduler/mscheduler/flow/graph"
)

// A layered layout, in the four steps of Sugiyama: each node gets a layer after those of its
// parents; an edge over several layers gets a bend in each; the order within the layers is improved
// until few edges cross; then each node moves to where its neighbours are.
//
// A position has two numbers: the layer (down) and the place in it (across). The picture decides
// whether down is from top to bottom or from left to right.

// placed is a layout: the place of each node, and for each edge the places of its bends.
type placed struct {
	layers int
	layer  []int     // of each node
	across []float64 // of each node, its middle
	bends  []bends   // of each edge, in the order of [edges]
	width  float64   // across
}

// bends are those of one edge, one in each layer between its nodes, as positions across.
type bends struct {
	from, to    int
	conditional bool
	across      []float64
}

const (
	// apart is the distance between the middles of two nodes in one layer, apartBends that of two
	// bends, apartMixed that of a node and a bend.
	apart, apartBends, apartMixed = 1.0, 0.18, 0.62
	// mostBends bounds the bends of a picture. The edges that come after are straight lines.
	mostBends = 40_000
	// sortings is how often the order of all layers is improved, settlings how often nodes move.
	sortings, settlings = 16, 12
	// muchWork bounds sortings in large pictures: so many places are looked at.
	muchWork = 2_000_000
)

// slot is a node, or a bend of an edge, in the layout.
type slot struct {
	bend     bool
	up, down []int // neighbours in the layers above and below, as slots
	at       int   // its place in its layer
	across   float64
}

type layout struct {
	slots  []slot  // the nodes first
	layers [][]int // the slots of each layer, in their order
}

// arrange lays a graph out.
func arrange(nodes []graph.Vertex) placed {
	p := placed{layer: layersOf(nodes)}
	for _, l := range p.layer {
		p.layers = max(p.layers, l+1)
	}
	l := &layout{slots: make([]slot, len(nodes)), layers: make([][]int, p.layers)}
	for i, at := range p.layer {
		l.layers[at] = append(l.layers[at], i)
	}
	var chains [][]int // of each edge, the slots of its bends
	edges(nodes, func(from, to int, conditional bool) {
		var chain []int
		last := from
		if len(l.slots)-len(nodes) < mostBends {
			for at := p.layer[from] + 1; at < p.layer[to]; at++ {
				chain = append(chain, l.bend(at, last))
				last = len(l.slots) - 1
			}
			l.join(last, to)
		}
		chains = append(chains, chain)
		p.bends = append(p.bends, bends{from: from, to: to, conditional: conditional})
	})
	l.number()
	l.sort()
	l.settle()
	left, right := l.slots[0].across, l.slots[0].across
	for i := range l.slots {
		left, right = min(left, l.slots[i].across), max(right, l.slots[i].across)
	}
	p.width = right - left + apart
	p.across = make([]float64, len(nodes))
	for i := range nodes {
		p.across[i] = l.slots[i].across - left + apart/2
	}
	for e, chain := range chains {
		for _, s := range chain {
			p.bends[e].across = append(p.bends[e].across, l.slots[s].across-left+apart/2)
		}
	}
	return p
}

// layersOf puts every node below its parents, and one with more children than parents right above
// its first child, so that few edges are long.
func layersOf(nodes []graph.Vertex) []int {
	layer := make([]int, len(nodes))
	lowest := make([]int, len(nodes)) // the first layer of a child; 0 = it has none
	children := make([]int, len(nodes))
	for i := range nodes {
		for _, at := range nodes[i].After {
			layer[i] = max(layer[i], layer[at]+1)
			children[at]++
		}
	}
	for i := len(nodes) - 1; i >= 0; i-- {
		if lowest[i] > 0 && len(nodes[i].After) > 0 && children[i] > len(nodes[i].After) {
			layer[i] = lowest[i] - 1
		}
		for _, at := range nodes[i].After {
			if lowest[at] == 0 || layer[i] < lowest[at] {
				lowest[at] = layer[i]
			}
		}
	}
	return layer
}

func (l *layout) bend(layer, after int) int {
	s := len(l.slots)
	l.slots = append(l.slots, slot{bend: true})
	l.layers[layer] = append(l.layers[layer], s)
	l.join(after, s)
	return s
}

func (l *layout) join(upper, lower int) {
	l.slots[upper].down = append(l.slots[upper].down, lower)
	l.slots[lower].up = append(l.slots[lower].up, upper)
}

// number notes the place of each slot in its layer.
func (l *layout) number() {
	for _, layer := range l.layers {
		for at, s := range layer {
			l.slots[s].at = at
		}
	}
}

// sort orders the slots of each layer by the mean place of their neighbours, downwards and upwards
// in turn, and keeps the order with the fewest crossings.
func (l *layout) sort() {
	best, fewest := l.order(), l.crossings()
	rounds := min(sortings, max(2, muchWork/len(l.slots)))
	for round := range rounds {
		if fewest == 0 {
			break
		}
		down := round%2 == 0
		for n := 1; n < len(l.layers); n++ {
			layer := l.layers[n]
			if !down {
				layer = l.layers[len(l.layers)-1-n]
			}
			mean := make(map[int]float64, len(layer))
			for _, s := range layer {
				mean[s] = l.meanPlace(s, down)
			}
			slices.SortStableFunc(layer, func(a, b int) int { return cmp.Compare(mean[a], mean[b]) })
			for at, s := range layer {
				l.slots[s].at = at
			}
		}
		if n := l.crossings(); n < fewest {
			best, fewest = l.order(), n
		}
	}
	l.layers = best
	l.number()
}

// meanPlace is the mean place of the neighbours of a slot in the layer that is fixed; without any, it
// is its own.
func (l *layout) meanPlace(s int, above bool) float64 {
	near := l.slots[s].down
	if above {
		near = l.slots[s].up
	}
	if len(near) == 0 {
		return float64(l.slots[s].at)
	}
	sum := 0
	for _, n := range near {
		sum += l.slots[n].at
	}
	return float64(sum) / float64(len(near))
}

func (l *layout) order() [][]int {
	out := make([][]int, len(l.layers))
	for i, layer := range l.layers {
		out[i] = slices.Clone(layer)
	}
	return out
}

// crossings counts the pairs of edges that cross between neighbouring layers: pairs whose lower ends
// stand in the opposite order. A Fenwick tree counts those.
func (l *layout) crossings() (n int) {
	for at, layer := range l.layers[:len(l.layers)-1] {
		tree := make([]int, len(l.layers[at+1])+1)
		seen := 0
		for _, s := range layer {
			lower := make([]int, 0, len(l.slots[s].down))
			for _, d := range l.slots[s].down {
				lower = append(lower, l.slots[d].at)
			}
			for _, place := range lower { // those that end further right
				n += seen
				for i := place + 1; i > 0; i -= i & -i {
					n -= tree[i]
				}
			}
			for _, place := range lower {
				for i := place + 1; i < len(tree); i += i & -i {
					tree[i]++
				}
				seen++
			}
		}
	}
	return n
}

// settle moves the slots towards the middle of their neighbours. The order stays, and so do the
// least distances.
func (l *layout) settle() {
	for _, layer := range l.layers {
		offset := l.offsets(layer)
		for at, s := range layer {
			l.slots[s].across = offset[at] - offset[len(layer)-1]/2
		}
	}
	for round := range settlings {
		for n := range l.layers {
			at, above := n, round%2 == 0
			if !above {
				at = len(l.layers) - 1 - n
			}
			l.settleLayer(l.layers[at], above, round >= settlings-2)
		}
	}
}

// offsets are the least distances of the slots of a layer from the first one.
func (l *layout) offsets(layer []int) []float64 {
	out := make([]float64, len(layer))
	for i := 1; i < len(layer); i++ {
		a, b := l.slots[layer[i-1]].bend, l.slots[layer[i]].bend
		gap := apart
		switch {
		case a && b:
			gap = apartBends
		case a || b:
			gap = apartMixed
		}
		out[i] = out[i-1] + gap
	}
	return out
}

// settleLayer puts the slots of a layer as near as possible to where they want to be, in the sense of
// least squares. Slots that would stand too close share a block, whose place is the weighted mean.
func (l *layout) settleLayer(layer []int, above, both bool) {
	type block struct{ want, weight float64 }
	offset := l.offsets(layer)
	var blocks []block
	var sizes []int
	for i, s := range layer {
		want, weight := l.wants(s, above, both)
		b, size := block{want - offset[i], weight}, 1
		for len(blocks) > 0 && blocks[len(blocks)-1].want > b.want {
			last := blocks[len(blocks)-1]
			sum := last.weight + b.weight
			b = block{(last.want*last.weight + b.want*b.weight) / sum, sum}
			size += sizes[len(sizes)-1]
			blocks, sizes = blocks[:len(blocks)-1], sizes[:len(sizes)-1]
		}
		blocks, sizes = append(blocks, b), append(sizes, size)
	}
	at := 0
	for n, b := range blocks {
		for range sizes[n] {
			l.slots[layer[at]].across = b.want + offset[at]
			at++
		}
	}
}

// wants is where a slot wants to be, and how much: the bends of long edges most, so that these are
// straight.
func (l *layout) wants(s int, above, both bool) (want, weight float64) {
	near := l.slots[s].up
	if !above {
		near = l.slots[s].down
	}
	if both {
		near = slices.Concat(l.slots[s].up, l.slots[s].down)
	}
	if len(near) == 0 {
		return l.slots[s].across, 0.1
	}
	for _, n := range near {
		w := 1.0
		if l.slots[s].bend && l.slots[n].bend {
			w = 8
		}
		want, weight = want+w*l.slots[n].across, weight+w
	}
	return want / weight, weight
}
