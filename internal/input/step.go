package input

import (
	"slices"
	"strings"

	"github.com/mscheduler/mscheduler/model"
)

// Bounds of the steps of a task. What several workers save, each for itself, lies in one
// document, so each has its share of MaxStepsBytes.
const (
	MaxSteps      = 1000    // of one worker on one task
	MaxStepBytes  = 1 << 20 // of one value
	MaxStepsBytes = 4 << 20 // of all steps of a task, with their names
	stepBytes     = 64      // about what a step needs beside value, name and worker
)

// size is what the step adds to its document.
func size(s *model.Step) int { return len(s.Name) + len(s.WorkerID) + len(s.Value.Value) + stepBytes }

// StepName checks the name of a step: 1 to 100 of [a-zA-Z0-9._-].
func StepName(field, name string) error { return Name(field, name) }

// StepRoom says whether there is room for one more step beside those that a worker has,
// on a task that wants so many workers. The error names what is too many or too large.
func StepRoom(done []model.Step, s model.Step, wanted int) error {
	if len(done) >= MaxSteps {
		return Invalid("steps", "has %d entries already; at most %d are allowed", len(done), MaxSteps)
	}
	total := size(&s)
	for i := range done {
		total += size(&done[i])
	}
	if most := MaxStepsBytes / max(wanted, 1); total > most {
		return Invalid("steps", "would have %d bytes with step %s; at most %d are allowed, all steps together (%d for each of %d workers)",
			total, s.Name, MaxStepsBytes, most, max(wanted, 1))
	}
	return nil
}

// StepNames lists the names of the steps, for an error.
func StepNames(steps []model.Step) string {
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
