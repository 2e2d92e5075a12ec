package dashboard

import (
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// charts are the pictures of a series (see the operation get-series), and the same as numbers.
type charts struct {
	Window  string
	Slot    string // how long a slot is, in words
	Charts  []*chart
	Rows    []any    // the slots in which something has happened, the last one first
	Sum     document // of all slots
	Nothing bool     // nothing has happened
	Of      string   // the type; "" = all together
}

// Query is that of the file of the numbers.
func (c *charts) Query() url.Values { return url.Values{"window": {c.Window}} }

// seriesFile are the slots of a series in which something has happened.
func (v *visit) seriesFile() []any {
	q := v.r.URL.Query()
	return chartsOf("file", v.read("/series", url.Values{"window": {windowOf(q).Name}, "type": q["of"]})).Rows
}

// chart is one of the pictures: bars that are stacked, or lines. Each slot has a title that says its numbers.
type chart struct {
	ID, Title     string
	Words         string // what the picture shows
	Width, Height int
	Left, Bottom  float64 // of the drawing itself
	Grid          []level
	Ticks         []mark
	Bars          []bar
	Lines         []line
	Slots         []bar // what the pointer finds
	Legend        []legend
}

// level is a line across the picture, with the value that it is of.
type level struct {
	Y    float64
	Text string
}

// bar is a rectangle. Its look is that of a legend.
type bar struct {
	X, Y, Width, Height float64
	Look, Title         string
}

// line is a path through the slots that have a value. A gap ends it, and a value between two gaps is a dot.
type line struct {
	Look, Path string
	Dots       []dot
}

type dot struct{ X, Y float64 }

// legend says what a look means.
type legend struct{ Look, Text string }

const (
	chartWidth, chartHeight = 400, 170
	chartLeft, chartRight   = 46, 398
	chartTop, chartBottom   = 8, 150
)

// chartsOf draws a series. id tells its pictures from others of the page.
func chartsOf(id string, series document) *charts {
	slots := list(series["slots"])
	sum := object(series["sum"])
	c := &charts{Of: text(series["type"]), Window: text(series["window"]), Slot: duration(series["slot_ms"]), Sum: sum, Nothing: object(sum["outcomes"]) == nil && sum["delay_ms"] == nil && sum["ran_ms"] == nil}
	for _, s := range slices.Backward(slots) {
		if slot := object(s); object(slot["outcomes"]) != nil || slot["delay_ms"] != nil || slot["ran_ms"] != nil {
			c.Rows = append(c.Rows, slot)
		}
	}
	c.Charts = []*chart{
		throughput(id+"-ended", c, slots),
		durations(id+"-delay", "Waiting time", "From due to started", "delay_ms", c, slots),
		durations(id+"-ran", "Duration", "How long handlers ran", "ran_ms", c, slots),
	}
	return c
}

// newChart is a picture without anything in it.
func newChart(id, title string, c *charts) *chart {
	out := &chart{ID: id, Title: title, Width: chartWidth, Height: chartHeight, Left: chartLeft, Bottom: chartBottom}
	for i, ago := range map[string][]string{"hour": {"60 min ago", "30 min", "now"}, "day": {"24 h ago", "12 h", "now"}, "week": {"7 d ago", "3.5 d", "now"}}[c.Window] {
		out.Ticks = append(out.Ticks, mark{X: chartLeft + float64(i)*(chartRight-chartLeft)/2, Text: ago})
	}
	return out
}

// column is where the slot of that number is.
func column(i, slots int) (x, width float64) {
	width = float64(chartRight-chartLeft) / float64(max(slots, 1))
	return chartLeft + float64(i)*width, width
}

// when says which time the slot of that number is of. Minutes are over when they are shown; the last of longer ones
// is not.
func when(i int, slots []any, c *charts) string {
	at, _ := instant(object(slots[i])["at"])
	out := at.UTC().Format("Mon 15:04") + " UTC, " + c.Slot
	if i == len(slots)-1 && c.Window != windows[0].Name {
		out += " so far"
	}
	return out
}

// stacks are what the bars of the throughput show, from the ground up.
var stacks = []struct{ field, look, words string }{
	{"succeeded", "good", "succeeded"}, {"failed", "bad", "failed"}, {"other", "off", "released or cancelled"},
}

// throughput draws how many executions ended.
func throughput(id string, c *charts, slots []any) *chart {
	out := newChart(id, "Throughput", c)
	most := int64(0)
	for _, s := range slots {
		n := int64(0)
		for _, stack := range stacks {
			n += integer(object(s)[stack.field])
		}
		most = max(most, n)
	}
	top := roundUp(most)
	for _, n := range slices.Compact([]int64{0, top / 2, top}) {
		out.Grid = append(out.Grid, level{height(float64(n), float64(top)), number(n)})
	}
	for i, s := range slots {
		slot := object(s)
		x, width := column(i, len(slots))
		words, y := when(i, slots, c)+":", float64(chartBottom)
		for _, stack := range stacks {
			n := integer(slot[stack.field])
			words += " " + number(n) + " " + stack.words + ","
			if n > 0 {
				h := max(chartBottom-height(float64(n), float64(top)), 2) // a single one among thousands can be seen
				y -= h
				out.Bars = append(out.Bars, bar{X: round(x + width*.08), Y: round(max(y, 0)), Width: round(width * .84), Height: round(h), Look: stack.look})
			}
		}
		out.Slots = append(out.Slots, bar{X: round(x), Width: round(width), Height: chartBottom, Title: strings.TrimSuffix(words, ",")})
	}
	total := int64(0)
	for _, stack := range stacks {
		n := integer(c.Sum[stack.field])
		total += n
		out.Legend = append(out.Legend, legend{stack.look, number(n) + " " + stack.words})
	}
	out.Words = fmt.Sprintf("Executions that ended in the last %s, in bars of %s: %s in all, %s of them failed. At most %s ended in one bar.", c.Window, c.Slot, number(total), number(c.Sum["failed"]), number(most))
	return out
}

// quantiles are what the lines of durations show.
var quantiles = []struct{ field, look, words string }{{"p50", "half", "median"}, {"p95", "most", "95th percentile"}}

// durations draws a median and a 95th percentile, on a scale on which each line up is a few times as long.
func durations(id, title, what, field string, c *charts, slots []any) *chart {
	out := newChart(id, title, c)
	least, most := int64(math.MaxInt64), int64(0)
	for _, s := range slots {
		if d := object(object(s)[field]); d != nil {
			least, most = min(least, integer(d["p50"])), max(most, integer(d["p95"]))
		}
	}
	scale := scaleOf(least, most)
	for _, ms := range scale {
		out.Grid = append(out.Grid, level{scaled(ms, scale), strings.Replace(duration(ms), ".0 ", " ", 1)})
	}
	lines := make([]line, len(quantiles))
	paths := make([][]dot, len(quantiles))
	end := func() {
		for i := range lines {
			lines[i].add(paths[i])
			paths[i] = nil
		}
	}
	for i, s := range slots {
		x, width := column(i, len(slots))
		d, words := object(object(s)[field]), when(i, slots, c)+": "
		if d == nil {
			end()
			words += "none"
		} else {
			for k, q := range quantiles {
				paths[k] = append(paths[k], dot{round(x + width/2), scaled(integer(d[q.field]), scale)})
			}
			words += fmt.Sprintf("%s, median %s, 95th percentile %s", number(d["count"]), duration(d["p50"]), duration(d["p95"]))
		}
		out.Slots = append(out.Slots, bar{X: round(x), Width: round(width), Height: chartBottom, Title: words})
	}
	end()
	sum := object(c.Sum[field])
	for i, q := range quantiles {
		lines[i].Look = q.look
		text := q.words
		if sum != nil {
			text += " " + duration(sum[q.field])
		}
		out.Legend = append(out.Legend, legend{q.look, text})
	}
	out.Lines = lines
	out.Words = fmt.Sprintf("%s, in the last %s by %s. There was none.", what, c.Window, c.Slot)
	if sum != nil {
		out.Words = fmt.Sprintf("%s, in the last %s by %s. Of %s, the median is %s, the 95th percentile %s and the longest %s.",
			what, c.Window, c.Slot, number(sum["count"]), duration(sum["p50"]), duration(sum["p95"]), duration(sum["max"]))
	}
	return out
}

// add adds what lies between two gaps.
func (l *line) add(dots []dot) {
	if len(dots) == 1 {
		l.Dots = append(l.Dots, dots[0])
		return
	}
	for i, d := range dots {
		command := "L"
		if i == 0 {
			command = "M"
		}
		l.Path += command + decimal(d.X) + " " + decimal(d.Y)
	}
}

// height is where a number lies on a scale from 0 to top.
func height(n, top float64) float64 {
	return round(chartBottom - n/top*(chartBottom-chartTop))
}

// roundUp is the least number of 1, 2, 4, 6, 10, 20, 40 … that is no less.
func roundUp(n int64) int64 {
	for power := int64(1); ; power *= 10 {
		for _, step := range []int64{1, 2, 4, 6} {
			if n <= step*power {
				return step * power
			}
		}
	}
}

// lengths are the durations that a scale may have, in milliseconds.
var lengths = []int64{1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 7_200_000}

// scaleOf is the part of lengths that has all between least and most, and two of them at least.
func scaleOf(least, most int64) []int64 {
	from, to := 0, len(lengths)-1
	for from < len(lengths)-2 && lengths[from+1] <= least {
		from++
	}
	for to > from+1 && lengths[to-1] >= most {
		to--
	}
	return lengths[from : to+1]
}

// scaled is where a duration lies on a scale of powers.
func scaled(ms int64, scale []int64) float64 {
	low, high := math.Log(float64(scale[0])), math.Log(float64(scale[len(scale)-1]))
	at := math.Log(float64(min(max(ms, scale[0]), scale[len(scale)-1])))
	return height(at-low, high-low)
}

func round(f float64) float64 { return math.Round(f*10) / 10 }

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
