package dashboard

import (
	"fmt"
	"slices"
	"strings"
)

// strip is the picture of the last runs of a rule, the newest at the right end.
type strip struct {
	Width int
	Cells []stripCell
	Words string // what the picture shows
}

// stripCell is one run: its shape tells the kind of its state, and its title the rest.
type stripCell struct {
	X     int
	Shape string // a path within 10 by 16
	Class string
	Title string
}

const stripStep = 12

// stripShapes are the shapes of the classes of states.
var stripShapes = map[string]string{
	"good": "M1 3h8v10h-8z",         // a block
	"bad":  "M5 1l5 7-5 7-5-7z",     // a diamond
	"run":  "M1 2l9 6-9 6z",         // a triangle
	"wait": "M5 3a5 5 0 1 0 .01 0z", // a disc
	"ask":  "M5 2l5 11h-10z",        // a warning
	"off":  "M1 7h8v2h-8z",          // a dash
}

// stripOf draws runs, which come with the newest first.
func stripOf(runs []any) strip {
	s := strip{Width: max(len(runs), 1) * stripStep}
	counts := map[string]int{}
	for i, r := range slices.Backward(runs) {
		run := object(r)
		l := stateOf(run["status"])
		title := l.Word + ", tick of " + text(run["nominal"])
		if n := integer(run["ticks"]); n > 1 {
			title += fmt.Sprintf(" and %d more", n-1)
		}
		if reason := text(run["reason"]); reason != "" {
			title += ", " + reason
		}
		if took := between(text(run["started_at"]), text(run["ended_at"])); took != "" {
			title += ", took " + took
		}
		counts[l.Word]++
		s.Cells = append(s.Cells, stripCell{X: (len(runs) - 1 - i) * stripStep, Shape: stripShapes[l.Class], Class: l.Class, Title: title})
	}
	var words []string
	for word, n := range counts {
		words = append(words, fmt.Sprintf("%d %s", n, word))
	}
	slices.Sort(words)
	s.Words = fmt.Sprintf("The last %d runs: %s", len(runs), strings.Join(words, ", "))
	return s
}
