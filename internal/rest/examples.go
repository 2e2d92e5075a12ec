package rest

import (
	"encoding/json"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// handleExample is a handle as fetch gives it, of an execution that never was.
const handleExample = "LS9tYWlsL29yZGVyLTE3QDE3OTU0ODQ0NjA0ODBANjZkMzI4N2EwZDU2ZGU3OGYwOTNhN2ZmY2E4ZjkyNWU"

// examples are bodies as people may send them, by the operation, or by the form that several operations take.
var examples = map[string]string{
	"TaskInput":        `{"type": "http", "key": "hello", "args": {"url": "https://example.org"}, "options": {"timeout": "30s", "retry": {"max_errors": 3}}}`,
	"update-task":      `{"priority": 9}`,
	"BatchInput":       `{"tasks": [{"type": "mail", "key": "a"}, {"type": "mail", "key": "b", "in": "5m"}]}`,
	"RemarkedInput":    `{"remark": "not needed"}`,
	"RetriedInput":     `{"remark": "the server is back"}`,
	"JobInput":         `{"action": "retry", "filter": {"type": "mail", "status": ["Failure"]}, "remark": "the server is back", "dry_run": true}`,
	"TypeInput":        `{"name": "E-mails", "max_running": 10, "timeout": "1m", "retry": {"max_errors": 5}}`,
	"RuleInput":        `{"name": "nightly", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "type": "report", "args": {"kind": "sales"}}`,
	"put-periodic":     `{"cron": "30 2 * * *", "timezone": "Europe/Berlin", "type": "report", "args": {"kind": "sales"}}`,
	"BackfillingInput": `{"from": "2026-01-01T00:00:00Z", "to": "2026-01-08T00:00:00Z"}`,
	"NotedInput":       `{"note": "the receiver is being moved"}`,
	"DrainingInput":    `{"stop": true, "note": "the machine gets a new kernel"}`,
	"TriggeringInput":  `{"request": "by-hand-1"}`,
	"PlanInput":        `{"plan_id": "reminders", "station": "mail", "plan_type": "time", "plan_time": "2100-01-31T09:00:00Z", "messages": [{"text": "first"}, {"text": "second"}]}`,
	"PlanBatchInput":   `{"plans": [{"plan_id": "reminders", "station": "mail", "plan_type": "none", "messages": [{"text": "first"}]}]}`,
	"FlowInput":        `{"key": "order-17", "nodes": [{"id": "pay", "type": "payment"}, {"id": "ship", "type": "shipping", "after": ["pay"]}]}`,
	"AnsweringInput":   `{"values": {"approved": true}, "remark": "looks good"}`,
	"ResolvingInput":   `{"status": "SUCCESS", "remark": "done by hand"}`,
	"CalledInput":      `{"callback": {"error": {"url": "https://example.org/alarm"}}, "ext": {"line": 7}}`,
	"AppendingInput":   `{"nodes": [{"type": "mail", "args": {"to": "ann"}}]}`,
	"FetchingInput":    `{"worker_id": "w1", "types": ["mail"], "max": 10, "wait": "2s"}`,
	"PingsInput":       `{"handles": ["` + handleExample + `"]}`,
	"CompletingInput":  `{"handle": "` + handleExample + `", "result": {"sent": true}}`,
	"FailingInput":     `{"handle": "` + handleExample + `", "reason": "the server is away", "retry_after": "1m"}`,
	"EndsInput":        `{"complete": [{"handle": "` + handleExample + `", "result": {"sent": true}}], "fail": [{"handle": "` + handleExample + `", "reason": "the server is away"}]}`,
	"KeepingInput":     `{"handle": "` + handleExample + `", "percent": 40, "message": "2 of 5 pages", "checkpoint": {"page": 2}}`,
	"ParkingInput":     `{"handle": "` + handleExample + `", "for": "24h"}`,
	"Completion":       `{"result": {"sent": 12}}`,
	"MintingInput":     `{"name": "grafana", "role": "viewer", "expires_in": "90d"}`,
	"ReturningInput":   `{"handle": "` + handleExample + `", "reason": "the worker stops"}`,
}

// addExamples puts the examples into the description.
func (s *API) addExamples() {
	for _, item := range s.api.OpenAPI().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op == nil || op.RequestBody == nil {
				continue
			}
			media := op.RequestBody.Content["application/json"]
			text := examples[op.OperationID]
			if text == "" && media != nil && media.Schema != nil {
				text = examples[strings.TrimPrefix(media.Schema.Ref, "#/components/schemas/")]
			}
			if text != "" {
				media.Example = json.RawMessage(text)
			}
		}
	}
}
