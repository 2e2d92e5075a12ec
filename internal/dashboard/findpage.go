package dashboard

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// mostFound is how many things of each kind the page of a search lists.
const mostFound = 10

// found are the things of a kind whose names begin as was searched for.
type found struct {
	Kind  string
	Items []foundItem
	All   string // the page that lists all of them; "" = there are no more
}

type foundItem struct{ Name, URL string }

// find goes where what people type leads: to the task of an id, to the list of a type, or else to the tasks, rules, flows
// and plans whose names begin so.
func (v *visit) find() error {
	q := strings.TrimSpace(v.r.URL.Query().Get("q"))
	var all []found
	if q != "" {
		if path := v.exactly(q); path != "" {
			return v.goTo(path)
		}
		all = v.begins(q)
		if v.err == nil && len(all) == 1 && len(all[0].Items) == 1 && all[0].All == "" {
			http.Redirect(v.w, v.r, all[0].Items[0].URL, http.StatusSeeOther)
			return nil
		}
	}
	return v.render("find", page{Title: "Find", Data: document{"q": q, "found": all}})
}

// exactly is the path of the task of an id, or of the tasks of a type; "" = there is none.
func (v *visit) exactly(q string) (path string) {
	parts := strings.SplitN(q, "/", 3)
	if len(parts) == 1 {
		doc := v.try(unlessRefused, "/tasks", v.ofTenant(url.Values{"type": {q}, "limit": {"1"}}))
		if len(list(doc["tasks"])) > 0 {
			path = "/tasks?" + v.ofChosen(url.Values{"type": {q}}).Encode()
		}
		return path
	}
	for _, id := range [][]string{parts, {v.ofOneTenant(url.Values{}).Get("tenant"), parts[0], strings.Join(parts[1:], "/")}} {
		if len(id) < 3 {
			continue
		}
		path := "/tasks" + pathOf(id...)
		if v.try(unlessRefused, path, nil) != nil {
			return path
		}
	}
	return ""
}

// begins finds what begins so: the tasks by their keys, and of a tenant the others by their names.
func (v *visit) begins(q string) (out []found) {
	of := v.ofOneTenant(pick(v.r.URL.Query(), "tenant"))
	named := q
	if before, name, ok := strings.Cut(q, "/"); ok { // tenant/name
		of.Set("tenant", before)
		named = name
	}
	for _, kind := range []struct {
		name, path, field, filter, text string
		id                              func(document) (name, path string)
	}{
		{"Tasks", "/tasks", "tasks", "key", q, func(d document) (string, string) { return text(d["id"]), "/tasks" + idPath(text(d["id"]), 3) }},
		{"Rules", "/periodics", "rules", "name", named, func(d document) (string, string) {
			return tenantOf(d) + "/" + text(d["name"]), pathOfRule(d)
		}},
		{"Flows", "/flows", "flows", "key", named, func(d document) (string, string) { return text(d["id"]), "/flows" + idPath(text(d["id"]), 2) }},
		{"Plans", "/plans", "plans", "plan_id", named, func(d document) (string, string) { return text(d["id"]), "/plans" + idPath(text(d["id"]), 2) }},
	} {
		query := url.Values{kind.filter: {kind.text}}
		if kind.path == "/tasks" {
			v.ofTenant(query)
		} else {
			query.Set("tenant", of.Get("tenant"))
		}
		all := v.at(kind.path, query)
		query.Set("limit", strconv.Itoa(mostFound))
		doc := v.try(unlessRefused, kind.path, query)
		f := found{Kind: kind.name}
		for _, d := range list(doc[kind.field]) {
			name, path := kind.id(object(d))
			f.Items = append(f.Items, foundItem{name, v.at(path, nil)})
		}
		if text(doc["next"]) != "" {
			f.All = all
		}
		if len(f.Items) > 0 || f.All != "" {
			out = append(out, f)
		}
	}
	return out
}
