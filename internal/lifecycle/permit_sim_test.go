package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/internal/failkind"
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
	next    []preparedClaim
	sweeps  []permitSweep // what a sweeper has read
	execs   int
	eff     Effective
}

type permitClaim struct {
	permit        Permit
	before, after *model.Task
}

// preparedClaim is what its process claims once the execution before it has ended, if nothing else
// becomes of the permit.
type preparedClaim struct {
	permit Permit
	task   *model.Task // as it was read
	before *model.Task // of the execution that runs
}

type permitSweep struct {
	permit Permit
	state  PermitState
}

func (w *permitWorld) open() (n int) {
	for _, t := range w.tasks {
		n += OpenExecutions(t)
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
	if w.has(p) {
		delete(w.permits, p.Name)
	}
}

// has is the guard of what is written of a permit.
func (w *permitWorld) has(p Permit) bool {
	cur, is := w.permits[p.Name]
	return is && cur.ExecID == p.ExecID && cur.TaskID == p.TaskID &&
		(cur.Next == nil) == (p.Next == nil) && (p.Next == nil || cur.Next.ExecID == p.Next.ExecID)
}

// take inserts a permit and sends the claim.
func (w *permitWorld) take(t *model.Task, number int, crash bool) {
	name := fmt.Sprint("run/t#", number)
	if _, taken := w.permits[name]; taken {
		return
	}
	w.execs++
	p := Permit{Name: name, Type: t.Type, PermitUse: UseOf(t, fmt.Sprint("e", w.execs)), At: w.now}
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
	if !w.has(old) {
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

// prepare notes what is to follow an open execution, once.
func (w *permitWorld) prepare(t *model.Task, old Permit, crash bool) {
	for _, id := range w.ids() {
		before := w.tasks[id]
		for i := range before.WorkerStates {
			if s := &before.WorkerStates[i]; Open(s) && old.Lets(s.ExecID) && (old.Next == nil || s.ExecID == old.Next.ExecID) {
				w.execs++
				p := old.Prepare(s.ExecID, t, fmt.Sprint("e", w.execs), w.now)
				if w.has(old) {
					w.permits[old.Name] = p
				}
				if !crash {
					w.next = append(w.next, preparedClaim{p, t, before})
				}
				return
			}
		}
	}
}

// follow ends an execution and claims what follows in one command, of which each part is guarded:
// the claim by that the execution is not open, too. The end may have been written by another.
func (w *permitWorld) follow(n preparedClaim, crash bool) {
	_, s := ExecutionOf(n.before, n.permit.ExecID)
	if end, err := Finish(n.before, s.ExecID, Failed(failkind.Released, ""), w.eff, w.now, 0); err == nil {
		w.write(n.before, end)
	}
	if _, now := ExecutionOf(w.tasks[n.before.ID], s.ExecID); now != nil && Open(now) {
		return // it is ended by itself later, and its permit freed
	}
	after, no := Claim(n.task, Claimant{WorkerID: fmt.Sprint("w", w.execs), ExecID: n.permit.Next.ExecID}, w.eff, w.now)
	if (no != "" || !w.write(n.task, after)) && !crash {
		w.frees = append(w.frees, n.permit)
	}
}

func pull[T any](list *[]T, i int) T {
	v := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return v
}

// step does one thing that somebody may do now.
func (w *permitWorld) step(t *rapid.T) {
	ids := w.ids()
	pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "which") }
	task := w.tasks[ids[pick(len(ids))]]
	crash := rapid.IntRange(0, 4).Draw(t, "crash") == 0
	switch rapid.IntRange(0, 11).Draw(t, "step") {
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
			if s := &task.WorkerStates[i]; Open(s) {
				w.next = slices.DeleteFunc(w.next, func(n preparedClaim) bool { return n.permit.ExecID == s.ExecID })
				out := Failed(failkind.Released, "")
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
			// It is not the process that prepared what follows.
			w.frees = slices.DeleteFunc(w.frees, func(p Permit) bool {
				return p.Next != nil && !slices.Contains(EndedExecutions(task, after), p.Next.ExecID)
			})
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
	case 9:
		if names := w.names(); len(names) > 0 {
			w.prepare(task, w.permits[names[pick(len(names))]], crash)
		}
	case 10:
		if len(w.next) > 0 {
			w.follow(pull(&w.next, pick(len(w.next))), crash)
		}
	case 11: // somebody changes the task
		w.write(task, next(task, w.now))
	}
}

func (w *permitWorld) ids() []string {
	return slices.Sorted(maps.Keys(w.tasks))
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
		if s.permit.State(w.tasks) == PermitAhead && !crash {
			w.fence(s.permit)
		}
		s.state = PermitUsed // and it reads again
	case PermitUsed:
		s.state = s.permit.State(w.tasks)
		if s.state == PermitUsed {
			pull(&w.sweeps, i)
		}
	}
}

func (w *permitWorld) fence(p Permit) {
	for _, f := range p.Fences(w.tasks, w.now) {
		w.write(f[0], f[1])
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
		if p := w.permits[name]; p.Lets(execID) {
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
			if p.State(w.tasks) == PermitAhead {
				w.fence(p)
			}
			if p.State(w.tasks) == PermitFree {
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
