package rulespec

import (
	"encoding/json"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/periodic/schedule"
)

// Of returns the definition of a stored rule, with its secrets as they are stored.
func Of(r *schedule.Rule) schedule.Spec {
	s := schedule.Spec{
		Name: r.Name, Tenant: r.Tenant, Creator: r.Creator, Category: r.Category, Description: r.Description,
		Cron: r.Cron, Timezone: r.Timezone, StartAt: r.StartAt, EndAt: r.EndAt, MaxRuns: r.MaxRuns, Jitter: r.Jitter,
		Type: r.Task.Type, Priority: r.Task.Priority, Options: r.Task.Options,
		Overlap: r.Overlap, OnFailure: r.OnFailure, MaxConcurrency: r.MaxConcurrency, Concurrency: r.Concurrency,
		QueueLimit: r.QueueLimit, CatchUp: r.CatchUp, Log: r.Log, RunRetention: r.RunRetention,
	}
	if r.DST != nil {
		s.DST = *r.DST
	}
	s.Ext, s.Args = plain(r.Ext), plain(r.Task.Args)
	if target := TargetOf(r.Task); target != nil {
		s.Type, s.Args, s.HTTP = "", nil, target
	}
	return s
}

// plain is a stored value as JSON; nil for none.
func plain(v bson.RawValue) any {
	if v.Type == 0 {
		return nil
	}
	return json.RawMessage(codec.ValueJSON(v))
}
