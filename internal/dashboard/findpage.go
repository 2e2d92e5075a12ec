package dashboard

import (
	"net/http"
	"net/url"
	"slices"
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
		if path, err := v.exactly(q); err != nil || path != "" {
			if err != nil {
				return err
			}
			return v.goTo(path)
		}
		var err error
		if all, err = v.begins(q); err != nil {
			return err
		}
		if len(all) == 1 && len(all[0].Items) == 1 && all[0].All == "" {
			http.Redirect(v.w, v.r, all[0].Items[0].URL, http.StatusSeeOther)
			return nil
		}
	}
	v.render("find", page{Title: "Find", Data: document{"q": q, "found": all}})
	return nil
}

// exactly is the path of the task of an id, or of the tasks of a type; "" = there is none.
func (v *visit) exactly(q string) (path string, err error) {
	parts := strings.SplitN(q, "/", 3)
	if len(parts) == 1 {
		doc, err := v.get("/tasks", v.ofTenant(url.Values{"type": {q}, "limit": {"1"}}))
		if len(list(doc["tasks"])) > 0 {
			path = "/tasks?" + v.ofChosen(url.Values{"type": {q}}).Encode()
		}
		return path, unlessRefused(err)
	}
	for _, id := range [][]string{parts, {v.ofOneTenant(url.Values{}).Get("tenant"), parts[0], strings.Join(parts[1:], "/")}} {
		if len(id) < 3 {
			continue
		}
		if _, err = v.get("/tasks"+pathOf(id...), nil); err == nil {
			return "/tasks" + pathOf(id...), nil
		} else if unlessRefused(err) != nil {
			return "", err
		}
	}
	return "", nil
}

// begins finds what begins so: the tasks by their keys, and of a tenant the others by their names.
func (v *visit) begins(q string) (out []found, err error) {
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
		doc, err := v.get(kind.path, query)
		if unlessRefused(err) != nil {
			return nil, err
		}
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
	return out, nil
}

// unlessRefused is no error if the API says that there is no such thing for this viewer, or that nothing can have such
// a name.
func unlessRefused(err error) error {
	if err != nil && slices.Contains([]int{http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity}, problemOf(err).Status) {
		return nil
	}
	return err
}
