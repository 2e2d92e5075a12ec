// Package tickplan plans what becomes of the ticks of a periodic rule, as pure functions.
//
// A function takes the document of a rule, its calendar and a time, and returns the document
// as it must become, with what is to be done in planned. planner.go decides ticks, queue.go
// the queue of runs that wait, commands.go what people ask for and how runs end, and
// effective.go which run the failure policy judges. preview.go and whatif.go ask the same
// functions about the future. Package periodic writes the decisions and carries them out.
package tickplan
