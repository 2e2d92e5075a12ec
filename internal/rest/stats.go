package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/stats"
)

func (s *API) addStats() {
	add(s, rule{access.Viewer, tenantOfFilter}, op("get-stats", http.MethodGet, "/stats", "Summarize what waits and what has ended lately",
		"Of the whole fleet, the queue of each type, as one process counts it for all. Of a tenant, its tasks by type and status. Of both, the tasks that ended within the window: "+
			"how many, how long they took and how late they began. All of it is bounded: `complete` says whether something was left out. "+
			"Tasks that are not kept for the retention of their type, but for one of their own, are not among those that ended."), func(ctx context.Context, in *struct {
		Tenant   string `query:"tenant" doc:"tenant; - for tasks without one"`
		Type     string `query:"type"`
		WindowMS int64  `query:"window_ms" minimum:"1000" maximum:"86400000" default:"3600000" doc:"how far back tasks are looked at that have ended"`
	}) (*answer[stats.Stats], error) {
		tenant, err := tenantIn(ctx, "tenant", in.Tenant)
		if err != nil {
			return nil, err
		}
		return answered(stats.Of(ctx, s.store, s.census, stats.Query{Tenant: tenant, Type: in.Type, Window: time.Duration(in.WindowMS) * time.Millisecond}))
	})
}
