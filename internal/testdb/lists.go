package testdb

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Lists are requests for each list of the REST API, by operation, among what [Fill] has stored. Together they have
// each filter and each order. Tenant "rare" has one thing of each kind, where a list looks last; "nobody" has none.
var Lists = map[string][]string{
	"list-tasks": {
		"tasks", "tasks?sort=-id", "tasks?limit=1000", "tasks?type=mail", "tasks?tenant=t5", "tasks?tenant=t5&type=mail&sort=-id", "tasks?tenant=-", "tasks?status=New",
		"tasks?status=Pending", "tasks?status=Failure&sort=-id", "tasks?status=Pending,Failure&limit=7", "tasks?status=Failure&type=mail", "tasks?status=Pending&tenant=t5", "tasks?status=Failure&tenant=t5&type=mail&sort=-id",
		"tasks?status=Pending&type=nobody", "tasks?status=Failure&creator=nobody",
		"tasks?creator=rare", "tasks?creator=nobody", "tasks?category=none&sort=-id", "tasks?worker_id=nobody", "tasks?created_before=2020-01-01T00:00:00Z",
		"tasks?created_after=2100-01-01T00:00:00Z", "tasks?error=nobody", "tasks?arg=to.name=nobody&sort=-id", "tasks?status=Failure&error=no%20such", "tasks?history=also&error=nobody",
		"tasks?key=k0000005", "tasks?key=nobody&sort=-id", "tasks?key=k0&tenant=t5", "tasks?key=k0&type=mail&sort=-id", "tasks?key=k00&tenant=t5&type=mail", "tasks?key=k&creator=nobody", "tasks?key=k&status=Failure",
		"tasks?key=past&history=also&creator=nobody",
		"tasks?history=also", "tasks?history=only&creator=nobody", "tasks?history=also&creator=nobody&sort=-id",
	},
	"list-lives": {"tasks/t5/mail/k0000005/lives"},
	"list-flows": {
		"flows", "flows?sort=updated_at", "flows?status=RUNNING", "flows?tenant=t5", "flows?tenant=rare", "flows?tenant=nobody&sort=updated_at", "flows?tenant=nobody&status=FINISH",
		"flows?tenant=t5&key=k00", "flows?tenant=t5&key=k&status=PENDING",
	},
	"list-nodes-of-flow": {"flows/t5/k0000005/nodes", "flows/t5/k0000005/nodes?outputs=false", "flows/t5/k0000005/nodes?node=a"},
	"list-plans": {
		"plans", "plans?sort=updated_at", "plans?over=true", "plans?status=ERROR", "plans?tenant=t5", "plans?tenant=rare", "plans?station=nobody",
		"plans?tenant=nobody&over=true", "plans?tenant=nobody&status=FINISH&sort=updated_at",
		"plans?tenant=t5&plan_id=k00", "plans?tenant=t5&plan_id=k&status=CANCELLED", "plans?tenant=t5&plan_id=past&over=true&station=nobody",
	},
	"list-results":   {"plans/t5/k0000005/results", "plans/t5/k0000005/results?sort=-at", "plans/t5/k0000005/results?from=2026-01-02T00:00:00Z&to=2026-01-03T00:00:00Z", "plans/t5/k0000005/results?from=2100-01-01T00:00:00Z", "plans/t5/k0000005/results?outputs=false"},
	"list-periodics": {"periodics", "periodics?tenant=t5", "periodics?tenant=nobody", "periodics?tenant=t5&name=k00"},
	"list-runs": {
		"runs", "runs?sort=nominal", "runs?status=SUCCESS", "runs?status=RUNNING", "runs?tenant=t5", "runs?tenant=rare", "runs?tenant=nobody&sort=nominal",
		"runs?rule_id=r0000005", "runs?rule_id=r0000005&tenant=nobody", "runs?from=2026-01-02T00:00:00Z&to=2026-01-03T00:00:00Z", "runs?status=WAITING_CALLBACK&tenant=nobody",
	},
	"list-runs-of-periodic": {
		"periodics/t5/k0000005/runs", "periodics/t5/k0000005/runs?status=FAILED&sort=nominal", "periodics/t5/k0000005/runs?from=2026-01-02T00:00:00Z", "periodics/t5/k0000005/runs?to=2026-01-02T00:00:00Z",
	},
	"list-streams":         {"streams", "streams?all=true", "streams?status=PENDING", "streams?status=RUNNING&all=true"},
	"list-nodes-of-stream": {"streams/s/k0000005/nodes", "streams/s/k0000005/nodes?outputs=false", "streams/s/k0000005/nodes?node=a"},
	"list-bulk":            {"bulk", "bulk?tenant=t5"},
	"list-types":           {"types", "types?limit=10"},
	"list-pauses":          {"pauses"},
	"list-executions":      {"executions", "executions?worker=worker-1&type=mail&worker=nobody"},
	"list-workers":         {"workers", "workers?limit=10", "workers?state=dead"},
	"list-tokens":          {"tokens", "tokens?limit=10"},
	"list-audit": {
		"audit", "audit?tenant=t5", "audit?tenant=rare", "audit?tenant=nobody", "audit?who=os/me", "audit?who=nobody", "audit?operation=send-task&outcome=failed", "audit?kind=pauses",
		"audit?resource=-/mail/nothing", "audit?after=2100-01-01T00:00:00Z", "audit?before=2020-01-01T00:00:00Z",
	},
	"get-series":          {"series", "series?window=week&type=mail", "series?window=day&type=nobody"},
	"get-series-of-types": {"series/types", "series/types?window=day"},
	"get-stats":           {"stats", "stats?tenant=t5", "stats?tenant=t5&type=mail", "stats?type=mail&window_ms=60000"},
}

