package demo

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/human"
)

const (
	redraw    = 100 * time.Millisecond // on a terminal
	plainLine = 2 * time.Second        // elsewhere: a line of progress
	barWidth  = 40
)

// view tells a person what happens. On a terminal the notes scroll by above a block
// that is drawn again and again; elsewhere there are notes and a line of progress now
// and then. The fleet's lock guards it.
type view struct {
	*demo
	done chan struct{}
	quit chan struct{}
	once sync.Once

	notes   []string // not written yet
	drawn   int      // lines of the block on the screen
	began   time.Duration
	sending bool // the tasks are not there yet
}

func newView(d *demo) *view {
	return &view{demo: d, done: make(chan struct{}), quit: make(chan struct{}), sending: true}
}

// start begins to show.
func (v *view) start() {
	v.began = v.Clock.Monotonic()
	where := "an embedded server"
	if v.URI != "" {
		where = "a database of its own on your deployment"
	}
	v.note("%s http tasks, %d workers, %s", thousands(v.Tasks), v.Workers, where)
	go v.run()
}

// close shows the last state and ends.
func (v *view) close() {
	v.once.Do(func() { close(v.quit) })
	if v.began != 0 {
		<-v.done
	}
}

// note says that something happened.
func (v *view) note(format string, args ...any) {
	v.Look(func() {
		v.tellTakeovers() // they were first
		v.addNote(fmt.Sprintf(format, args...))
	})
}

func (v *view) at() string { return fmt.Sprintf("%5.1fs", (v.Clock.Monotonic() - v.began).Seconds()) }

func (v *view) addNote(text string) { v.notes = append(v.notes, v.at()+"  "+text) }

func (v *view) run() {
	defer close(v.done)
	every := redraw
	tick := time.NewTicker(every)
	defer tick.Stop()
	lastLine := v.Clock.Monotonic()
	for {
		select {
		case <-v.quit:
			v.show(true)
			return
		case <-tick.C:
			now := v.Clock.Monotonic()
			full := v.Terminal || now-lastLine >= plainLine
			if full {
				lastLine = now
			}
			v.show(full)
		}
	}
}

// show writes the notes that wait and, when full, how things stand.
func (v *view) show(full bool) {
	var b strings.Builder
	v.Look(func() { v.draw(&b, full) })
	_, _ = fmt.Fprint(v.Watch, b.String()) // nobody watches any more: the demo goes on
}

func (v *view) draw(b *strings.Builder, full bool) {
	v.tellTakeovers()
	if v.drawn > 0 {
		fmt.Fprintf(b, "\x1b[%dA\x1b[J", v.drawn)
	}
	for _, n := range v.notes {
		b.WriteString(n + "\n")
	}
	v.notes = nil
	switch {
	case v.Terminal:
		block := v.block()
		v.drawn = strings.Count(block, "\n")
		b.WriteString(block)
	case full && !v.sending:
		b.WriteString(v.line())
	}
}

// tellTakeovers makes one note of the takeovers since the last look, for each pair.
func (v *view) tellTakeovers() {
	for pair, n := range v.takers {
		v.addNote(fmt.Sprintf("%s takes over %s of %s", pair[0], human.Plural(n, "task", "tasks"), pair[1]))
	}
	clear(v.takers)
}

// line is how things stand, on one line.
func (v *view) line() string {
	var states []string
	for _, w := range v.workers {
		states = append(states, w.id+" "+string(w.now()))
	}
	return fmt.Sprintf("%s  %s of %s done, %d takeovers, %d late results refused; %s\n",
		v.at(), thousands(v.target.done), thousands(v.Tasks), v.takes, v.fenced, strings.Join(states, ", "))
}

// block is how things stand, drawn.
func (v *view) block() string {
	n := v.target.done
	var b strings.Builder
	filled := barWidth * n / v.Tasks
	fmt.Fprintf(&b, "\n  %s%s  %s of %s\n\n", strings.Repeat("█", filled), strings.Repeat("░", barWidth-filled), thousands(n), thousands(v.Tasks))
	for _, w := range v.workers {
		mark := fmt.Sprintf("\x1b[%sm%-8s\x1b[0m", paint[w.now()], w.now())
		detail := strings.Repeat("▪", min(len(v.target.flying[w.id]), v.Concurrency))
		if lost := len(v.lost[w.id]); lost > 0 {
			detail += fmt.Sprintf("  lost %d to others", lost)
		}
		if w.fenced > 0 {
			detail += fmt.Sprintf("  %d late results refused", w.fenced)
		}
		fmt.Fprintf(&b, "  %-10s %s %6s done  %s\n", w.id, mark, thousands(w.finished), detail)
	}
	fmt.Fprintf(&b, "\n  takeovers %-6d late results refused %d\n", v.takes, v.fenced)
	return b.String()
}

// paint are the colours of states.
var paint = map[state]string{working: "32", killed: "31", frozen: "36", stopped: "90", starting: "90"}
