package flowdraw

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/flow/graph"
)

func TestAGanttChartHasTheTimesOfEachNode(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(1_800_000_000+int64(seconds), 0) }
	c := Chart{Title: "order-7 · PENDING", Subtitle: "4 nodes", From: at(0), To: at(100), Rows: []Row{
		{ID: "pay", Status: graph.NodeSuccess, Since: at(50), Ready: at(0), Start: at(25), End: at(50), Took: "25s"},
		{ID: "ship", Status: graph.NodePending, Since: at(75), Ready: at(50), Start: at(50), Took: "50s", Reason: "no stock <b>"},
		{ID: "mail", Status: graph.NodeSkipped, Since: at(80), End: at(80)},
		{ID: "end", Status: graph.NodeWait, Since: at(0)},
	}}
	drawn := Gantt(c)
	texts := read(t, drawn)
	require.Subset(t, texts, []string{"order-7 · PENDING", "1 WAIT", "1 SUCCESS", "+0s", "+15s", "+1m30s", "pay", "25s", "ship", "50s", "mail", "end"})
	// The edges are at 240 and 1000.
	require.Contains(t, drawn, `data-node="pay" transform="translate(24 122.0)"><title>pay: SUCCESS, ready 2027-01-15 08:00:00.000, started 2027-01-15 08:00:25.000, ended 2027-01-15 08:00:50.000, 25s</title>`)
	require.Contains(t, drawn, `<path class="waits" d="M240.0 10.0H430.0"`)
	require.Contains(t, drawn, `<rect class="span" x="430.0" y="4.0" width="190.0"`)
	require.Contains(t, drawn, `<rect class="ran" x="620.0" y="4.0" width="190.0"`)
	require.Contains(t, drawn, `<rect class="span" x="810.0" y="4.0" width="190.0"`)
	require.Equal(t, 4, strings.Count(drawn, `class="node `))
}

func TestAGanttChartOfAThousandNodesIsReadable(t *testing.T) {
	c := Chart{Title: "f", From: time.Unix(0, 0), To: time.Unix(3600, 0)}
	for i := range 1000 {
		start := c.From.Add(time.Duration(i) * 3 * time.Second)
		c.Rows = append(c.Rows, Row{ID: fmt.Sprintf("%03d-%s", i, strings.Repeat("x", 60)), Status: graph.NodeSuccess, Since: start, Ready: start, Start: start, End: start.Add(time.Second), Took: "1s"})
	}
	drawn := Gantt(c)
	require.Less(t, len(drawn), 1<<20)
	texts := read(t, drawn)
	n := map[string]int{}
	for _, text := range texts {
		n[text]++
	}
	require.Equal(t, 40, n["+0s"], "the axis is never more than 25 rows away")
	require.Equal(t, 1, n["999-xxxxxxxxxxxxxxxx…xxxxxxxxxxx"])
}

func TestTicksReadEasilyWhateverTheTime(t *testing.T) {
	for whole, want := range map[time.Duration][]string{
		0:                     {"+0s", "+1ms"},
		70 * time.Millisecond: {"+0s", "+10ms", "+70ms"},
		90 * time.Second:      {"+0s", "+15s", "+1m"},
		5 * time.Hour:         {"+0s", "+1h", "+5h"},
		365 * day:             {"+0s", "+56d"},
	} {
		texts := read(t, Gantt(Chart{From: time.Unix(0, 0), To: time.Unix(0, 0).Add(whole), Rows: []Row{{ID: "a"}}}))
		require.Subset(t, texts, want, whole)
		require.Less(t, len(texts), 14, whole)
	}
}