// Fill stores n tasks and n past lives, and n/few of each other thing that tasks, rules, flows, streams and plans
// leave, as they lie in a database that mscheduler has set up.
func Fill(t testing.TB, db *mongo.Database, n, few int) {
	t.Helper()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	d := func(key string, value any) bson.E { return bson.E{Key: key, Value: value} }
	tenant := func(i int) string {
		if i == 0 {
			return "rare"
		}
		return fmt.Sprint("t", i%10)
	}
	status := func(i int, of ...string) string { return of[i/10%len(of)] }
	fill := func(n int, coll string, doc func(i int, key string, at time.Time) bson.D) {
		t.Helper()
		var docs []any
		for i := range n {
			docs = append(docs, doc(i, fmt.Sprintf("k%07d", i), begin.Add(time.Duration(i)*time.Minute)))
			if len(docs) == 1000 || i == n-1 {
				if _, err := db.Collection(coll).InsertMany(context.Background(), docs); err != nil {
					t.Fatal(err)
				}
				docs = docs[:0]
			}
		}
	}
	task := func(i int, key string, at time.Time) bson.D {
		doc := bson.D{d("type", "mail"), d("key", key), d("tenant", tenant(i)), d("generation", int64(1)), d("rev", int64(1)), d("created_at", at), d("updated_at", at), d("start_time", at), d("priority", 5)}
		if i == n-1 {
			doc = append(doc, d("creator", "rare"))
		}
		return doc
	}
	fill(n, "tasks", func(i int, key string, at time.Time) bson.D {
		doc := append(bson.D{d("_id", tenant(i)+"/mail/"+key)}, task(i, key, at)...)
		switch {
		case i%2 == 0:
			return append(doc, d("status", "New"), d("due_at", at), d("audience", bson.A{"*"}))
		case i%1000 == 15:
			return append(doc, d("status", "Pending"), d("finished_at", at))
		case i%500 == 25:
			return append(doc, d("status", "Failure"), d("finished_at", at), d("archive_at", at.Add(30*24*time.Hour)))
		}
		return append(doc, d("status", "Success"), d("finished_at", at), d("archive_at", at.Add(7*24*time.Hour)))
	})
	fill(n, "task_history", func(i int, key string, at time.Time) bson.D {
		id := tenant(i) + "/mail/past-" + key
		return append(bson.D{d("_id", fmt.Sprint(id, "@", i+1)), d("task_id", id), d("status", "Success"), d("archived_at", at)}, task(i, "past-"+key, at)...)
	})
	fill(few, "flows", func(i int, key string, at time.Time) bson.D {
		return bson.D{d("_id", tenant(i)+"/"+key), d("key", key), d("tenant", tenant(i)), d("status", status(i, "RUNNING", "FINISH")), d("rev", int64(1)),
			d("created_at", at), d("updated_at", at), d("nodes", bson.A{}), d("states", bson.A{})}
	})
	fill(few, "flows", func(i int, key string, at time.Time) bson.D { // streams, which are idle
		return bson.D{d("_id", "s/"+key), d("kind", "stream"), d("key", key), d("scene", "s"), d("group", key), d("status", "RUNNING"), d("rev", int64(1)),
			d("created_at", at), d("updated_at", at.Add(time.Second)), d("nodes", bson.A{}), d("states", bson.A{})}
	})
	fill(few, "flow_nodes", func(i int, key string, at time.Time) bson.D { // of ten streams
		flow := fmt.Sprintf("s/k%07d", i%10)
		return bson.D{d("_id", flow+"/"+key), d("flow_id", flow), d("node", key), d("status", "INIT"), d("no", int64(i+1)), d("rev", int64(0)), d("at", at), d("created_at", at)}
	})
	plan := func(i int, key string, at time.Time, state string) bson.D {
		return bson.D{d("_id", tenant(i)+"/"+key), d("plan_id", key), d("tenant", tenant(i)), d("station", "mail"), d("plan_type", "none"), d("start", at), d("status", state), d("rev", int64(1)),
			d("created_at", at), d("updated_at", at)}
	}
	fill(few, "plans", func(i int, key string, at time.Time) bson.D { return plan(i, key, at, status(i, "RUNNING", "ERROR")) })
	fill(few, "plan_history", func(i int, key string, at time.Time) bson.D {
		return plan(i, "past-"+key, at, status(i, "FINISH", "CANCELLED"))
	})
	fill(few, "plan_results", func(i int, key string, at time.Time) bson.D { // of ten plans
		return bson.D{d("_id", key), d("plan", fmt.Sprintf("%s/k%07d", tenant(i%10), i%10)), d("plan_id", key), d("plan_time", at.Add(-time.Second)), d("at", at)}
	})
	fill(few, "periodic_rules", func(i int, key string, at time.Time) bson.D {
		return bson.D{d("_id", "r"+key[1:]), d("name", key), d("tenant", tenant(i)), d("living", tenant(i)+"/"+key), d("cron", "0 0 0 * * *"), d("status", "offline"), d("version", int64(1)), d("rev", int64(1)),
			d("task", bson.D{d("type", "mail")}), d("created_at", at), d("updated_at", at), d("decided_to", at)}
	})
	fill(few, "periodic_runs", func(i int, key string, at time.Time) bson.D { // of ten rules
		rule := fmt.Sprintf("r%07d", i%10)
		return bson.D{d("_id", rule+"@"+key), d("rule_id", rule), d("rule_name", rule), d("tenant", tenant(i)), d("nominal", at), d("status", status(i, "SUCCESS", "SCHEDULED", "SKIPPED")),
			d("task_id", tenant(i)+"/mail/"+key), d("rev", int64(1)), d("at", at)}
	})
	fill(few, "series", func(i int, _ string, _ time.Time) bson.D { // of a hundred types, all that is kept
		slot := []struct {
			name string
			long time.Duration
		}{{"minute", time.Minute}, {"quarter", 15 * time.Minute}, {"hours", 2 * time.Hour}}[i%3]
		typ, at := fmt.Sprintf("t%02d", i/3%100), time.Now().UTC().Truncate(slot.long).Add(-time.Duration(i/300)*slot.long)
		return bson.D{d("_id", fmt.Sprint(slot.name, "/", typ, "/", at.Format("2006-01-02T15:04Z"))), d("type", typ), d("at", at), d("ended", bson.D{d("success", int64(i)), d("error", int64(1))})}
	})
	fill(few, "audit", func(i int, key string, at time.Time) bson.D {
		return bson.D{d("_id", "0"+key), d("at", at), d("who", "os/me"), d("from", "here"), d("door", "cli"), d("operation", "send-task"), d("kind", "task"), d("resource", tenant(i)+"/mail/"+key), d("tenant", tenant(i)), d("outcome", "ok")}
	})
}
