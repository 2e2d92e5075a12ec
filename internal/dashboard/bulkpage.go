package dashboard

import "net/url"

var bulkRoutes = routes{"/bulk": (*visit).jobs, "/bulk/{tenant}/{id}": (*visit).job}

func (v *visit) jobs() error {
	doc, err := v.get("/bulk", v.ofTenant(pick(v.r.URL.Query(), "tenant", "page_token")))
	if err != nil {
		return err
	}
	v.render("jobs", page{Title: "Bulk jobs", Nav: "Tasks", Poll: 5, Data: document{"jobs": list(doc["jobs"]), "next": doc["next"]}})
	return nil
}

func (v *visit) job() error {
	path := "/bulk" + pathOf(v.r.PathValue("tenant"), v.r.PathValue("id"))
	job, err := v.get(path, nil)
	if err != nil {
		return err
	}
	v.render("job", page{Title: "Bulk job", Nav: "Tasks", Live: url.Values{"tenant": {v.r.PathValue("tenant")}, "type": {"mscheduler.bulk"}}, Poll: 2, Data: document{"job": job, "path": path}})
	return nil
}
