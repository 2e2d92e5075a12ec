package flowdraw

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mscheduler/mscheduler/flow/graph"
)

// Picture is what [SVG] draws. Statuses, Since and Reasons are those of the nodes; without a status, as in a
// definition, a box says what the node does.
type Picture struct {
	Title, Subtitle string
	Nodes           []graph.Vertex
	Statuses        []graph.NodeStatus
	Since           []time.Time // the time of the status; zero = not shown
	Reasons         []string    // "" = none
	Began           time.Time   // times of this day are shown without a date
}

const (
	boxHeight, reasonHeight   = 44.0, 16.0
	leastWidth, reasonWidth   = 132.0, 176.0
	charWidth, smallCharWidth = 7.3, 6.1 // of the monospaced fonts, a little too much
	mostIDChars               = 28
	margin                    = 24.0
	headHeight                = 78.0
	gapAcross, gapAlong       = 26.0, 46.0 // between boxes, where the layers go down
	gapBeside, gapBetween     = 14.0, 84.0 // where they go right
	comfortableWidth          = 1400.0     // a picture that is no wider goes down
)

// marks are the shapes of the statuses, each in a square of 12. With the word they carry the status
// without its colour. A style sheet sees lines and areas by their classes.
var marks = map[graph.NodeStatus]string{
	graph.NodeWait:    `<circle class="line" cx="6" cy="6" r="4.5" fill="none" stroke="#444" stroke-width="1.5"/>`,
	graph.NodeReady:   `<circle class="area" cx="6" cy="6" r="5" fill="#1f5fbf"/>`,
	graph.NodeRunning: `<path class="area" d="M2 1 L11 6 L2 11 Z" fill="#0b3d91"/>`,
	graph.NodePending: `<path class="area" d="M6 0 L12 6 L6 12 L0 6 Z" fill="#7a4d00"/>`,
	graph.NodeSuccess: `<path class="line" d="M1 6.5 L4.5 10 L11 2" fill="none" stroke="#1d6b1d" stroke-width="2.2"/>`,
	graph.NodeError:   `<path class="line" d="M2 2 L10 10 M10 2 L2 10" fill="none" stroke="#a11212" stroke-width="2.4"/>`,
	graph.NodeSkipped: `<path class="line" d="M1 6 L11 6" fill="none" stroke="#444" stroke-width="2"/>`,
}

// borders are those of the statuses that are not thin lines.
var borders = map[graph.NodeStatus]string{
	graph.NodeRunning: ` stroke-width="2.5"`,
	graph.NodePending: ` stroke-width="2.5"`,
	graph.NodeError:   ` stroke-width="2.5"`,
	graph.NodeSkipped: ` stroke-dasharray="5 3"`,
	graph.NodeWait:    ` stroke-dasharray="1 2"`,
}

