package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/mscheduler/mscheduler/internal/fleet"
)

// event is what a worker reports: the fields of consumer.Event that the demo needs.
type event struct {
	Kind     string    `json:"kind"`
	At       time.Time `json:"at"`
	TaskID   string    `json:"task_id"`
	ExecID   string    `json:"exec_id"`
	Previous string    `json:"previous"`
	Outcome  string    `json:"outcome"`
}

// state of a worker process, as it is shown.
type state string

const (
	starting state = "starting"
	working  state = "working"
	killed   state = "killed"
	frozen   state = "frozen"
	stopped  state = "stopped"
)

// worker is one process. The fleet's lock guards it.
type worker struct {
	*fleet.Process
	id       string
	state    state
	finished int             // executions it ended itself
	fenced   int             // of its late results, refused
	taken    int             // tasks of others that it took over
	reports  map[string]bool // the executions whose end or refusal it reported
}

// now is the state of the worker at this moment.
func (w *worker) now() state {
	if w.state != killed && w.Ended() {
		return stopped
	}
	return w.state
}

// reports are what the workers reported. The fleet's lock guards them.
type reports struct {
	workers []*worker
	started map[string]*calls              // by task
	lost    map[string]map[string]struct{} // by previous worker: the tasks that others took over
	takers  map[[2]string]int              // takeovers that the view has yet to show: by whom, from whom
	takes   int                            // takeovers and lapses
	fenced  int                            // refused results
	lateOK  int                            // refused results that were successes
	dropped int                            // events that a worker could not report
}

// calls of a task's handler, as the workers reported them.
type calls struct {
	first, last time.Time
	by          string // whose the last was
}

// holding is an execution that a worker has.
type holding struct{ task, exec string }

func (h holding) String() string { return h.task + " by execution " + h.exec }

// startWorkers starts the processes and waits until they are in the database.
func (d *demo) startWorkers(ctx context.Context) error {
	for i := range d.Workers {
		if err := d.startWorker(fmt.Sprintf("worker-%d", i+1)); err != nil {
			return err
		}
	}
	d.view.note("started %d workers, each in its own process", d.Workers)
	return d.poll(ctx, "the workers to start", func() (bool, error) {
		docs, err := d.db.Store.Workers.List(ctx) // of engines, too
		n := 0
		d.Set(func() {
			for _, w := range d.workers {
				for _, doc := range docs {
					if w.id == doc.ID && w.state == starting {
						w.state = working
					}
				}
				if w.state == working {
					n++
				}
			}
		})
		return n == d.Workers, err
	})
}

// startWorker starts this binary again, as `work`. A worker that is idle looks for lapsed
// leases with its polls: with leases this short the usual 30 s would be a long time to watch.
func (d *demo) startWorker(id string) (err error) {
	w := &worker{id: id, state: starting, reports: map[string]bool{}}
	c := d.command(id, "work", "--worker-id", id, "--concurrency", fmt.Sprint(d.Concurrency), "--poll-interval", "1s",
		"--flow", "--events", "--stop-with-stdin", "--log-level", "info")
	c.Log = filepath.Join(d.dir, id+".log")
	c.Line = func(line []byte) error {
		var e event
		if json.Unmarshal(line, &e) == nil { // what is no event is of no interest
			d.Set(func() { d.take(w, e) })
		}
		return nil
	}
	if w.Process, err = d.Start(c); err == nil {
		d.Set(func() { d.workers = append(d.workers, w) })
	}
	return err
}

// command is this binary on the demo's database, whose address goes by the environment:
// other users cannot read it there.
func (d *demo) command(name string, args ...string) fleet.Command {
	env := fleet.Env(d.Environ, "MSCHEDULER_MONGODB_URI="+d.db.URI, "MSCHEDULER_DATABASE="+d.Database)
	return fleet.Command{Name: name, Path: d.Executable, Args: args, Env: env}
}

func (r *reports) take(w *worker, e event) {
	switch e.Kind {
	case "started":
		r.called(w, e)
	case "finished":
		w.finished++
		w.reports[e.ExecID] = true
	case "fenced":
		w.fenced++
		r.fenced++
		w.reports[e.ExecID] = true
		if e.Outcome == "" {
			r.lateOK++
		}
	case "taken_over", "lapsed":
		if r.lost[e.Previous] == nil {
			r.lost[e.Previous] = map[string]struct{}{}
		}
		r.lost[e.Previous][e.TaskID] = struct{}{}
		r.takers[[2]string{w.id, e.Previous}]++
		r.takes++
		w.taken++
	case "dropped":
		r.dropped++
	}
}

func (r *reports) called(w *worker, e event) {
	c := r.started[e.TaskID]
	if c == nil {
		c = &calls{first: e.At}
		r.started[e.TaskID] = c
	}
	if e.At.Before(c.first) {
		c.first = e.At
	}
	if e.At.After(c.last) {
		c.last, c.by = e.At, w.id
	}
}

// holds reports whether the worker still has this, as far as anybody reported: others did not
// find its lease lapsed, nor call the handler after it; and it did not give it back.
func (r *reports) holds(w *worker, h holding) bool {
	_, lapsed := r.lost[w.id][h.task]
	c := r.started[h.task]
	return !lapsed && !w.reports[h.exec] && (c == nil || c.by == w.id)
}
