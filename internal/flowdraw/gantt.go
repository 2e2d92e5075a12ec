package flowdraw

import (
	"fmt"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/flow/graph"
)

// Chart is what [Gantt] draws: a row for each node, in the order of Rows.
type Chart struct {
	Title, Subtitle string
	From, To        time.Time // the left and the right edge
	Rows            []Row
}

// Row is a node in a [Chart]. Zero times are not yet, or never.
type Row struct {
	ID     string
	Status graph.NodeStatus
	Since  time.Time // of the status
	Ready  time.Time // from then until Start it waited
	Start  time.Time
	End    time.Time
	Took   string // beside the bar; "" = nothing
	Reason string // "" = none
}

const (
	rowHeight, barHeight    = 20.0, 12.0
	labelsWidth, chartWidth = 240.0, 760.0
	besideWidth             = 150.0 // for what stands right of the last bar
	mostLabel               = 32    // characters of a node's id
	mostTicks               = 8
	ticksEvery              = 25 // rows: so the axis can be read wherever somebody has scrolled
)

// steps are the distances of ticks that people read easily.
var steps = []time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day, 14 * day, 28 * day,
}

const day = 24 * time.Hour

// Gantt draws when the nodes of a flow became ready, started and ended: a thin line while a node waits for a worker, a
// bar from its start to its end, or up to now. The bar of a node that is PENDING has a second part, in which it
// waits for a person. Like [SVG] it has no scripts, and a page can colour it by its classes.
func Gantt(c Chart) string {
	var b strings.Builder
	g := &gantt{Chart: c, svg: svg{Picture: Picture{Title: c.Title, Subtitle: c.Subtitle}, out: &b}, whole: max(c.To.Sub(c.From), time.Millisecond)}
	for i := range c.Rows {
		g.Statuses = append(g.Statuses, c.Rows[i].Status)
	}
	g.width = max(labelsWidth+chartWidth+besideWidth, g.legendWidth()) + 2*margin
	g.height = margin + headHeight + rowHeight*float64(len(c.Rows)+1+len(c.Rows)/ticksEvery) + margin
	g.head()
	y := margin + headHeight
	for i := range c.Rows {
		if i%ticksEvery == 0 {
			g.axis(y, min(ticksEvery, len(c.Rows)-i))
			y += rowHeight
		}
		g.row(&c.Rows[i], y)
		y += rowHeight
	}
	b.WriteString("</svg>\n")
	return b.String()
}

type gantt struct {
	Chart
	svg
	whole time.Duration
}

// x is where a time is.
func (g *gantt) x(at time.Time) float64 {
	return margin + labelsWidth + chartWidth*float64(min(max(at.Sub(g.From), 0), g.whole))/float64(g.whole)
}

// axis draws ticks over the rows that follow.
func (g *gantt) axis(y float64, rows int) {
	step := steps[len(steps)-1]
	for _, s := range steps {
		if g.whole/s < mostTicks {
			step = s
			break
		}
	}
	step *= 1 + g.whole/step/mostTicks
	for after := time.Duration(0); after <= g.whole; after += step {
		x := g.x(g.From.Add(after))
		g.printf(`<path class="grid" d="M%.1f %.1fV%.1f" stroke="#ccc"/><text class="tick" x="%.1f" y="%.1f" font-size="10" fill="#444">%s</text>`+"\n",
			x, y+2, y+rowHeight*float64(rows+1), x+3, y+13, "+"+shortly(after))
	}
}

// shortly is a distance of ticks as text: 90s and 2h rather than 1m30s and 2h0m0s.
func shortly(d time.Duration) string {
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func (g *gantt) row(r *Row, y float64) {
	about := r.ID + ": " + string(r.Status)
	for _, at := range []struct {
		what string
		time time.Time
	}{{"ready", r.Ready}, {"started", r.Start}, {"ended", r.End}} {
		if !at.time.IsZero() {
			about += ", " + at.what + " " + at.time.UTC().Format("2006-01-02 15:04:05.000")
		}
	}
	if r.Took != "" {
		about += ", " + r.Took
	}
	if r.Reason != "" {
		about += ": " + r.Reason
	}
	g.printf(`<g class="node %s" data-node="%s" transform="translate(%.0f %.1f)"><title>%s</title>`, class(r.Status), escaped(r.ID), margin, y, escaped(about))
	g.printf(`<g><rect class="none" width="%.0f" height="%.0f" fill="none" pointer-events="all"/></g>`, labelsWidth+chartWidth+besideWidth, rowHeight)
	g.printf(`<g transform="translate(0 4)">%s</g><text x="18" y="14" font-size="11">%s</text>`, marks[r.Status], escaped(short(r.ID, mostLabel)))
	g.bars(r)
	g.printf("</g>\n")
}

// bars draws the times of a row, and says beside them how long it took.
func (g *gantt) bars(r *Row) {
	at := func(t time.Time) float64 { return g.x(t) - margin }
	const top = (rowHeight - barHeight) / 2
	last := 0.0
	rect := func(kind string, from, to time.Time, fill string) {
		x := at(from)
		last = max(at(to), x+2)
		g.printf(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2" fill="%s" stroke="#444"/>`, kind, x, top, last-x, barHeight, fill)
	}
	fill := "#ffffff"
	for _, c := range colors {
		if c.status == r.Status {
			fill = c.fill
		}
	}
	ended := r.End
	if ended.IsZero() {
		ended = g.To
	}
	if waits := r.Start; !r.Ready.IsZero() {
		if waits.IsZero() {
			waits = ended
		}
		last = at(waits)
		g.printf(`<path class="waits" d="M%.1f %.1fH%.1f" stroke="#555" stroke-dasharray="3 2"/>`, at(r.Ready), rowHeight/2, last)
	}
	switch {
	case r.Status == graph.NodePending && !r.Ready.IsZero(): // and it waits itself, not behind another node
		if !r.Start.IsZero() && r.Start.Before(r.Since) {
			rect("ran", r.Start, r.Since, "#eeeeee")
		}
		rect("span", r.Since, g.To, fill)
	case !r.Start.IsZero():
		rect("span", r.Start, ended, fill)
	case r.Ready.IsZero() && !r.End.IsZero(): // it never ran
		rect("span", r.End, r.End, fill)
	}
	if last > 0 && r.Took != "" {
		g.printf(`<text x="%.1f" y="14" font-size="10" fill="#333">%s</text>`, last+6, escaped(r.Took))
	}
}
