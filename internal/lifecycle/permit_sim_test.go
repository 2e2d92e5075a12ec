package lifecycle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/model"
)

// permitWorld is a database with tasks and permits, and commands that are on their way to
// it. Whoever takes, claims, ends, frees, passes on and sweeps may stop for ever between two steps.
type permitWorld struct {
	now     time.Time
	limit   int
	tasks   map[string]*model.Task
	permits map[string]Permit
	claims  []permitClaim // sent, and not yet arrived: perhaps never
	frees   []Permit      // of executions that have ended, or lost
	sweeps  []permitSweep // what a sweeper has read
	execs   int
	eff     Effective
}

type permitClaim struct {
	permit        Permit
	before, after *model.Task
}

type permitSweep struct {
	permit Permit
	state  PermitState
}

func (w *permitWorld) open() (n int) {
	for _, t := range w.tasks {
		n += t.OpenExecutions()
	}
	return n
}

// write is a guarded write.
func (w *permitWorld) write(before, after *model.Task) bool {
	cur := w.tasks[before.ID]
	if cur == nil || cur.Rev != before.Rev || cur.Generation > before.Generation {
		return false
	}
	w.tasks[before.ID] = after
	return true
}

func (w *permitWorld) free(p Permit) {
	if cur, is := w.permits[p.Name]; is && cur.ExecID == p.ExecID && cur.TaskID == p.TaskID {
		delete(w.permits, p.Name)
	}
}

// take inserts a permit and sends the claim.
func (w *permitWorld) take(t *model.Task, number int, crash bool) {
	name := fmt.Sprint("run/t#", number)
	if _, taken := w.permits[name]; taken {
		return
	}
	w.execs++
	p := Permit{Name: name, Type: t.Type, TaskID: t.ID, Generation: t.Generation, Rev: t.Rev, ExecID: fmt.Sprint("e", w.execs), At: w.now}
	after, no := Claim(t, Claimant{WorkerID: fmt.Sprint("w", w.execs), ExecID: p.ExecID}, w.eff, w.now)
	if no != "" {
		return
	}
	w.permits[name] = p
	if !crash {
		w.claims = append(w.claims, permitClaim{p, t, after})
	}
}

// pass renames the permit of an execution that has ended to another task, guarded by the
// ended execution, and sends the claim.
func (w *permitWorld) pass(t *model.Task, old Permit, crash bool) {
	cur, taken := w.permits[old.Name]
	if !taken || cur.ExecID != old.ExecID || cur.TaskID != old.TaskID {
		return // a sweeper freed it
	}
	w.execs++
	exec := fmt.Sprint("e", w.execs)
	after, no := Claim(t, Claimant{WorkerID: fmt.Sprint("w", w.execs), ExecID: exec}, w.eff, w.now)
	if no != "" {
		w.free(old)
		return
	}
	p := old.PassTo(t, exec, w.now)
	w.permits[old.Name] = p
	if !crash {
		w.claims = append(w.claims, permitClaim{p, t, after})
	}
}

func pull[T any](list *[]T, i int) T {
	v := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return v
}

