package metrics

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
)

// told is what the fleet's metrics say of a census, a line for each time series, sorted.
func told(t *testing.T, f fleet) string {
	t.Helper()
	out := make(chan prometheus.Metric, 1000)
	collect(ofFleet, f, out)
	close(out)
	var lines []string
	for m := range out {
		var series dto.Metric
		require.NoError(t, m.Write(&series))
		name := strings.TrimPrefix(strings.Split(m.Desc().String(), `"`)[1], namespace)
		for _, l := range series.GetLabel() {
			name += " " + l.GetValue()
		}
		lines = append(lines, name+" = "+strings.TrimSuffix(series.GetGauge().String(), " "))
	}
	slices.Sort(lines)
	return strings.ReplaceAll(strings.Join(lines, "\n"), "value:", "")
}

// Each number of a census is told by one metric.
func TestEachNumberOfACensusIsTold(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	before := func(seconds int) time.Time { return at.Add(-time.Duration(seconds) * time.Second) }
	n := func(n int64, seconds int) store.Backlog { return store.Backlog{N: n, Oldest: before(seconds)} }
	c := store.Census{
		At: at, Took: 1500 * time.Millisecond, Complete: true,
		Types: []store.TypeCensus{
			{Type: "a", Due: n(11, 12), Delayed: 13, Running: 14, Permits: 15, MaxRunning: 16},
			{Type: "other", Due: store.Backlog{}},
		},
		Lapsed: n(20, 0), Outbox: n(21, 22), Archive: n(23, 24), Rules: n(25, 26),
		Planned:      []store.Planned{{Kind: "flow", Backlog: n(27, 28)}},
		FlowsRunning: n(30, 0), FlowsPending: n(31, 0), NodesPending: n(32, 0), PlansRunning: n(33, 0), PlansError: n(34, 0),
		Scenes:  []store.SceneCensus{{Scene: "bus", Open: 50, Suspended: 51, Closed: 52, Backlog: 53}, {Scene: "other", Open: 54}},
		Workers: []store.WorkerCensus{{Stream: "polling", N: 40, Slots: 41, Running: 42}, {Stream: "watching", N: 43, Slots: 44, Running: 45}},
		Seats:   46, PausedAll: true, PausedTypes: 47,
	}
	require.Equal(t, strings.TrimSpace(`
archive_backlog = 23
archive_delay_seconds = 34
census_complete = 1
census_seconds = 1.5
census_timestamp_seconds = 1e+06
flow_nodes_pending = 32
flow_stream_backlog bus = 53
flow_stream_backlog other = 0
flow_streams bus closed = 52
flow_streams bus open = 50
flow_streams bus suspended = 51
flow_streams other closed = 0
flow_streams other open = 54
flow_streams other suspended = 0
flows PENDING = 31
flows RUNNING = 30
lapsed_leases = 20
oldest_due_age_seconds a = 22
oldest_due_age_seconds other = 0
outbox_entries = 21
outbox_oldest_age_seconds = 32
paused = 1
paused_types = 47
permits_limit a = 16
permits_taken a = 15
planned flow = 27
planned_oldest_age_seconds flow = 38
plans ERROR = 34
plans RUNNING = 33
rules_online = 25
stream_seats_taken = 46
tasks delayed a = 13
tasks delayed other = 0
tasks due a = 11
tasks due other = 0
tasks executing a = 14
tasks executing other = 0
tick_delay_seconds = 36
worker_running = 87
worker_slots = 85
workers polling = 40
workers watching = 43
`), told(t, fleet{c, at.Add(10 * time.Second)}), "ages are those at the scrape, ten seconds later")

	c.Rules.Oldest, c.Complete, c.PausedAll = at.Add(5*time.Second), false, false
	later := told(t, fleet{c, at.Add(time.Minute)})
	require.Contains(t, later, "tick_delay_seconds = 0", "its time came after the count, and it may have been decided")
	require.Contains(t, later, "census_complete = 0")
	require.Contains(t, later, "paused = 0")
}
