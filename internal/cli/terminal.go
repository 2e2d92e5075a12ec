package cli

import (
	"strconv"
	"strings"

	"github.com/mscheduler/mscheduler/internal/input"
)

// Keys, names, errors and results are what others chose, the servers that tasks call among
// them. A terminal takes some of it for more than text: it would move the cursor, name the
// window, or clear what stands there. So [app.print] and [app.say] write all that people read
// through linesOnTerminal, and a table, whose cells have one line, its cells through onTerminal.
// JSON and YAML have escapes of their own.

// onTerminal is one line of text as it may go to a terminal: quoted, where it has what a
// terminal takes for more than text.
func onTerminal(s string) string {
	if input.Line("", s) != nil {
		return strconv.Quote(s)
	}
	return s
}

// linesOnTerminal is a text of any number of lines, in which whatever a terminal takes for more
// than text, other than tabs, is written as Go writes it: \x1b.
func linesOnTerminal(s string) string {
	var b strings.Builder
	for _, r := range strings.ReplaceAll(s, "\r\n", "\n") {
		if r == '\n' || r == '\t' || input.Line("", string(r)) == nil {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}