// step does one thing that somebody may do now.
func (w *permitWorld) step(t *rapid.T) {
	ids := []string{}
	for id := range w.tasks {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "which") }
	task := w.tasks[ids[pick(len(ids))]]
	crash := rapid.IntRange(0, 4).Draw(t, "crash") == 0
	switch rapid.IntRange(0, 8).Draw(t, "step") {
	case 0, 1:
		w.take(task, pick(w.limit), crash)
	case 2: // a claim arrives, however late; its worker learns of it, or has died
		if len(w.claims) == 0 {
			return
		}
		c := pull(&w.claims, pick(len(w.claims)))
		if !w.write(c.before, c.after) && !crash {
			w.frees = append(w.frees, c.permit)
		}
	case 3: // an execution ends
		for i := range task.WorkerStates {
			if s := &task.WorkerStates[i]; s.Open() {
				out := Failed(model.FailReleased, "")
				if after, err := Finish(task, s.ExecID, out, w.eff, w.now, 0); err == nil && w.write(task, after) && !crash {
					w.freeOf(s.ExecID)
				}
				return
			}
		}
	case 4: // a lapse is found
		w.now = w.now.Add(w.eff.Lease)
		if after := Expire(task, w.eff, w.now, 0); after != nil && w.write(task, after) && !crash {
			for _, id := range EndedExecutions(task, after) {
				w.freeOf(id)
			}
		}
	case 5: // a permit is freed
		if len(w.frees) > 0 {
			w.free(pull(&w.frees, pick(len(w.frees))))
		}
	case 6: // a sweeper reads a permit
		for _, name := range w.names() {
			if rapid.Bool().Draw(t, "this") {
				w.sweeps = append(w.sweeps, permitSweep{permit: w.permits[name], state: PermitUsed})
				return
			}
		}
	case 7:
		w.sweep(pick, crash)
	case 8: // a permit goes straight on to another task
		if len(w.frees) > 0 {
			w.pass(task, pull(&w.frees, pick(len(w.frees))), crash)
		}
	}
}

// sweep goes on where a sweeper was: it reads the task, fences it, or frees the permit.
func (w *permitWorld) sweep(pick func(int) int, crash bool) {
	if len(w.sweeps) == 0 {
		return
	}
	i := pick(len(w.sweeps))
	s := &w.sweeps[i]
	switch s.state {
	case PermitFree:
		w.free(s.permit)
		pull(&w.sweeps, i)
	case PermitAhead:
		if cur := w.tasks[s.permit.TaskID]; s.permit.State(cur) == PermitAhead && !crash {
			w.write(cur, s.permit.Fence(cur, w.now))
		}
		s.state = PermitUsed // and it reads again
	case PermitUsed:
		s.state = s.permit.State(w.tasks[s.permit.TaskID])
		if s.state == PermitUsed {
			pull(&w.sweeps, i)
		}
	}
}

func (w *permitWorld) names() []string {
	var names []string
	for name := range w.permits {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (w *permitWorld) freeOf(execID string) {
	for _, name := range w.names() {
		if p := w.permits[name]; p.ExecID == execID {
			w.frees = append(w.frees, p)
		}
	}
}

// In whatever order takers, permits that pass on, claims that come late, crashes, ends, lapses and sweepers meet,
// each open execution has a permit, so never more are open than there are permits; and when
// everything that was on its way has arrived, sweeping frees all that nobody uses.
func TestNeverMoreExecutionsAreOpenThanThereArePermits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for range 20 { // a fault of one guard shows in one of a thousand histories
			permitHistory(t)
		}
	})
}

func permitHistory(t *rapid.T) {
	w := &permitWorld{now: limitEpoch, limit: rapid.IntRange(1, 3).Draw(t, "limit"), tasks: map[string]*model.Task{}, permits: map[string]Permit{}}
	many := 1_000_000
	w.eff = ResolveOptions(model.Options{MaxLapses: &many})
	for i := range rapid.IntRange(1, 5).Draw(t, "tasks") {
		task := NewTask(Draft{Type: "t", Key: fmt.Sprint(i)}, limitEpoch)
		w.tasks[task.ID] = task
	}
	for range rapid.IntRange(1, 300).Draw(t, "steps") {
		w.step(t)
		if n := w.open(); n > w.limit {
			t.Fatalf("%d executions are open; %d are allowed", n, w.limit)
		}
	}
	for range 2 { // nobody but a sweeper is left
		for _, name := range w.names() {
			p := w.permits[name]
			cur := w.tasks[p.TaskID]
			if p.State(cur) == PermitAhead {
				w.write(cur, p.Fence(cur, w.now))
			}
			if p.State(w.tasks[p.TaskID]) == PermitFree {
				w.free(p)
			}
		}
		for _, c := range w.claims {
			w.write(c.before, c.after)
		}
	}
	if len(w.permits) != w.open() {
		t.Fatalf("%d permits for %d open executions", len(w.permits), w.open())
	}
}
