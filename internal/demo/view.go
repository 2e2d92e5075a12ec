package demo

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/mscheduler/mscheduler/internal/human"
)

const (
	lookEvery = 100 * time.Millisecond // for takeovers
	linesOf   = 20                     // looks between two lines of progress
)

// view tells a person what happens, a line each, with a line of progress now and then. The
// fleet's lock guards it.
type view struct {
	*demo
	began   time.Duration
	sending bool   // the tasks are not there yet
	stop    func() // nil before start

	writing sync.Mutex // a line at a time, outside the fleet's lock: a terminal may stand still
}

func newView(d *demo) *view { return &view{demo: d, sending: true} }

// start begins to show.
func (v *view) start() {
	v.began = v.Clock.Monotonic()
	where := "an embedded server"
	if v.URI != "" {
		where = "a database of its own on your deployment"
	}
	v.note("%s http tasks, %d workers, %s", thousands(v.Tasks), v.Workers, where)
	quit, done := make(chan struct{}), make(chan struct{})
	v.stop = sync.OnceFunc(func() {
		close(quit)
		<-done
	})
	go func() {
		defer close(done)
		v.run(quit)
	}()
}

// close shows the last state and ends.
func (v *view) close() {
	if v.stop != nil {
		v.stop()
	}
}

func (v *view) run(quit <-chan struct{}) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for looks := 1; ; looks++ {
		select {
		case <-quit:
			v.say(v.progress)
			return
		case <-tick.C:
		}
		if looks%linesOf == 0 {
			v.say(v.progress)
		} else {
			v.say(func() string { return "" })
		}
	}
}

// note says that something happened.
func (v *view) note(format string, args ...any) {
	v.say(func() string { return fmt.Sprintf(format, args...) })
}

// say writes the takeovers since the last look, a line for each pair, and what happened after
// them, if it is anything.
func (v *view) say(what func() string) {
	v.writing.Lock()
	defer v.writing.Unlock()
	var lines []string
	v.Look(func() {
		for pair, n := range v.takers {
			lines = append(lines, fmt.Sprintf("%s takes over %s of %s", pair[0], human.Plural(n, "task", "tasks"), pair[1]))
		}
		clear(v.takers)
		if text := what(); text != "" {
			lines = append(lines, text)
		}
	})
	for _, line := range lines {
		_, _ = fmt.Fprintf(v.Watch, "%5.1fs  %s\n", (v.Clock.Monotonic() - v.began).Seconds(), line) // nobody watches any more: the demo goes on
	}
}

// progress is how things stand; nothing while the tasks are sent.
func (v *view) progress() string {
	if v.sending {
		return ""
	}
	var states []string
	for _, w := range v.workers {
		states = append(states, w.id+" "+string(w.now()))
	}
	return fmt.Sprintf("%s of %s done, %d takeovers, %d late results refused; %s",
		thousands(v.target.done), thousands(v.Tasks), v.takes, v.fenced, strings.Join(states, ", "))
}
