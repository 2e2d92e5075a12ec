package dashboard

// section is an entry of the navigation.
type section struct {
	Name string
	Path string
	Key  string // after g, it goes there
	Role string // who sees it; "" = everybody
}

var sections = []section{
	{Name: "Overview", Path: "/", Key: "o"},
	{Name: "Tasks", Path: "/tasks", Key: "t"},
}
