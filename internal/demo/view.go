package demo

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	redraw    = 100 * time.Millisecond // on a terminal
	plainLine = 2 * time.Second        // elsewhere: a line of progress
	barWidth  = 40
)

// view tells a person what happens. On a terminal the notes scroll by above a block
// that is drawn again and again; elsewhere there are notes and a line of progress now
// and then.
type view struct {
	d    *demo
	done chan struct{}
	quit chan struct{}
	once sync.Once

	mu      sync.Mutex
	notes   []string // not written yet
	drawn   int      // lines of the block on the screen
	began   time.Duration
	sending bool // the tasks are not there yet
	takes   int  // takeovers and lapses, as the workers report them
	fenced  int
	takers  map[[2]string]int // took over: by whom, from whom; not told yet
}

func newView(d *demo) *view {
	return &view{d: d, done: make(chan struct{}), quit: make(chan struct{}), sending: true, takers: map[[2]string]int{}}
}

// start begins to show.
func (v *view) start() {
	v.began = v.d.clock.Monotonic()
	where := "an embedded server"
	if v.d.URI != "" {
		where = "a database of its own on your deployment"
	}
	v.note("%s http tasks, %d workers, %s", thousands(v.d.Tasks), v.d.Workers, where)
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
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tellTakeovers() // they were first
	v.addNote(fmt.Sprintf(format, args...))
}

func (v *view) addNote(text string) {
	at := v.d.clock.Monotonic() - v.began
	v.notes = append(v.notes, fmt.Sprintf("%5.1fs  %s", at.Seconds(), text))
}

func (v *view) sent() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sending = false
}

// event hears what the workers report.
func (v *view) event(e event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch e.Kind {
	case "taken_over", "lapsed":
		v.takes++
		v.takers[[2]string{e.WorkerID, e.Previous}]++
	case "fenced":
		v.fenced++
	}
}

func (v *view) run() {
	defer close(v.done)
	every := redraw
	tick := time.NewTicker(every)
	defer tick.Stop()
	lastLine := v.d.clock.Monotonic()
	for {
		select {
		case <-v.quit:
			v.show(true)
			return
		case <-tick.C:
			now := v.d.clock.Monotonic()
			full := v.d.Terminal || now-lastLine >= plainLine
			if full {
				lastLine = now
			}
			v.show(full)
		}
	}
}

// show writes the notes that wait and, when full, how things stand.
func (v *view) show(full bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tellTakeovers()
	var b strings.Builder
	if v.d.Terminal {
		if v.drawn > 0 {
			fmt.Fprintf(&b, "\x1b[%dA\x1b[J", v.drawn)
		}
		v.drawn = 0
	}
	for _, n := range v.notes {
		b.WriteString(n + "\n")
	}
	v.notes = nil
	switch {
	case v.d.Terminal:
		block := v.block()
		v.drawn = strings.Count(block, "\n")
		b.WriteString(block)
	case full && !v.sending:
		b.WriteString(v.line())
	}
	_, _ = fmt.Fprint(v.d.Watch, b.String()) // nobody watches any more: the demo goes on
}

// tellTakeovers makes one note of the takeovers since the last look, for each pair.
func (v *view) tellTakeovers() {
	for pair, n := range v.takers {
		tasks := "1 task"
		if n > 1 {
			tasks = fmt.Sprintf("%d tasks", n)
		}
		v.addNote(fmt.Sprintf("%s takes over %s of %s", pair[0], tasks, pair[1]))
	}
	clear(v.takers)
}

// line is how things stand, on one line.
func (v *view) line() string {
	n := v.d.target.happened()
	states := make([]string, 0, len(v.d.fleet.workers))
	v.d.fleet.mu.Lock()
	for _, w := range v.d.fleet.workers {
		states = append(states, w.id+" "+string(w.state))
	}
	v.d.fleet.mu.Unlock()
	at := v.d.clock.Monotonic() - v.began
	return fmt.Sprintf("%5.1fs  %s of %s done, %d takeovers, %d late results refused; %s\n",
		at.Seconds(), thousands(n), thousands(v.d.Tasks), v.takes, v.fenced, strings.Join(states, ", "))
}

// block is how things stand, drawn.
func (v *view) block() string {
	n := v.d.target.happened()
	var b strings.Builder
	filled := barWidth * n / v.d.Tasks
	fmt.Fprintf(&b, "\n  %s%s  %s of %s\n\n", strings.Repeat("█", filled), strings.Repeat("░", barWidth-filled), thousands(n), thousands(v.d.Tasks))
	for _, w := range v.workers() {
		b.WriteString(w + "\n")
	}
	fmt.Fprintf(&b, "\n  takeovers %-6d late results refused %d\n", v.takes, v.fenced)
	return b.String()
}

// paint are the colours of states.
var paint = map[state]string{working: "32", killed: "31", frozen: "36", stopped: "90", starting: "90"}

func (v *view) workers() []string {
	flights := map[string]int{}
	for _, w := range v.d.fleet.all() {
		flights[w.id] = v.d.target.inFlight(w.id)
	}
	v.d.fleet.mu.Lock()
	defer v.d.fleet.mu.Unlock()
	var out []string
	for _, w := range v.d.fleet.workers {
		mark := fmt.Sprintf("\x1b[%sm%-8s\x1b[0m", paint[w.state], w.state)
		detail := strings.Repeat("▪", min(flights[w.id], v.d.Concurrency))
		if lost := len(v.d.fleet.taken[w.id]); lost > 0 {
			detail += fmt.Sprintf("  lost %d to others", lost)
		}
		if w.fenced > 0 {
			detail += fmt.Sprintf("  %d late results refused", w.fenced)
		}
		out = append(out, fmt.Sprintf("  %-10s %s %6s done  %s", w.id, mark, thousands(w.finished), detail))
	}
	return out
}
