package model

import (
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Bounds of the steps of a task. What several workers save, each for itself, lies in one
// document, so each has its share of MaxStepsBytes.
const (
	MaxSteps      = 1000    // of one worker on one task
	MaxStepBytes  = 1 << 20 // of one value
	MaxStepsBytes = 4 << 20 // of all steps of a task, with their names
	stepBytes     = 64      // about what a step needs beside value, name and worker
)

// Step is a part of a handler that is done once and for all: its value was saved, fenced
// by the open execution, before the handler went on, and whoever runs the task next gets
// it. Steps are in the order in which they were saved, and end with the life of the task.
type Step struct {
	Name     string        `bson:"name"`
	WorkerID string        `bson:"worker_id"`
	Value    bson.RawValue `bson:"value,omitempty"` // absent = null
	At       time.Time     `bson:"at"`
	Attempt  int           `bson:"attempt"` // of the execution that saved it
}

// size is what the step adds to its document.
func (s *Step) size() int { return len(s.Name) + len(s.WorkerID) + len(s.Value.Value) + stepBytes }

// ValidStepName checks the name of a step: 1 to 100 of [a-zA-Z0-9._-].
func ValidStepName(field, name string) error { return ValidName(field, name) }

// StepsOf are the steps that the worker need not do again. With one wanted worker it does
// not matter who saved them; several workers each do their own.
func (t *Task) StepsOf(workerID string) []Step {
	if t.Wanted() == 1 {
		return t.Steps
	}
	return slices.DeleteFunc(slices.Clone(t.Steps), func(s Step) bool { return s.WorkerID != workerID })
}

// StepRoom says whether there is room for one more step beside those that a worker has,
// on a task that wants so many workers. The error names what is too many or too large.
func StepRoom(done []Step, s Step, wanted int) error {
	if len(done) >= MaxSteps {
		return Invalid("steps", "are %d already; a task has at most %d", len(done), MaxSteps)
	}
	total := s.size()
	for i := range done {
		total += done[i].size()
	}
	if most := MaxStepsBytes / max(wanted, 1); total > most {
		return Invalid("steps", "would have %d bytes with step %s; at most %d are allowed, all steps together (%d for each of %d workers)",
			total, s.Name, MaxStepsBytes, most, max(wanted, 1))
	}
	return nil
}

// RetryFrom makes a task run again by a person's word from a named step on: the steps
// before it stay, it and what follows are done again. Of several workers each goes back
// to its own step of that name, and those that have none keep what they have. What ended
// without success begins a new life, as with [RetryNow]; what waits is due now.
func RetryFrom(t *Task, step, remark string, eff Effective, now time.Time) (*Task, error) {
	kept := stepsBefore(t, step)
	switch {
	case t.OpenExecutions() > 0:
		return nil, refuse(t, "it can go back to a step only while nobody runs it")
	case t.Status != StatusNew && t.Status != StatusError && t.Status != StatusFailure && t.Status != StatusPending && t.Status != StatusCancelled:
		return nil, refuse(t, "only New, Error, Failure, Pending and Cancelled can be retried from a step")
	case len(kept) == len(t.Steps):
		return nil, refuse(t, "it has no step "+clip(step, 120)+"; "+stepNames(t.Steps))
	}
	var c *Task
	if t.Status.Ended() {
		c = retryLife(t, now)
	} else {
		c = t.next(now)
		c.runNow(now)
	}
	c.Steps = kept
	c.Remark = clip(remark, maxTextBytes)
	settle(c, eff, now)
	return c, nil
}

// stepsBefore leaves out the named step and what was saved after it: by anybody where one
// worker is wanted, else by the same worker.
func stepsBefore(t *Task, name string) []Step {
	var kept []Step
	var back []string // the workers that go back
	for _, s := range t.Steps {
		if s.Name == name {
			back = append(back, s.WorkerID)
		}
		if len(back) == 0 || t.Wanted() > 1 && !slices.Contains(back, s.WorkerID) {
			kept = append(kept, s)
		}
	}
	return kept
}

func stepNames(steps []Step) string {
	if len(steps) == 0 {
		return "it has none at all"
	}
	const listed = 20
	var names []string
	for i := range steps {
		if !slices.Contains(names, steps[i].Name) {
			names = append(names, steps[i].Name)
		}
	}
	if len(names) > listed {
		names = append(names[:listed], "…")
	}
	return "it has " + strings.Join(names, ", ")
}
