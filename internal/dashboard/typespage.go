package dashboard

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

var typeRoutes = routes{"/types": (*visit).types, "/types/{type}": (*visit).typ, "/edit-type": (*visit).editType}

// typeLine is a type as the list shows it.
type typeLine struct {
	*typeRow
	Settings document // nil = it has none of its own
	Workers  int      // alive
}

func (v *visit) types() error {
	stats, err := v.get("/stats", url.Values{"window_ms": {windows[0].MS}})
	if err != nil {
		return err
	}
	pauses, err := v.get("/pauses", nil)
	if err != nil {
		return err
	}
	stored, err := v.every("/types", "types", url.Values{})
	if err != nil {
		return err
	}
	workers, err := v.every("/workers", "workers", url.Values{"state": {"alive"}})
	if err != nil {
		return err
	}
	series, err := v.get("/series/types", url.Values{"window": {windows[0].Name}})
	if err != nil {
		return err
	}
	lines := typeLinesOf(typeRowsOf(stats, pauses), stored, workers)
	all, wanted := len(lines), strings.ToLower(strings.TrimSpace(v.r.URL.Query().Get("q")))
	lines = slices.DeleteFunc(lines, func(l *typeLine) bool {
		return !strings.Contains(strings.ToLower(l.Type+" "+text(l.Settings["name"])+" "+text(l.Settings["category"])), wanted)
	})
	lines, next := pageOf(v, lines, func(l *typeLine) string { return l.Type })
	sparks := sparksOf(series)
	for _, l := range lines {
		l.Spark = sparks[l.Type]
	}
	v.render("types", page{Title: "Types", Nav: "Types", Poll: 5, Data: document{"lines": lines, "all": all, "next": next, "pausedAll": pauseOfAll(pauses)}})
	return nil
}

// mostServing is how many workers the page of a type names; the list of workers has the others.
const mostServing = 200

// typeLinesOf are the types that have tasks, settings or workers, which are alive. Those of mscheduler itself come last.
func typeLinesOf(rows []*typeRow, stored, workers []any) []*typeLine {
	lines := map[string]*typeLine{}
	line := func(typ string) *typeLine {
		if lines[typ] == nil {
			lines[typ] = &typeLine{typeRow: &typeRow{Type: typ}}
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
	settings, err := v.get(path, nil)
	if err != nil && !gone(err) {
		return err
	}
	pauses, err := v.get("/pauses", nil)
	if err != nil {
		return err
	}
	window := windowOf(v.r.URL.Query())
	stats, err := v.get("/stats", url.Values{"type": {code}, "window_ms": {window.MS}})
	if err != nil {
		return err
	}
	series, err := v.get("/series", url.Values{"type": {code}, "window": {window.Name}})
	if err != nil {
		return err
	}
	workers, err := v.every("/workers", "workers", url.Values{"state": {"alive"}})
	if err != nil {
		return err
	}
	row := &typeRow{Type: code}
	for _, r := range typeRowsOf(stats, pauses) {
		if r.Type == code {
			row = r
		}
	}
	serving := slices.DeleteFunc(workers, func(w any) bool {
		return !slices.Contains(texts(object(w)["types"]), code)
	})
	v.render("type", page{Title: code, Nav: "Types", Poll: 5, Data: document{
		"code": code, "path": path, "settings": settings, "groups": typeSettings, "row": row, "statuses": object(object(object(stats["ended"])["types"])[code])["statuses"],
		"stats": stats, "pausedAll": pauseOfAll(pauses), "workers": serving[:min(len(serving), mostServing)], "serving": len(serving), "window": window, "windows": windows, "charts": chartsOf("type", series),
	}})
	return nil
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
	settings, err := v.get("/types"+pathOf(code), nil)
	if err != nil && !gone(err) {
		return err
	}
	v.render("typeedit", page{Title: "Settings of " + code, Nav: "Types", Data: document{
		"code": code, "path": "/types" + pathOf(code), "settings": settings, "groups": typeSettings,
	}})
	return nil
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
