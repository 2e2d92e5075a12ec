package form

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

const aPlan = `plan_id: monthly
tenant: shop
request_id: r-1
station: report
caller: ann
description: the month's report
plan_type: month
plan_value: -1
plan_repet: 12
no_keep: true
plan_time: "2026-12-01T08:30:00Z"
timezone: Europe/Berlin
messages:
  - to: ann
    parts:
      - 1
      - 2.5
  - sales
  - null
plan_exec_timeout: 1m30s
priority: 0
options:
  retry:
    max_errors: 3
  ping_interval: 20s
callback:
  success:
    url: https://example.org/
`

func TestAPlanIsReadAndWritten(t *testing.T) {
	docs, err := Read[Plan]("p.yaml", []byte(aPlan), "a plan", "plans")
	require.NoError(t, err)
	require.Len(t, docs, 1)
	s, err := docs[0].Form.Spec()
	require.NoError(t, err)
	zero, three := 0, 3
	raw := func(s string) any { return json.RawMessage(s) }
	require.Equal(t, repeat.Spec{
		PlanID: "monthly", Tenant: "shop", RequestID: "r-1", Station: "report", Caller: "ann", Description: "the month's report",
		PlanType: repeat.Month, PlanValue: -1, PlanRepet: 12, NoKeep: true, Timezone: "Europe/Berlin",
		PlanTime: time.Date(2026, 12, 1, 8, 30, 0, 0, time.UTC),
		Messages: []any{raw(`{"to":"ann","parts":[1,2.5]}`), raw(`"sales"`), raw("null")},

		PlanExecTimeout: 90 * time.Second, Priority: &zero,
		Options:  model.Options{PingInterval: 20 * time.Second, Retry: &model.Retry{MaxErrors: &three}},
		Callback: &model.Callback{Success: &model.CallbackTarget{URL: "https://example.org/"}},
	}, s)
	written, err := YAML(PlanOf(&s))
	require.NoError(t, err)
	require.Equal(t, aPlan, written)

	data, err := json.Marshal(PlanOf(&s))
	require.NoError(t, err)
	doc, err := ReadJSON[Plan]("p.json", 1, data, "a plan")
	require.NoError(t, err)
	again, err := doc.Form.Spec()
	require.NoError(t, err)
	require.Equal(t, s, again, "one form for files and for JSON")
}

func TestTimesAndDurationsOfPlans(t *testing.T) {
	for content, want := range map[string]repeat.Spec{
		"{plan_type: time, plan_time: 2026-07-01 09:00, timezone: America/New_York}": {PlanType: repeat.Time, PlanTime: time.Date(2026, 7, 1, 13, 0, 0, 0, time.UTC), Timezone: "America/New_York"},
		"{plan_type: week, plan_time: 09:00, timezone: America/New_York}":            {PlanType: repeat.Week, PlanTime: time.Date(2000, 1, 1, 14, 0, 0, 0, time.UTC), Timezone: "America/New_York"},
		"{plan_type: month, plan_time: \"23:59:59\"}":                                {PlanType: repeat.Month, PlanTime: time.Date(2000, 1, 1, 23, 59, 59, 0, time.UTC)},
		"{plan_exec_timeout: 90s}":                                                   {PlanExecTimeout: 90 * time.Second},
		"{plan_exec_timeout_ms: 1500}":                                               {PlanExecTimeout: 1500 * time.Millisecond},
		"{plan_id: 17, messages: [null, 1]}":                                         {PlanID: "17", Messages: []any{json.RawMessage("null"), json.RawMessage("1")}},
	} {
		docs, err := Read[Plan]("p.yaml", []byte(content), "a plan", "plans")
		require.NoError(t, err, content)
		s, err := docs[0].Form.Spec()
		require.NoError(t, err, content)
		require.Equal(t, want, s, content)
	}
}

func TestMistakesOfAPlanHaveTheirPlaces(t *testing.T) {
	for content, want := range map[string][]string{
		"station: report\ntype: day\nplan_value: one\nmessages: {a: 1}\nplan_exec_timeout: soon\nretry: 3\n": {
			"p.yaml:2:1: type is not known; use station for the type of the tasks, plan_type for the repetition",
			`p.yaml:3:13: plan_value is "one"; want a whole number`,
			"p.yaml:4:12: messages has fields; want a list",
			`p.yaml:5:20: plan_exec_timeout is "soon"; want a duration such as 500ms, 30s, 5m, 2h or 7d`,
			"p.yaml:6:1: retry is not known; use options: {retry: ...}",
		},
		"every: 5m\n": {"p.yaml:1:1: every is not known in a plan; want plan_id, tenant, request_id, station, caller, description, plan_type, plan_value, plan_repet, no_keep, plan_time, timezone, ..."},
	} {
		_, err := Read[Plan]("p.yaml", []byte(content), "a plan", "plans")
		require.ErrorIs(t, err, model.ErrInvalid)
		require.Equal(t, want, said(err), content)
	}
}

func TestWhatIsWrongWithTimesOfAPlanIsLocated(t *testing.T) {
	docs, err := Read[Plan]("p.yaml", []byte("plan_type: day\nplan_time: 09:00\noptions:\n  expires_at: soon\n"), "a plan", "plans")
	require.NoError(t, err)
	_, err = docs[0].Form.Spec()
	err = docs[0].Locate(err)
	require.ErrorContains(t, err, `p.yaml:2:12: plan_time is "09:00"; want a time such as`)
	require.ErrorContains(t, err, `p.yaml:4:15: options.expires_at is "soon"; want a time such as`)
}

func TestAPlanIsWrittenWithoutItsSecrets(t *testing.T) {
	c := &model.Callback{
		Success:  &model.CallbackTarget{URL: "https://example.org/"},
		Security: &model.CallbackSecurity{Type: model.SecurityAKSK, Keys: []callback.Key{{AccessKey: "ak", Secret: "sesame"}}},
	}
	written, err := YAML(PlanOf(&repeat.Spec{Callback: c, Options: model.Options{Callback: c}}))
	require.NoError(t, err)
	require.NotContains(t, written, "sesame")
	require.Contains(t, written, "ak: ak")
	require.NotContains(t, written, "plan_time")
}