// SVG draws the flow as a picture: a box for each node, with its status, and the time and the reason
// of the status. The picture has no scripts and no external references. Layers go down, or to the
// right if the picture would become too wide. A page that holds the picture can colour it by the classes of
// its parts, and knows each node by its data-node.
func SVG(p Picture) string {
	d := &svg{Picture: p, placed: arrange(p.Nodes)}
	d.measure()
	var b strings.Builder
	d.out = &b
	d.head()
	for i := range d.bends {
		d.edge(&d.bends[i])
	}
	for i := range d.Nodes {
		d.box(i)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// svg is a picture that is being drawn.
type svg struct {
	Picture
	placed
	out *strings.Builder

	right           bool // the layers go to the right
	boxW, boxH      float64
	unit, step      float64 // across; from layer to layer
	width, height   float64
	shiftX          float64 // a narrow graph stands in the middle of its head
	chars, subChars int     // that fit into a box
}

func (d *svg) measure() {
	longest, least := 0, leastWidth
	d.boxH = boxHeight
	for i := range d.Nodes {
		longest = max(longest, min(mostIDChars, utf8.RuneCountInString(label(&d.Nodes[i]))))
		if d.Reasons[i] != "" {
			d.boxH, least = boxHeight+reasonHeight, reasonWidth
		}
	}
	d.boxW = max(least, float64(longest)*charWidth+20)
	d.chars, d.subChars = int((d.boxW-16)/charWidth), int((d.boxW-16)/smallCharWidth)
	layers, across := float64(d.layers), d.placed.width
	down := across * (d.boxW + gapAcross)
	right := layers * (d.boxW + gapBetween)
	var w, h float64
	if d.right = down > comfortableWidth && right < down; d.right {
		d.unit, d.step = d.boxH+gapBeside, d.boxW+gapBetween
		w, h = layers*d.step, across*d.unit
	} else {
		d.unit, d.step = d.boxW+gapAcross, d.boxH+gapAlong
		w, h = across*d.unit, layers*d.step
	}
	head := max(float64(utf8.RuneCountInString(d.Title))*10, float64(utf8.RuneCountInString(d.Subtitle))*7, d.legendWidth())
	d.width, d.height = max(w, head)+2*margin, h+headHeight+2*margin
	d.shiftX = (d.width - 2*margin - w) / 2
}

// place is where a position in the layout is in the picture.
func (d *svg) place(layer int, across float64) (x, y float64) {
	along := (float64(layer) + 0.5) * d.step
	across *= d.unit
	if d.right {
		return margin + d.shiftX + along, margin + headHeight + across
	}
	return margin + d.shiftX + across, margin + headHeight + along
}

func (d *svg) printf(format string, args ...any) { fmt.Fprintf(d.out, format, args...) }

func (d *svg) head() {
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" class="flow" role="img" font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="12">`+"\n",
		d.width, d.height, d.width, d.height)
	d.printf("<title>%s</title>\n", escaped(d.Title))
	d.printf(`<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path class="tip" d="M0 0.5 L8 4 L0 7.5 Z" fill="#555"/></marker></defs>` + "\n")
	d.printf(`<rect class="ground" width="100%%" height="100%%" fill="#fff"/>` + "\n")
	d.printf(`<text class="head" x="%.0f" y="%.0f" font-size="16" font-weight="bold">%s</text>`+"\n", margin, margin+14, escaped(d.Title))
	d.printf(`<text class="head" x="%.0f" y="%.0f" fill="#444" font-size="11">%s</text>`+"\n", margin, margin+33, escaped(d.Subtitle))
	x := margin
	for _, e := range d.legend() {
		d.printf(`<g class="%s" transform="translate(%.1f %.1f)">%s</g><text x="%.1f" y="%.0f" font-size="11">%s</text>`+"\n", class(e.status), x, margin+45, marks[e.status], x+17, margin+55, e.text)
		x += e.width
	}
}

type legendEntry struct {
	status graph.NodeStatus
	text   string
	width  float64
}

// legend has the statuses that occur, with how many nodes have each.
func (d *svg) legend() (out []legendEntry) {
	n := map[graph.NodeStatus]int{}
	for _, s := range d.Statuses {
		n[s]++
	}
	for _, c := range colors {
		if n[c.status] > 0 {
			text := fmt.Sprintf("%d %s", n[c.status], c.status)
			out = append(out, legendEntry{c.status, text, 17 + float64(len(text))*smallCharWidth*1.1 + 18})
		}
	}
	return out
}

func (d *svg) legendWidth() (w float64) {
	for _, e := range d.legend() {
		w += e.width
	}
	return w
}

// edge draws an edge as curves from one box to the other. It goes straight through each layer that
// it passes, between the boxes there.
func (d *svg) edge(e *bends) {
	half := d.boxH / 2
	if d.right {
		half = d.boxW / 2
	}
	x, y := d.place(d.layer[e.from], d.across[e.from])
	x, y = d.along(x, y, half)
	var path strings.Builder
	fmt.Fprintf(&path, "M%.1f %.1f", x, y)
	curve := func(tox, toy float64) {
		if d.right {
			fmt.Fprintf(&path, "C%.1f %.1f %.1f %.1f %.1f %.1f", (x+tox)/2, y, (x+tox)/2, toy, tox, toy)
		} else {
			fmt.Fprintf(&path, "C%.1f %.1f %.1f %.1f %.1f %.1f", x, (y+toy)/2, tox, (y+toy)/2, tox, toy)
		}
		x, y = tox, toy
	}
	for k, at := range e.across {
		bx, by := d.place(d.layer[e.from]+1+k, at)
		curve(d.along(bx, by, -half))
		x, y = d.along(bx, by, half)
		fmt.Fprintf(&path, "L%.1f %.1f", x, y)
	}
	lastX, lastY := x, y
	ex, ey := d.place(d.layer[e.to], d.across[e.to])
	ex, ey = d.along(ex, ey, -half)
	curve(ex, ey)
	style := ""
	if e.conditional {
		style = ` stroke-dasharray="6 3"`
	}
	d.printf(`<path class="edge" d="%s" fill="none" stroke="#555" stroke-opacity="0.75"%s marker-end="url(#tip)"/>`+"\n", path.String(), style)
	if e.conditional {
		d.printf(`<text class="when" x="%.1f" y="%.1f" font-size="10" fill="#333" text-anchor="middle" stroke="#fff" stroke-width="3" paint-order="stroke">when</text>`+"\n",
			(lastX+ex)/2, (lastY+ey)/2+3)
	}
}

// along moves a place in the direction of the layers.
func (d *svg) along(x, y, by float64) (float64, float64) {
	if d.right {
		return x + by, y
	}
	return x, y + by
}

func (d *svg) box(i int) {
	status := d.Statuses[i]
	at := slices.IndexFunc(colors, func(c color) bool { return c.status == status })
	fill := "#ffffff"
	if at >= 0 {
		fill = colors[at].fill
	}
	x, y := d.place(d.layer[i], d.across[i])
	x, y = x-d.boxW/2, y-d.boxH/2
	v := &d.Nodes[i]
	about := v.ID + " (" + Kind(v) + ")"
	if status != "" {
		about += ": " + string(status)
	}
	if !d.Since[i].IsZero() {
		about += " since " + d.Since[i].UTC().Format("2006-01-02 15:04:05.000") + " UTC"
	}
	if d.Reasons[i] != "" {
		about += ": " + d.Reasons[i]
	}
	d.printf(`<g class="node %s" data-node="%s" transform="translate(%.1f %.1f)"><title>%s</title>`, class(status), escaped(v.ID), x, y, escaped(about))
	d.printf(`<rect width="%.1f" height="%.1f" rx="6" fill="%s" stroke="#444"%s/>`, d.boxW, d.boxH, fill, borders[status])
	if status == "" {
		d.printf(`<text x="8" y="18" font-weight="bold">%s</text>`, escaped(short(v.ID, d.chars)))
		d.printf(`<text x="8" y="35" font-size="10">%s</text></g>`+"\n", escaped(short(Kind(v), d.subChars)))
		return
	}
	d.printf(`<text x="8" y="18" font-weight="bold">%s</text>`, escaped(short(label(v), d.chars)))
	d.printf(`<g transform="translate(8 25)">%s</g>`, marks[status])
	d.printf(`<text x="25" y="35" font-size="10">%s</text>`, escaped(string(status)+d.when(i)))
	if d.Reasons[i] != "" {
		d.printf(`<text x="8" y="52" font-size="10" fill="#333">%s</text>`, escaped(short(d.Reasons[i], d.subChars)))
	}
	d.printf("</g>\n")
}

// class is that of a status.
func class(s graph.NodeStatus) string {
	if s == "" {
		return "is-wait"
	}
	return "is-" + strings.ToLower(string(s))
}

// label names a node, and says what it does if it has no task.
func label(v *graph.Vertex) string {
	if v.Type == "" {
		return v.ID + ": " + Kind(v)
	}
	return v.ID
}

// when is the time of a status, short.
func (d *svg) when(i int) string {
	at := d.Since[i].UTC()
	switch {
	case d.Since[i].IsZero():
		return ""
	case at.Format(time.DateOnly) == d.Began.UTC().Format(time.DateOnly):
		return at.Format(" 15:04:05")
	default:
		return at.Format(" 01-02 15:04")
	}
}

// short cuts the middle out of a text that is too long.
func short(s string, most int) string {
	runes := []rune(s)
	if len(runes) <= most {
		return s
	}
	head := (most - 1) * 2 / 3
	return string(runes[:head]) + "…" + string(runes[len(runes)-(most-1-head):])
}

// escaped is a text within the picture. What XML cannot hold becomes U+FFFD.
func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}
