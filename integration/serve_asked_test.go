package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// asking is a request of a change, and what it must leave, however often it is repeated.
type asking struct {
	method, path, body string            // method "" = POST
	match              string            // If-Match; "new" = If-None-Match: *
	before             []asking          // what was asked for before it
	makes              map[string]int64  // how many documents in which collections
	leaves             map[string]bson.D // one document that the change leaves in each of these collections
	keyed              bool              // a repetition gets the first answer
	refused            int               // else: the status of a repetition whose change was made; 0 = it succeeds
}

// Things that there are before a change.
var (
	aTask = asking{path: "/tasks", body: `{"type": "mail", "key": "k"}`}
	aRule = asking{path: "/periodics", body: `{"name": "nightly", "cron": "@hourly", "type": "mail", "max_concurrency": 9}`}
	aType = asking{method: "PUT", path: "/types/mail", match: "new", body: `{"max_running": 2}`}
	aFlow = asking{path: "/flows", body: `{"key": "f", "nodes": [{"id": "a", "type": "mail"}, {"id": "b", "type": "mail", "after": ["a"]}]}`}
	// Its first node asks a person.
	aQuestion = asking{path: "/flows", body: `{"key": "f", "nodes": [{"id": "sure", "ask": "Sure?"}, {"id": "b", "type": "mail", "after": ["sure"]}]}`}
	aStream   = asking{path: "/streams/orders/1/nodes", body: `{"nodes": [{"type": "mail"}, {"type": "mail"}]}`}
	aPlan     = asking{path: "/plans", body: `{"plan_id": "p", "station": "report", "plan_type": "time", "plan_time": "2100-01-01T00:00:00Z", "messages": [1]}`}
	aRun      = asking{path: "/periodics/-/nightly/trigger"}
	aFetch    = asking{path: "/pull/fetch", body: `{"types": ["mail"], "worker_id": "w", "lease": "10m"}`}
	held      = []asking{aTask, aFetch}
)

// creations are what an Idempotency-Key is for.
var creations = map[string]asking{
	"a task": {path: "/tasks", body: `{"type": "mail", "args": {"n": 1}}`, makes: map[string]int64{"tasks": 1}},
	"tasks":  {path: "/tasks/batch", body: `{"tasks": [{"type": "mail"}, {"type": "mail", "in": "1h"}, {"type": "sms"}]}`, makes: map[string]int64{"tasks": 3}},
	"a flow": {path: "/flows", body: `{"nodes": [{"id": "a", "type": "mail"}, {"id": "b", "type": "mail", "after": ["a"]}]}`, makes: map[string]int64{"flows": 1}},
	"a plan": {path: "/plans", body: `{"station": "report", "plan_type": "time", "plan_time": "2100-01-01T00:00:00Z", "messages": [1]}`, makes: map[string]int64{"plans": 1}},
	"plans": {
		path: "/plans/batch", makes: map[string]int64{"plans": 2},
		body: `{"plans": [{"station": "report", "plan_type": "none", "messages": [1]}, {"station": "mail", "plan_type": "none", "messages": [2]}]}`,
	},
	"nodes":           {path: "/streams/orders/1/nodes", body: `{"nodes": [{"type": "mail"}, {"type": "mail"}]}`, makes: map[string]int64{"flow_nodes": 2}},
	"a job":           {path: "/bulk", body: `{"action": "cancel", "filter": {"type": "mail"}}`, makes: map[string]int64{"tasks": 1}},
	"a rule":          {path: "/periodics", body: `{"name": "nightly", "cron": "@yearly", "type": "mail", "enabled": true}`, makes: map[string]int64{"periodic_rules": 1}, leaves: map[string]bson.D{"periodic_rules": {{Key: "status", Value: "online"}}}},
	"a run":           {before: []asking{aRule}, path: "/periodics/-/nightly/trigger", leaves: runsOf(1)},
	"past runs":       {before: []asking{aRule}, path: "/periodics/-/nightly/backfill", body: `{"from": "-4h", "to": "-1h"}`, leaves: runsOf(3)},
	"a type":          {method: "PUT", path: "/types/mail", match: "new", body: `{"max_running": 2}`, leaves: map[string]bson.D{"task_types": {{Key: "version", Value: 1}}}},
	"a type's change": {before: []asking{aType}, method: "PUT", path: "/types/mail", match: `"1"`, body: `{"max_running": 3}`, leaves: map[string]bson.D{"task_types": {{Key: "max_running", Value: 3}, {Key: "version", Value: 2}}}},
}

