// Package rest is the REST API: the operations, who may call them, and what they read and write. Package server
// is what services import of it.
//
//	request ──▶ token, role, tenant ──▶ path, query, body ──▶ a door (producer, admin, pull, periodic, plan, flow) ──▶ document
//
// The API has one form for each document: what it takes is what files and flags of the command line say, and
// what it gives is what the command line prints with -o json. Its description, OpenAPI 3.1, is generated from
// the code that answers.
//
//	api.go        the handler
//	operation.go access.go   what all operations share, and who may call them
//	body.go schema.go        what is read and written, with their schemas
//	problem.go    errors
//	description.go   the description of the API itself
//	tasks.go tasksend.go taskchange.go types.go workers.go pull*.go   the operations
//	periodics.go periodiccommands.go periodicpreviews.go runs.go plans.go plancommands.go   those of rules and plans
//	flows*.go streams.go     those of flows and streams
//	paging.go     pages of lists that are sorted by time or name
//	waiting.go    fetches that wait for tasks
//	bulk.go explain.go stats.go   jobs that change many tasks; why a task is where it is; what waits and what has ended
//	page.go page/ examples.go   the page on which people try the API; examples of bodies
//	tokens.go me.go   access tokens; what the one of a request allows
//	callbacks.go  completions of runs by their targets
//	events.go hub.go watching.go   Server-Sent Events; the one subscription that all listeners share; its source
package rest
