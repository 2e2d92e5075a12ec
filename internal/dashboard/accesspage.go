package dashboard

import (
	"net/url"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/codec"
)

var accessRoutes = routes{"/events": (*visit).events, "/audit": (*visit).audit, "/access": (*visit).access, "/system": (*visit).system}

// auditKinds are the kinds of things that the audit is about: audit.Kinds, which a client of the API does not import. A test
// compares them.
var auditKinds = []string{"task", "type", "periodic", "plan", "flow", "stream", "run", "bulk", "worker", "pauses", "token"}

// events is the page whose script listens to the API's stream: the server does nothing but make its address.
func (v *visit) events() error {
	q := v.ofTenant(pick(v.r.URL.Query(), "of", "tenant", "type", "key", "kind"))
	for _, name := range []string{"of", "kind"} { // the API has one list, and the form has a value for each
		if len(q[name]) > 1 {
			q.Set(name, strings.Join(q[name], ","))
		}
	}
	if q.Get("of") == "" {
		q.Set("of", "tasks")
	}
	kinds := []string{"tasks", "runs", "flows"}
	if v.who.Tenants == nil {
		kinds = append(kinds, "workers")
	}
	return v.render("events", page{Title: "Events", Nav: "Events", Data: document{"stream": v.d.config.Mount + base + "/api/events?" + q.Encode(), "of": kinds, "kinds": codec.EventKinds, "query": q}})
}

func (v *visit) audit() error {
	doc := v.rows("audit")
	return v.render("audit", page{Title: "Audit", Nav: "Audit", Data: document{"entries": list(doc["entries"]), "next": doc["next"], "kinds": auditKinds, "outcomes": []string{"ok", "refused", "failed", "unknown"}, "filtered": len(pick(v.r.URL.Query(), tables["audit"].filters...)) > 0}})
}

func (v *visit) access() error {
	doc := v.rows("tokens")
	return v.render("access", page{Title: "Access", Nav: "Access", Data: document{"tokens": list(doc["tokens"]), "next": doc["next"]}})
}

// farClock is how far the clock of a server may be from that of the database until the page warns of it.
const farClock = 5 * time.Second

// system is what the API knows of itself.
func (v *visit) system() error {
	me := v.read("/me", nil)
	pauses := v.read("/pauses", nil)
	asked := v.d.clock.Now()
	stats := v.read("/stats", url.Values{"window_ms": {"1000"}})
	at, ok := instant(stats["at"])
	if !ok {
		at = asked
	}
	apart := asked.Sub(at).Abs()
	data := document{"me": me, "pauses": pauses, "stats": stats, "clock": span(apart), "far": apart > farClock}
	poll := 10
	if v.who.May("operator") && v.r.URL.Query().Get("checks") != "" { // whoever reads the findings asks for others
		poll = 0
		data["doctor"] = v.read("/doctor", nil)
	}
	return v.render("system", page{Title: "System", Nav: "System", Poll: poll, Data: data})
}

// findings are those of the checks of the deployment, made anew for the file.
func (v *visit) findings() []any { return list(v.read("/doctor", nil)["checks"]) }
