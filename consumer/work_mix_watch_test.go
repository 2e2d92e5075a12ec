package consumer

import (
	"fmt"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
)

// watcher looks for tasks that nobody runs although somebody could.
type watcher struct {
	s     *site
	since map[string]time.Time
	told  map[string]bool
	rates map[*mate]int
	sent  map[*mate]int
}

const tooLong = 4 * time.Second

func (w *watcher) look(tasks []*model.Task) {
	s, now := w.s, time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	open, keys := map[string]int{}, map[string]int{}
	for _, task := range tasks {
		n := lifecycle.OpenExecutions(task)
		open[task.Type] += n
		keys[task.Type+task.Options.LimitKey] += n
	}
	for _, m := range s.mates {
		for typ := range s.types {
			m.sawSlots(typ)
		}
	}
	for _, task := range tasks {
		typ := s.types[task.Type]
		if !task.LapseAt.IsZero() && now.Sub(task.LapseAt) > 12*time.Second && !w.told["lapse"+task.ID] {
			usable := slices.ContainsFunc(s.mates, func(m *mate) bool { return !m.cut && !m.leaving && now.Sub(m.well) > 20*time.Second })
			if usable {
				w.told["lapse"+task.ID] = true
				s.faults = append(s.faults, fmt.Sprintf("%v %s has lapsed since %v", now.Sub(s.began), task.ID, now.Sub(task.LapseAt)))
			}
		}
		for _, m := range s.mates {
			id := fmt.Sprint(task.ID, " ", task.Generation, " ", task.Rev, " w", m.n)
			could := !m.cut && !m.leaving && lifecycle.ConditionsMet(m.only, task)
			could = could && lifecycle.Claimable(task, m.WorkerID(), *m.handlerOf(task.Type).effective(task), now) == ""
			could = could && s.paused[task.Type].IsZero()
			could = could && (typ.MaxRunning == 0 || open[task.Type] < typ.MaxRunning)
			if task.Options.LimitKey != "" {
				could = could && keys[task.Type+task.Options.LimitKey] < lifecycle.Keyed(&typ.TaskType).MaxRunning
			}
			if !could {
				delete(w.since, id)
				continue
			}
			if w.since[id].IsZero() {
				w.since[id] = now
			}
			from := w.since[id]
			for _, at := range []time.Time{m.full, m.fullOf[task.Type], m.well, typ.at} {
				if at.After(from) {
					from = at
				}
			}
			most := tooLong
			if (typ.MaxRunning > 0 || task.Options.LimitKey != "") && !s.calm {
				most = 30 * time.Second
			}
			if now.Sub(from) > most && !w.told[id] {
				w.told[id] = true
				c := m.held.count()
				s.faults = append(s.faults, fmt.Sprintf("%v %s has waited for w%d for %v: %s, audience %v, %d handlers of %d run, %+v, watches %t, paused %t", now.Sub(s.began).Round(time.Millisecond), id, m.n,
					now.Sub(from), task.Status, task.Audience, m.running, s.slots, c, m.watch.Watching(), m.control.Paused(task.Type)))
			}
		}
	}
}

// spins looks for workers that ask too often.
func (w *watcher) spins() {
	for _, m := range w.s.past {
		n := 0
		for _, k := range m.sent.count() {
			n += k
		}
		rate := n - w.sent[m]
		w.sent[m] = n
		if rate > w.rates[m] {
			w.rates[m] = rate
		}
		if rate > 600 {
			w.s.fault("w%d sent %d commands within a second", m.n, rate)
		}
	}
}

// check compares what is stored with what the handlers did.
func (s *site) check(tasks []*model.Task, retried map[string]bool) {
	type exec struct {
		m        *mate
		task, id string
	}
	byExec := map[exec][]*call{}
	byTask := map[string][]*call{}
	for _, c := range s.calls {
		e := exec{c.m, c.task, c.exec}
		byExec[e] = append(byExec[e], c)
		byTask[c.task] = append(byTask[c.task], c)
	}
	costs := map[string]int{}
	unsure := map[string]bool{}
	for e, calls := range byExec {
		last := calls[len(calls)-1]
		if !last.ret {
			s.fault("a handler of %s has not returned", e.task)
			continue
		}
		var end *Event
		for _, c := range calls {
			for i := range c.events {
				switch ev := &c.events[i]; ev.Kind {
				case workerevent.Finished, workerevent.Parked, workerevent.Fenced:
					if end != nil {
						s.fault("%s ends twice: %v and %v", e.task, *end, *ev)
					}
					end = ev
				}
			}
		}
		if end == nil {
			unsure[e.task] = true
			if !e.m.leaving && s.calm {
				s.fault("%s of w%d has no end", e.task, e.m.n)
			}
			continue
		}
		if end.Kind != workerevent.Finished {
			unsure[e.task] = true
			continue
		}
		if lifecycle.Costs(end.Outcome) {
			costs[e.task]++
		}
		var want []string
		switch err := last.err; {
		case last.cause != nil && (err != nil || last.act == panics || last.act == goexits):
			want = []string{failkind.Timeout, failkind.Released, failkind.Cancelled}
		case last.act == panics, last.act == goexits:
			want = []string{failkind.Panic, failkind.Cancelled, failkind.Timeout, failkind.Released} // while a local retry waited
		case err == nil:
			want = []string{""}
		case last.act == fatal:
			want = []string{failkind.Fatal, failkind.Cancelled}
		case last.act == cancels:
			want = []string{failkind.Cancelled}
		case last.act == snoozes, last.act == releases:
			want = []string{failkind.Released, failkind.Cancelled}
		default:
			want = []string{failkind.Error, failkind.Cancelled, failkind.Timeout, failkind.Released}
		}
		if !slices.Contains(want, end.Outcome) {
			s.fault("%s: act %d, error %v, cause %v ended as %q", e.task, last.act, last.err, last.cause, end.Outcome)
		}
	}
	for _, task := range tasks {
		if retried[task.ID] || task.Generation > 1 {
			continue
		}
		if n := costs[task.ID]; !unsure[task.ID] && task.LapseCount == 0 && task.ErrorCount != n {
			s.fault("%s counts %d errors, its handlers had %d", task.ID, task.ErrorCount, n)
		}
		if task.Status == model.StatusSuccess {
			if lifecycle.Successes(task) < lifecycle.Wanted(task) {
				s.fault("%s is Success by %d", task.ID, lifecycle.Successes(task))
			}
			var result int
			_ = task.Result.Unmarshal(&result)
			ok := result == 1000 || slices.ContainsFunc(byTask[task.ID], func(c *call) bool {
				return c.n == result && c.err == nil && slices.ContainsFunc(c.events, func(e Event) bool { return e.Kind == workerevent.Finished && e.Outcome == "" })
			})
			if !ok && !unsure[task.ID] {
				s.fault("%s has result %d of no call that counts", task.ID, result)
			}
		}
	}
}
