package store

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// StepWrite is a step that an open execution wants to save.
type StepWrite struct {
	ID     string
	ExecID string
	Index  int  // of the execution in worker_states
	Many   bool // the task wants several workers: each saves its own steps
	Step   model.Step
}

// SavedStep is what became of a [StepWrite].
type SavedStep struct {
	// Fenced: the execution no longer holds its task, and the step is not there.
	Fenced bool
	// Missed: the execution holds its task, but the step was not written, because
	// something held the document for too long. The same again is safe.
	Missed bool
	// Refused is why the server does not save the step: the document would become too
	// large, say.
	Refused error
	// Step is what the task has under that name, which is not what was to be written where
	// an earlier execution's step came first.
	Step model.Step
}

// SaveSteps saves steps of any number of executions in one update command and, only where
// that did not match everything, one read. A step is written once, however often it is
// repeated: only where there is none of its name. An error means that nothing is known
// of any of them; then the same again is safe. If the server refuses this client in one of several
// commands, only steps that are not there are Refused. search is that of [Tasks.Writes]. Index: _id.
func (s *Tasks) SaveSteps(ctx context.Context, writes []StepWrite, search time.Duration) ([]SavedStep, error) {
	if len(writes) == 0 {
		return nil, nil
	}
	statements := make([]statement, len(writes))
	for i := range writes {
		statements[i] = stepStatement(&writes[i])
	}
	x, denied := s.execute(ctx, statements, search)
	if denied != nil && !Denied(denied) {
		return nil, denied
	}
	if x.clean {
		return collect(writes, func(w StepWrite) SavedStep { return SavedStep{Step: w.Step} }), nil
	}
	// No command has waited until a majority has what is there of the held and the refused ones.
	saved, err := s.lookAtSteps(ctx, writes, len(x.held) > 0 || denied != nil)
	for i := range saved {
		if why := cmp.Or(x.refused[writes[i].ID], denied); why != nil && saved[i].Missed {
			saved[i].Missed, saved[i].Refused = false, why
		}
	}
	return saved, err
}

func stepStatement(w *StepWrite) statement {
	start, u := bsoncore.AppendDocumentStart(nil)
	push, u := bsoncore.AppendDocumentElementStart(u, "$push")
	u = bsoncore.AppendDocumentElement(u, "steps", codec.AppendStep(nil, &w.Step))
	u, _ = bsoncore.AppendDocumentEnd(u, push)
	u, _ = bsoncore.AppendDocumentEnd(u, start)
	path, execs, name := "worker_states."+strconv.Itoa(w.Index), []string{w.ExecID}, w.Step.Name
	byWorker := ""
	if w.Many {
		byWorker = w.Step.WorkerID
	}
	return statement{ids: []string{w.ID}, update: u, guard: func(dst []byte) []byte {
		return appendNoStep(appendOpen(dst, path, execs), name, byWorker)
	}}
}

// appendNoStep adds the condition that there is no step of the name: by that worker, or
// by anybody where none is given.
func appendNoStep(dst []byte, name, workerID string) []byte {
	if workerID == "" {
		start, dst := bsoncore.AppendDocumentElementStart(dst, "steps.name")
		dst = bsoncore.AppendStringElement(dst, "$ne", name)
		dst, _ = bsoncore.AppendDocumentEnd(dst, start)
		return dst
	}
	steps, dst := bsoncore.AppendDocumentElementStart(dst, "steps")
	not, dst := bsoncore.AppendDocumentElementStart(dst, "$not")
	match, dst := bsoncore.AppendDocumentElementStart(dst, "$elemMatch")
	dst = bsoncore.AppendStringElement(dst, "name", name)
	dst = bsoncore.AppendStringElement(dst, "worker_id", workerID)
	for _, start := range []int32{match, not, steps} {
		dst, _ = bsoncore.AppendDocumentEnd(dst, start)
	}
	return dst
}

// lookAtSteps reads what became of the writes. The values, which may be large, are read
// only of tasks that have somebody else's. durable reads only what a failover cannot undo.
// Index: _id.
func (s *Tasks) lookAtSteps(ctx context.Context, writes []StepWrite, durable bool) ([]SavedStep, error) {
	ids := collect(writes, func(w StepWrite) string { return w.ID })
	coll := s.tasks
	if durable {
		coll = s.durable(coll)
	}
	tasks, err := s.byIDs(ctx, coll, "looking at saved steps", ids, options.Find().
		SetProjection(fields("worker_states", "options", "steps.name", "steps.worker_id", "steps.at", "steps.attempt")))
	if err != nil {
		return nil, err
	}
	out := make([]SavedStep, len(writes))
	for i := range writes {
		w := &writes[i]
		t, exists := tasks[w.ID]
		if exists && t == nil {
			out[i].Refused = CannotRead(w.ID)
			continue
		}
		var there *model.Step
		var open bool
		if t != nil {
			_, st := lifecycle.ExecutionOf(t, w.ExecID)
			open, there = st != nil && lifecycle.Open(st), w.in(t)
		}
		switch {
		case there != nil && there.WorkerID == w.Step.WorkerID && there.At.Equal(w.Step.At) && there.Attempt == w.Step.Attempt:
			out[i].Step = w.Step // by this write, or by the one it repeats
		case !open:
			out[i].Fenced = true
		case there == nil:
			out[i].Missed = true
		default:
			whole, err := s.Get(ctx, w.ID)
			if err != nil {
				return nil, err
			}
			if there = w.in(whole); there == nil { // gone since: the same again says what is now
				out[i].Missed = true
				continue
			}
			out[i].Step = *there
		}
	}
	return out, nil
}

// in finds the step that the task has under the name.
func (w *StepWrite) in(t *model.Task) *model.Step {
	for i := range t.Steps {
		if st := &t.Steps[i]; st.Name == w.Step.Name && (!w.Many || st.WorkerID == w.Step.WorkerID) {
			return st
		}
	}
	return nil
}
