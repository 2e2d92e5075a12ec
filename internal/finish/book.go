package finish

import (
	"slices"
	"sync"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

// Book is what an execution knows of the steps of its task. The zero value knows none yet. It
// is safe for concurrent use.
type Book struct {
	mu    sync.Mutex
	known bool
	done  []model.Step // saved, or being saved
	taken map[string]struct{}
}

// Take notes that a call of the handler has taken the name, and returns the step that is saved
// under it; nil when there is none. saved returns the task's steps as they were claimed. A name
// that was taken before in this call is an error.
func (b *Book) Take(name string, saved func() []model.Step) (*model.Step, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.known {
		b.done, b.known = slices.Clone(saved()), true
	}
	if _, twice := b.taken[name]; twice {
		return nil, input.Invalid("step", "%s occurs twice in this handler; names of steps must be unique", name)
	}
	if b.taken == nil {
		b.taken = map[string]struct{}{}
	}
	b.taken[name] = struct{}{}
	if i := slices.IndexFunc(b.done, func(s model.Step) bool { return s.Name == name }); i >= 0 {
		return new(b.done[i]), nil
	}
	return nil, nil
}

// Room returns an error if the task can have no further step.
func (b *Book) Room(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.done) < input.MaxSteps {
		return nil
	}
	return input.StepRoom(b.done, model.Step{Name: name}, 1)
}

// Enter notes a step that is about to be saved, or returns why there is no room for it. wanted
// is how many workers the task wants, each with steps of its own.
func (b *Book) Enter(s model.Step, wanted int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := input.StepRoom(b.done, s, wanted); err != nil {
		return err
	}
	b.done = append(b.done, s)
	return nil
}

// Drop forgets a step that was not saved: it may be tried again.
func (b *Book) Drop(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.taken, name)
	b.done = slices.DeleteFunc(b.done, func(s model.Step) bool { return s.Name == name })
}

// Forget lets another call of the handler, in the same execution, take the steps again.
func (b *Book) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = nil
}
