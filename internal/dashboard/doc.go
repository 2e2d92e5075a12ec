// Package dashboard is the pages on which people see what happens and change it. Package server mounts it beside the
// REST API.
//
//	browser ──▶ page ──▶ operations of the REST API, in the same process ──▶ template
//
// A page knows the API and nothing else: it asks the API's handler as a client would, with the token of the viewer.
// So who sees what, what is audited, what is valid and how an error reads is decided in one place. What a person
// changes goes from the browser to the API through /ui/api/, which adds the token of the viewer's cookie.
//
//	dashboard.go  the handler, its routes and headers
//	session.go    sign-in, the cookie, what the viewer may do
//	ask.go        requests to the API
//	live.go       tells pages that something has changed
//	files.go      templates, and the static files with their versions
//	format.go     how values look
//	table.go      pages of lists; download.go writes them as files
//	timeline.go strip.go month.go   pictures
//	*page.go      a page, or the pages of one kind of thing
package dashboard
