package dashboard

import "net/url"

var bulkRoutes = routes{"/bulk": (*visit).jobs, "/bulk/{tenant}/{id}": (*visit).job}

func (v *visit) jobs() error {
	asked := v.ofTenant(pick(v.r.URL.Query(), "tenant", "page_token"))
	doc := v.read("/bulk", asked)
	tenant := asked.Get("tenant")
	if len(v.who.Tenants) == 1 { // the API lists those of the only one
		tenant = v.who.Tenants[0]
	}
	return v.render("jobs", page{Title: "Bulk jobs", Nav: "Tasks", Poll: 5, Data: document{"jobs": list(doc["jobs"]), "next": doc["next"], "tenant": tenant}})
}

func (v *visit) job() error {
	path := "/bulk" + pathOf(v.r.PathValue("tenant"), v.r.PathValue("id"))
	job := v.read(path, nil)
	return v.render("job", page{Title: "Bulk job", Nav: "Tasks", Live: url.Values{"tenant": {v.r.PathValue("tenant")}, "type": {"mscheduler.bulk"}}, Poll: 2, Data: document{"job": job, "path": path, "tenant": v.r.PathValue("tenant")}})
}
