package dashboard

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/measure"
)

var overviewRoutes = routes{"/{$}": (*visit).overview, "/find": (*visit).find}

// typeRow is a type as the overview shows it: what waits, and what ended within the window.
type typeRow struct {
	Type                  string
	Due, Delayed, Running int64
	Uncounted             []string // those of them that are not known
	OldestDue             string
	Ended, Failed         int64
	Late, Took            document
	Paused                bool
	Others                bool     // it is no type, but all that are not counted by name
	Among                 bool     // it is one of those
	Pause                 document // who paused it, when and why
	Spark                 *spark   // nil = no execution has ended
}

// counted are the numbers of a type that [typeRow.Uncounted] names.
var counted = []string{"due", "delayed", "running"}

// Counted is the number of tasks that are due, delayed or running; "?" = no count has been quick enough yet, or the type
// is not counted by name.
func (r *typeRow) Counted(which string) string {
	if slices.Contains(r.Uncounted, which) {
		return "?"
	}
	return number(r.number(which))
}

func (r *typeRow) number(which string) int64 {
	return map[string]int64{"due": r.Due, "delayed": r.Delayed, "running": r.Running}[which]
}

// windows are the spans of time that the overview offers. Ended tasks are looked at for a day at most: MS is how far
// back, and Ended says it in words.
var windows = []window{{"hour", "3600000", "hour"}, {"day", "86400000", "day"}, {"week", "86400000", "day"}}

type window struct{ Name, MS, Ended string }

// windowOf is the window that a page's query names; the first one if it names none.
func windowOf(q url.Values) window {
	for _, w := range windows {
		if w.Name == q.Get("window") {
			return w
		}
	}
	return windows[0]
}

func (v *visit) overview() error {
	window := windowOf(v.r.URL.Query())
	stats := v.read("/stats", v.ofTenant(url.Values{"window_ms": {window.MS}}))
	needs := v.needs()
	pauses, series, sparks := document{}, document(nil), map[string]*spark(nil)
	if v.who.Tenants == nil { // what is paused is so for all tenants, and series have none
		pauses = v.read("/pauses", nil)
		series, sparks = v.series(window)
		hour, now := series, sparks
		if window != windows[0] {
			hour, now = v.series(windows[0])
		}
		needs = append(append(v.failingNeeds(now), needs...), v.lateNeeds(stats, hour)...)
	}
	rows := typeRowsOf(stats, pauses)
	for _, r := range rows {
		r.Spark = sparks[r.Type]
	}
	total := typeRow{}
	for _, r := range rows {
		total.Due, total.Delayed, total.Running = total.Due+r.Due, total.Delayed+r.Delayed, total.Running+r.Running
		if !r.Among {
			total.Uncounted = append(total.Uncounted, r.Uncounted...)
		}
		total.Ended, total.Failed = total.Ended+r.Ended, total.Failed+r.Failed
		if r.OldestDue != "" && (total.OldestDue == "" || r.OldestDue < total.OldestDue) {
			total.OldestDue = r.OldestDue
		}
	}
	first := false // nobody has sent a task yet
	if total.Due+total.Delayed+total.Running+total.Ended == 0 && v.who.May("operator") {
		tasks := v.read("/tasks", v.ofTenant(url.Values{"limit": {"1"}}))
		first = len(list(tasks["tasks"])) == 0
	}
	data := document{
		"first": first, "stats": stats, "rows": rows, "total": total, "needs": needs, "window": window, "windows": windows, "pausedAll": pauses["all"] == true,
	}
	if series != nil {
		data["charts"] = chartsOf("all", series)
	} else {
		data["windows"] = windows[:2]
	}
	return v.render("overview", page{Title: "Overview", Nav: "Overview", Poll: 5, Data: data})
}

// series is what has happened to all types together, and the small pictures of each type.
func (v *visit) series(w window) (all document, sparks map[string]*spark) {
	q := url.Values{"window": {w.Name}}
	types := v.read("/series/types", q)
	return v.read("/series", q), sparksOf(types)
}

// otherTypes names the row of all types that are not counted by name. No type has a space in its name.
const otherTypes = "other types"

// typeRowsOf joins what the statistics say of each type; types of mscheduler itself come last.
func typeRowsOf(stats, pauses document) []*typeRow {
	rows := map[string]*typeRow{}
	others := false // some types are not counted by name
	row := func(typ string) *typeRow {
		if rows[typ] == nil {
			rows[typ] = &typeRow{Type: typ, Among: others}
			if others {
				rows[typ].Uncounted = counted
			}
		}
		return rows[typ]
	}
	for _, q := range list(object(stats["queue"])["types"]) {
		q := object(q)
		name := text(q["type"])
		if q["others"] == true {
			name = otherTypes
		}
		r := row(name)
		r.Others = q["others"] == true
		r.Due, r.Delayed, r.Running, r.OldestDue = integer(q["due"]), integer(q["delayed"]), integer(q["running"]), text(q["oldest_due_at"])
		r.Uncounted = nil
		for _, which := range list(q["uncounted"]) {
			r.Uncounted = append(r.Uncounted, text(which))
		}
	}
	others = rows[otherTypes] != nil
	for typ, statuses := range object(object(stats["tasks"])["types"]) { // of a tenant
		for status, n := range object(statuses) {
			switch status {
			case "New", "Error":
				row(typ).Due += integer(n)
			case "Executing":
				row(typ).Running += integer(n)
			}
		}
	}
	for typ, e := range object(object(stats["ended"])["types"]) {
		e := object(e)
		r := row(typ)
		r.Ended, r.Late, r.Took = integer(e["count"]), object(e["late_ms"]), object(e["exec_time_ms"])
		statuses := object(e["statuses"])
		r.Failed = integer(statuses["Failure"]) + integer(statuses["Pending"])
	}
	for _, p := range list(pauses["pauses"]) {
		if typ := text(object(p)["type"]); typ != "" {
			row(typ).Paused, row(typ).Pause = true, object(p)
		}
	}
	out := make([]*typeRow, 0, len(rows))
	for _, r := range rows {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *typeRow) int {
		return cmp.Or(cmp.Compare(ours(a.Type), ours(b.Type)), strings.Compare(a.Type, b.Type))
	})
	return out
}

