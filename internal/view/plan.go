package view

import (
	"time"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/stepplan"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// PlanPreview are the next steps of a plan, as JSON.
type PlanPreview struct {
	PlanID string     `json:"plan_id"`
	Tenant string     `json:"tenant,omitempty"`
	Times  []StepTime `json:"times"`

	ID string `json:"-"` // tenant/plan_id
}

// StepTime is one entry of a preview as JSON.
type StepTime struct {
	Step    int64  `json:"step,omitempty"`
	UTC     string `json:"utc,omitempty"`
	Local   string `json:"local,omitempty"`
	Skipped int64  `json:"skipped,omitempty"` // so many steps from this one on
	Over    bool   `json:"over,omitempty"`
	Why     string `json:"why,omitempty"`

	At time.Time `json:"-"` // as the clocks of the plan's zone show it
}

// PlanPreviewOf previews the next n steps of a plan, those before from left out.
func PlanPreviewOf(doc *repeat.Plan, now, from time.Time, n int) (PlanPreview, error) {
	entries, err := stepplan.Preview(doc, now, from, n)
	if err != nil {
		return PlanPreview{}, err
	}
	zone, err := calendar.Zone(doc.Timezone)
	if err != nil {
		return PlanPreview{}, err
	}
	out := PlanPreview{PlanID: doc.PlanID, Tenant: doc.Tenant, Times: []StepTime{}, ID: doc.ID}
	for _, e := range entries {
		t := StepTime{Step: e.Step, UTC: Time(e.At), Skipped: e.Skipped, Over: e.Over, Why: e.Why, At: e.At.In(zone)}
		if !e.At.IsZero() {
			t.Local = t.At.Format(time.RFC3339)
		}
		out.Times = append(out.Times, t)
	}
	return out, nil
}
