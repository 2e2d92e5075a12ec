// Package rulechange is what the command line and the REST API share of what people do to periodic rules.
//
//	edit.go       a written rule becomes an edit of the stored one, and is written
//	forecast.go   what an edit changes of what becomes of ticks
//	triggered.go  what became of a run that was just triggered
package rulechange
