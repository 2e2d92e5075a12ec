package dashboard

import "github.com/mscheduler/mscheduler/internal/lifecycle"

var designRoutes = routes{"/design": (*visit).design}

// colour is a token of the design system. Its values are in app.css.
type colour struct {
	Name, Use string
	Ground    bool // it has a ground of its own
}

var colours = []colour{
	{Name: "ground", Use: "behind everything"},
	{Name: "paper", Use: "cards and tables"},
	{Name: "raised", Use: "dialogs"},
	{Name: "ink", Use: "text"},
	{Name: "dim", Use: "text that may be passed over"},
	{Name: "line", Use: "borders and axes"},
	{Name: "accent", Use: "links, focus and the main action"},
	{Name: "mark", Use: "the selected row"},
	{Name: "good", Use: "done", Ground: true},
	{Name: "bad", Use: "failed", Ground: true},
	{Name: "ask", Use: "waits for somebody", Ground: true},
	{Name: "run", Use: "runs", Ground: true},
	{Name: "wait", Use: "waits", Ground: true},
	{Name: "off", Use: "over, or of no account", Ground: true},
}

// design shows what all pages are made of.
func (v *visit) design() error {
	return v.render("design", page{Title: "Design system", Nav: "System", Data: document{
		"colours": colours, "states": lifecycle.Statuses, "value": document{"to": []any{"ann@example.com"}, "copies": 2},
	}})
}
