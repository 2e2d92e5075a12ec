package rest

import (
	"context"
	"net/http"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/stats"
)

func (s *API) addSeries() {
	need := rule{access.Viewer, everyTenant}
	add(s, need, op("get-series", http.MethodGet, "/series", "What has happened in an hour, a day or a week, slot by slot",
		"For charts: how executions ended, how long they took and how late they began, of all types together or of one. Slots last a minute, 15 minutes or two hours. "+
			"Each process records what it did once a minute. Durations are estimates from a histogram. "+
			"A crash loses the last minute of its process. A type that no process knows has empty slots."), func(ctx context.Context, in *struct {
		Window stats.Span `query:"window" enum:"hour,day,week" default:"hour"`
		Type   string     `query:"type" doc:"default: all types together"`
	}) (*answer[stats.Series], error) {
		return answered(stats.SeriesOf(ctx, s.store, in.Window, in.Type))
	})
	add(s, need, op("get-series-of-types", http.MethodGet, "/series/types", "How many executions of each type have ended, slot by slot",
		"The throughput of all types at once. `get-series` has the durations and delays of one type."), func(ctx context.Context, in *struct {
		Window stats.Span `query:"window" enum:"hour,day,week" default:"hour"`
	}) (*answer[stats.SeriesOfTypes], error) {
		return answered(stats.SeriesOfAll(ctx, s.store, in.Window))
	})
}