// ours is greater for a type of mscheduler itself.
func ours(typ string) int { return len(typ) - len(strings.TrimPrefix(typ, "mscheduler.")) }

// need is something that waits for a person.
type need struct {
	Class string
	Count string
	What  string
	URL   string
}

// mostCounted is how many things of a kind the overview counts.
const mostCounted = 100

// needs are the things that need somebody, each with the page that lists them.
func (v *visit) needs() (out []need) {
	for _, ask := range []struct {
		path, field, class, one, many, page string
		shows, query                        url.Values // of the page, and of the list
	}{
		{"/tasks", "tasks", "ask", "task waits for a decision", "tasks wait for a decision", "/tasks", url.Values{"status": {"Pending"}}, url.Values{"status": {"Pending"}}},
		{"/tasks", "tasks", "bad", "task failed for good", "tasks failed for good", "/tasks", url.Values{"status": {"Failure"}}, url.Values{"status": {"Failure"}}},
		{"/flows", "flows", "ask", "flow waits for somebody", "flows wait for somebody", "/waiting", url.Values{}, url.Values{"status": {"PENDING"}}},
		{"/runs", "runs", "bad", "run of a rule failed within a day", "runs of rules failed within a day", "/runs", url.Values{"status": {failedRuns}}, url.Values{"status": {failedRuns}, "from": {v.d.clock.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)}}},
		{"/tasks", "tasks", "bad", "delivery of a callback failed", "deliveries of callbacks failed", "/tasks", url.Values{"type": {"mscheduler.callback"}, "status": {"Failure"}}, url.Values{"type": {"mscheduler.callback"}, "status": {"Failure"}}},
		{"/workers", "workers", "bad", "worker is dead", "workers are dead", "/workers", url.Values{"state": {"dead"}}, url.Values{"state": {"dead"}}},
	} {
		if ask.path == "/workers" && v.who.Tenants != nil {
			continue // they belong to no tenant
		}
		ask.query.Set("limit", strconv.Itoa(mostCounted))
		doc := v.read(ask.path, v.ofTenant(ask.query))
		n := int64(len(list(doc[ask.field])))
		more := text(doc["next"]) != "" // the API stops after the first that it looked at, whether they match or not
		found := need{Class: ask.class, Count: number(n), What: ask.many, URL: v.at(ask.page, v.ofChosen(ask.shows))}
		switch {
		case n == 0 && !more:
			continue
		case n == 0:
			found.Class, found.What = "", ask.many+", among the first that were looked at"
		case n == 1 && !more:
			found.What = ask.one
		}
		if more {
			found.Count += "+"
		}
		out = append(out, found)
	}
	return out
}

// failingNeeds are the types in which at least half of the executions fail. Types of mscheduler itself are left out:
// deliveries and runs have needs of their own.
func (v *visit) failingNeeds(sparks map[string]*spark) []need {
	var failing []string
	for _, typ := range slices.Sorted(maps.Keys(sparks)) {
		if sparks[typ].Fails && ours(typ) == 0 {
			if typ == measure.Other { // it also stands for all types beyond the first hundred
				typ = otherTypes
			}
			failing = append(failing, typ)
		}
	}
	const most = 3 // that are named
	switch n := len(failing); n {
	case 0:
		return nil
	case 1:
		page := "/types"
		if failing[0] != otherTypes {
			page += pathOf(failing[0])
		}
		return []need{{Class: "bad", Count: "1", What: "At least half of the executions of this type fail: " + failing[0], URL: v.at(page, nil)}}
	default:
		what := "At least half of the executions of these types fail: " + strings.Join(failing[:min(n, most)], ", ")
		if n > most {
			what += " …"
		}
		return []need{{Class: "bad", Count: number(n), What: what, URL: v.at("/types", url.Values{"state": {"failing"}})}}
	}
}

// lateNeeds are the ticks that were late in the last hour, and one that is now.
func (v *visit) lateNeeds(stats, hour document) (out []need) {
	late := object(object(hour["late"])["periodic"])
	if n := integer(late["late"]); n > 0 {
		what := "ticks of the last hour came more than 10 s late, one by up to "
		if n == 1 {
			what = "tick of the last hour came more than 10 s late, by up to "
		}
		out = append(out, need{Class: "bad", Count: number(n), What: what + duration(late["max"]), URL: v.at("/runs", nil)})
	}
	queue := object(stats["queue"])
	counted, ok := instant(queue["counted_at"])
	next, there := instant(queue["next_tick_at"])
	if overdue := counted.Sub(next); ok && there && overdue > overdueTick {
		out = append(out, need{Class: "bad", Count: span(overdue.Truncate(time.Second)), What: "a tick is overdue: no engine decides it", URL: v.at("/periodics", nil)})
	}
	return out
}

// overdueTick is how long a tick may wait for an engine that is busy.
const overdueTick = 10 * time.Second
