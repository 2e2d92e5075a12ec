package dashboard

// section is an entry of the navigation.
type section struct {
	Name string
	Path string
	Key  string // after g, it goes there
	Role string // who sees it; "" = everybody
	All  bool   // it shows what belongs to no tenant, so only tokens for every tenant see it
}

// sectionsOf are those that somebody sees.
func sectionsOf(who viewer) (out []section) {
	for _, s := range sections {
		if (s.Role == "" || who.May(s.Role)) && (!s.All || who.Tenants == nil) {
			out = append(out, s)
		}
	}
	return out
}

var sections = []section{
	{Name: "Overview", Path: "/", Key: "o"},
	{Name: "Tasks", Path: "/tasks", Key: "t"},
	{Name: "Periodic", Path: "/periodics", Key: "r"},
	{Name: "Flows", Path: "/flows", Key: "f"},
	{Name: "Plans", Path: "/plans", Key: "p"},
	{Name: "Types", Path: "/types", Key: "y", All: true},
	{Name: "Workers", Path: "/workers", Key: "w", All: true},
	{Name: "Waiting", Path: "/waiting", Key: "a"},
	{Name: "Events", Path: "/events", Key: "e"},
	{Name: "Audit", Path: "/audit", Key: "u", Role: "admin"},
	{Name: "Access", Path: "/access", Key: "c", Role: "admin", All: true},
	{Name: "System", Path: "/system", Key: "s", All: true},
}
