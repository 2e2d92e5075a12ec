package dashboard

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/mscheduler/mscheduler/internal/form"
)

var typeRoutes = routes{"/types": (*visit).types, "/types/{type}": (*visit).typ, "/edit-type": (*visit).editType}

// typeLine is a type as the list shows it.
type typeLine struct {
	*typeRow
	Settings document // nil = it has none of its own
	Workers  int      // alive
}

// typeStates are what a type may be, the first that holds.
var typeStates = []string{"paused", "no worker", "failing", "active"}

// State is one of [typeStates]; "" for what is no type, or where too little is known.
func (l *typeLine) State() string {
	uncounted := slices.Contains(l.Uncounted, "due")
	switch {
	case l.Others:
		return ""
	case l.Paused:
		return typeStates[0]
	case (l.Due > 0 || uncounted) && l.Workers == 0: // what nobody counts may wait for one
		return typeStates[1]
	case l.Spark != nil && l.Spark.Fails:
		return typeStates[2]
	case uncounted:
		return ""
	default:
		return typeStates[3]
	}
}

// typesAsked are all types that the query of the page selects, in its order, with how many there are, the pauses, and
// what the statistics say of ended tasks.
func (v *visit) typesAsked() (lines []*typeLine, all int, pauses, ended document) {
	stats := v.read("/stats", url.Values{"window_ms": {windows[0].MS}})
	pauses = v.read("/pauses", nil)
	stored := v.every("/types", "types", url.Values{})
	workers := v.every("/workers", "workers", url.Values{"state": {"alive"}})
	series := v.read("/series/types", url.Values{"window": {windows[0].Name}})
	lines = typeLinesOf(typeRowsOf(stats, pauses), stored, workers)
	sparks := sparksOf(series)
	for _, l := range lines {
		l.Spark = sparks[l.Type]
	}
	q := v.r.URL.Query()
	all = len(lines)
	wanted, state := strings.ToLower(strings.TrimSpace(q.Get("q"))), q.Get("state")
	lines = slices.DeleteFunc(lines, func(l *typeLine) bool {
		return state != "" && l.State() != state || !strings.Contains(strings.ToLower(l.Type+" "+text(l.Settings["name"])+" "+text(l.Settings["category"])), wanted)
	})
	sorted(q, lines, typeOrders)
	return lines, all, pauses, object(stats["ended"])
}

// typeOrders are the orders of the list of types beside that by name.
var typeOrders = map[string]func(a, b *typeLine) int{
	"-due":     func(a, b *typeLine) int { return cmp.Compare(b.Due, a.Due) },
	"-running": func(a, b *typeLine) int { return cmp.Compare(b.Running, a.Running) },
	"-failed":  func(a, b *typeLine) int { return cmp.Compare(b.Failed, a.Failed) },
	"oldest": func(a, b *typeLine) int { // none comes last
		return strings.Compare(cmp.Or(a.OldestDue, "~"), cmp.Or(b.OldestDue, "~"))
	},
}

// typeFile are the types as a file has them.
func (v *visit) typeFile() (rows []any) {
	lines, _, _, ended := v.typesAsked()
	for _, l := range lines {
		row := document{
			"type": l.Type, "state": l.State(), "workers": asNumber(int64(l.Workers)), "oldest_due_at": l.OldestDue, "ended_from": ended["from"], "ended_1h": asNumber(l.Ended), "failed_1h": asNumber(l.Failed),
		}
		for column, which := range map[string]string{"due": "due", "later": "delayed", "running": "running"} {
			if !slices.Contains(l.Uncounted, which) {
				row[column] = asNumber(l.number(which))
			}
		}
		maps.Copy(row, l.Settings)
		rows = append(rows, row)
	}
	return rows
}

func asNumber(n int64) json.Number { return json.Number(strconv.FormatInt(n, 10)) }

func (v *visit) types() error {
	lines, all, pauses, ended := v.typesAsked()
	lines, next := pageOf(v, lines, func(l *typeLine) string { return l.Type })
	return v.render("types", page{Title: "Types", Nav: "Types", Poll: 5, Data: document{"lines": lines, "all": all, "next": next, "states": typeStates, "ended": ended, "pausedAll": pauseOfAll(pauses)}})
}

// mostServing is how many workers the page of a type names; the list of workers has the others.
const mostServing = 200