// runsOf is the rule while so many of its runs have not ended.
func runsOf(n int) map[string]bson.D {
	return map[string]bson.D{"periodic_rules": {{Key: "active", Value: bson.D{{Key: "$size", Value: n}}}}}
}

// executions is the task with so many of them.
func executions(n int, status string) bson.D {
	return bson.D{{Key: "status", Value: status}, {Key: "worker_states", Value: bson.D{{Key: "$size", Value: n}}}}
}

// changes have no key.
var changes = map[string]asking{
	"an update": {before: []asking{aTask}, method: "PATCH", path: "/tasks/-/mail/k", match: "*", body: `{"priority": 7}`, leaves: map[string]bson.D{"tasks": {{Key: "priority", Value: 7}}}},
	"a cancel":  {before: []asking{aTask}, path: "/tasks/-/mail/k/cancel", refused: http.StatusConflict, leaves: map[string]bson.D{"tasks": {{Key: "status", Value: "Cancelled"}}}},
	"a retry": {
		before: []asking{aTask, {path: "/tasks/-/mail/k/cancel"}}, path: "/tasks/-/mail/k/retry", refused: http.StatusConflict,
		makes: map[string]int64{"tasks": 1, "task_history": 1}, leaves: map[string]bson.D{"tasks": {{Key: "_id", Value: "-/mail/k"}, {Key: "status", Value: "New"}}},
	},
	"a rule's change": {
		before: []asking{aRule}, method: "PUT", path: "/periodics/-/nightly", match: `"1"`, body: `{"cron": "@hourly", "type": "mail", "category": "reports"}`, refused: http.StatusPreconditionFailed,
		leaves: map[string]bson.D{"periodic_rules": {{Key: "category", Value: "reports"}, {Key: "version", Value: 2}}},
	},
	"a rule's end": {
		before: []asking{aRule}, method: "DELETE", path: "/periodics/-/nightly", match: "*", refused: http.StatusNotFound,
		leaves: map[string]bson.D{"periodic_rules": {{Key: "deleted_at", Value: bson.D{{Key: "$exists", Value: true}}}}},
	},
	"a type's end": {before: []asking{aType}, method: "DELETE", path: "/types/mail", match: "*", refused: http.StatusNotFound, makes: map[string]int64{"task_types": 0}},
	"a flow's cancel": {
		before: []asking{aFlow}, path: "/flows/-/f/cancel", makes: map[string]int64{"flows": 1},
		leaves: map[string]bson.D{"tasks": {{Key: "origin.node", Value: "b"}, {Key: "status", Value: "Cancelled"}}},
	},
	"an answer": {
		before: []asking{aQuestion}, path: "/flows/-/f/nodes/sure/answer", body: `{"values": {}}`, refused: http.StatusConflict,
		leaves: map[string]bson.D{"tasks": {{Key: "origin.node", Value: "b"}, {Key: "status", Value: "New"}}},
	},
	"a node's resolution": {
		before: []asking{aQuestion}, path: "/flows/-/f/nodes/sure/resolve", body: `{"status": "SUCCESS"}`, refused: http.StatusConflict,
		leaves: map[string]bson.D{"tasks": {{Key: "origin.node", Value: "b"}, {Key: "status", Value: "New"}}},
	},
	"a stream's end": {
		before: []asking{aStream}, path: "/streams/orders/1/cancel", leaves: map[string]bson.D{"flows": {{Key: "closed", Value: true}, {Key: "status", Value: "FINISH"}}},
	},
	"a stream's opening": {
		before: []asking{aStream, {path: "/streams/orders/1/cancel"}}, path: "/streams/orders/1/open",
		makes: map[string]int64{"flow_nodes": 2}, leaves: map[string]bson.D{"flows": {{Key: "closed", Value: bson.D{{Key: "$exists", Value: false}}}}},
	},
	"a retry of a flow": {
		before: []asking{aQuestion, {path: "/flows/-/f/nodes/sure/resolve", body: `{"status": "ERROR"}`}}, path: "/flows/-/f/nodes/sure/retry", refused: http.StatusConflict,
		leaves: map[string]bson.D{"flows": {{Key: "status", Value: "PENDING"}}},
	},
	"a plan's cancel": {
		before: []asking{aPlan}, path: "/plans/-/p/cancel", leaves: map[string]bson.D{"plans": {{Key: "status", Value: "CANCELLED"}}, "tasks": {{Key: "status", Value: "Cancelled"}}},
	},
	"a rule's stop": {before: []asking{aRule}, path: "/periodics/-/nightly/disable", body: `{"note": "moving"}`, leaves: map[string]bson.D{"periodic_rules": {{Key: "pause_note", Value: "moving"}}}},
	"a run's cancel": {
		before: []asking{aRule, aRun}, path: "/runs/-/RUN/cancel", refused: http.StatusConflict, leaves: map[string]bson.D{"tasks": {{Key: "status", Value: "Cancelled"}}},
	},
	"a fetch": {before: []asking{aTask}, path: "/pull/fetch", body: aFetch.body, leaves: map[string]bson.D{"tasks": executions(1, "Executing")}},
	"a completion": {
		before: held, path: "/pull/complete", body: `{"handle": "HANDLE", "result": 1}`, leaves: map[string]bson.D{"tasks": executions(1, "Success")},
	},
	"a failure": {
		before: held, path: "/pull/fail", body: `{"handle": "HANDLE", "reason": "no"}`, refused: http.StatusConflict, leaves: map[string]bson.D{"tasks": executions(1, "Error")},
	},
	"a return": {
		before: held, path: "/pull/give-back", body: `{"handle": "HANDLE", "after": "1h"}`, refused: http.StatusConflict, leaves: map[string]bson.D{"tasks": executions(1, "New")},
	},
	"ends": {
		before: held, path: "/pull/ends", body: `{"complete": [{"handle": "HANDLE"}]}`, leaves: map[string]bson.D{"tasks": executions(1, "Success")},
	},
	"a pause": {path: "/types/mail/pause", leaves: map[string]bson.D{"control": {{Key: "_id", Value: "control"}, {Key: "paused_types", Value: bson.A{"mail"}}}}},
}

// named is the request with the names that an earlier answer has given.
func (c *asking) named(answer string) asking {
	named := *c
	for place, field := range map[string]string{"HANDLE": "handle", "RUN": "run"} {
		if m := regexp.MustCompile(`"` + field + `":"([^"]+)"`).FindStringSubmatch(answer); m != nil {
			named.path, named.body = strings.ReplaceAll(named.path, place, m[1]), strings.ReplaceAll(named.body, place, m[1])
		}
	}
	return named
}

// send sends the request with that key, and returns the answer of one that succeeded.
func (c *asking) send(ctx context.Context, url, key string) (string, error) {
	method := http.MethodPost
	if c.method != "" {
		method = c.method
	}
	r, err := http.NewRequestWithContext(ctx, method, url+"/api/v1"+c.path, strings.NewReader(c.body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Content-Type", "application/json")
	switch c.match {
	case "":
	case "new":
		r.Header.Set("If-None-Match", "*")
	default:
		r.Header.Set("If-Match", c.match)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= 300 {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return fmt.Sprint(res.StatusCode, " ", string(bytes.TrimSpace(text))), err
}