// typeLinesOf are the types that have tasks, settings or workers, which are alive. Those of mscheduler itself come last.
func typeLinesOf(rows []*typeRow, stored, workers []any) []*typeLine {
	lines := map[string]*typeLine{}
	var uncounted []string // of a type that is not counted by name
	if slices.ContainsFunc(rows, func(r *typeRow) bool { return r.Others }) {
		uncounted = counted
	}
	line := func(typ string) *typeLine {
		if lines[typ] == nil {
			lines[typ] = &typeLine{typeRow: &typeRow{Type: typ, Uncounted: uncounted}}
		}
		return lines[typ]
	}
	for _, r := range rows {
		line(r.Type).typeRow = r
	}
	for _, s := range stored {
		line(text(object(s)["code"])).Settings = object(s)
	}
	for _, w := range workers {
		for _, typ := range texts(object(w)["types"]) {
			line(typ).Workers++
		}
	}
	out := make([]*typeLine, 0, len(lines))
	for _, l := range lines {
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b *typeLine) int {
		return cmp.Or(cmp.Compare(ours(a.Type), ours(b.Type)), strings.Compare(a.Type, b.Type))
	})
	return out
}

func (v *visit) typ() error {
	code := v.r.PathValue("type")
	path := "/types" + pathOf(code)
	settings := v.try(unlessGone, path, nil)
	pauses := v.read("/pauses", nil)
	window := windowOf(v.r.URL.Query())
	stats := v.read("/stats", url.Values{"type": {code}, "window_ms": {window.MS}})
	series := v.read("/series", url.Values{"type": {code}, "window": {window.Name}})
	workers := v.every("/workers", "workers", url.Values{"state": {"alive"}})
	row := &typeRow{Type: code}
	for _, r := range typeRowsOf(stats, pauses) {
		if r.Type == code {
			row = r
		}
	}
	serving := slices.DeleteFunc(workers, func(w any) bool {
		return !slices.Contains(texts(object(w)["types"]), code)
	})
	return v.render("type", page{Title: code, Nav: "Types", Poll: 5, Data: document{
		"code": code, "path": path, "settings": settings, "groups": typeSettings, "row": row, "statuses": object(object(object(stats["ended"])["types"])[code])["statuses"],
		"stats": stats, "pausedAll": pauseOfAll(pauses), "workers": serving[:min(len(serving), mostServing)], "serving": len(serving), "window": window, "windows": windows, "charts": chartsOf("type", series),
	}})
}

// editType is the form of the settings of a type, which may have none yet.
func (v *visit) editType() error {
	code := strings.TrimSpace(v.r.URL.Query().Get("type"))
	if !v.who.May("admin") {
		return &problem{Status: 403, Title: "Not allowed", Detail: "settings of types are changed by administrators"}
	}
	if code == "" {
		return v.goTo("/types")
	}
	settings := v.try(unlessGone, "/types"+pathOf(code), nil)
	e := editor{
		Call: "PUT /types" + pathOf(code), Then: "/types" + pathOf(code), Label: "Review the changes", Idempotent: true, Fresh: settings == nil, Text: "code: " + strconv.Quote(code) + "\n",
		Help:   "What is not set has its default. Spans of time are such as 500ms, 90s, 5m, 7d. A task may override the options that it has of its own. *** stands for a secret that stays as it is.",
		Review: "Workers read new settings within two seconds.",
	}
	if e.Fresh {
		e.Review += " The type has no settings yet: others may have set it up meanwhile, and then nothing is stored."
	} else {
		e.Match = strconv.Quote(text(settings["version"]))
		e.Text, v.err = formText[form.Type](fileOf(settings), "a type")
	}
	for _, g := range typeSettings {
		of := fieldGroup{Title: g.Title}
		for _, s := range g.Settings {
			of.Fields = append(of.Fields, s.field())
		}
		e.Groups = append(e.Groups, of)
	}
	return v.edit("Settings of "+code, "Types", e)
}

// fileOf is a stored type as a file for `mscheduler type apply` says it: its options are settings like the others.
func fileOf(stored document) document {
	out := document{}
	maps.Copy(out, stored)
	maps.Copy(out, object(stored["options"]))
	for _, name := range []string{"options", "version", "paused", "created_at", "updated_at"} {
		delete(out, name)
	}
	return out
}

// pauseOfAll is who paused everything, when and why; nil = nobody has.
func pauseOfAll(pauses document) document {
	for _, p := range list(pauses["pauses"]) {
		if p := object(p); text(p["type"]) == "" {
			return p
		}
	}
	return nil
}
