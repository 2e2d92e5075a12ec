package command

import (
	"context"
	"time"

	"github.com/mscheduler/mscheduler/internal/groupcommit"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// together writes changes of single tasks that come at the same time in one read and one command.
// What comes alone is written at once, as [store.Tasks.Change] does.
//
//	change ─▶ gathers ─▶ one read ─▶ rules ─▶ one command ─┬▶ written
//	                        ▲                              ├▶ crossed by another's write: once more
//	                        └──────────────────────────────┤
//	                                                       └▶ held, refused, no answer: by itself, beside the others
//
// Nobody waits long because of somebody else. A rule must allow that it is asked again after it was carried out: the
// answer to a command may be lost.
type together struct {
	tasks *store.Tasks
	queue *groupcommit.Queue[*edit]
}

// edit is the change of one task by a rule.
type edit struct {
	ctx           context.Context // of the caller
	id            string
	rule          rule
	before, after *model.Task
	err           error
	done          chan struct{} // closed when it is known what became of it
}

const (
	editsAtOnce = 500                    // tasks in one command
	editRounds  = 4                      // of commands for what others changed meanwhile
	groupTime   = 20 * time.Second       // for one command with its read
	aloneTime   = 100 * time.Millisecond // for which further edits wait for one that came alone
)

func newTogether(tasks *store.Tasks) *together {
	g := &together{tasks: tasks}
	g.queue = groupcommit.New(editsAtOnce, g.flush)
	return g
}

// change carries out a rule on a task. When ctx ends before it is known what became of it, the rule may
// be asked even later, and its caller must not read what it writes.
func (g *together) change(ctx context.Context, id string, rule rule) (before, after *model.Task, err error) {
	if store.InTransaction(ctx) { // it is part of that
		return g.tasks.Change(ctx, id, rule)
	}
	e := &edit{ctx: ctx, id: id, rule: rule, done: make(chan struct{})}
	if err := g.queue.Put(ctx, e); err != nil {
		return nil, nil, err
	}
	select {
	case <-e.done:
		return e.before, e.after, e.err
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

// flush writes a batch.
func (g *together) flush(batch []*edit) {
	if len(batch) == 1 {
		g.alone(batch[0])
		select {
		case <-batch[0].done:
		case <-time.After(aloneTime):
		}
		return
	}
	crossed := 0
	for len(batch) > 0 && crossed < editRounds {
		now, later := g.next(batch)
		again := g.write(now)
		if len(again) > 0 {
			crossed++
		}
		batch = append(again, later...)
	}
	g.alone(batch...)
}

// next divides a batch into what is written now and what is written later: further changes of a task,
// and what would take too many bytes at once. The callers of some may have gone.
func (g *together) next(batch []*edit) (now, later []*edit) {
	fit, taken := g.tasks.Fit(len(batch)), map[string]bool{}
	for _, e := range batch {
		switch {
		case e.ctx.Err() != nil:
			e.answer(nil, nil, context.Cause(e.ctx))
		case taken[e.id] || len(now) >= fit:
			later = append(later, e)
		default:
			taken[e.id] = true
			now = append(now, e)
		}
	}
	return now, later
}

// write reads the tasks, decides and writes, and returns the edits that are to be decided again.
func (g *together) write(batch []*edit) (again []*edit) {
	if len(batch) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), groupTime)
	defer cancel()
	ids := make([]string, len(batch))
	for i, e := range batch {
		ids[i] = e.id
	}
	tasks, err := g.tasks.ByIDs(ctx, ids)
	if err != nil {
		g.alone(batch...)
		return nil
	}
	var decided, undecided []*edit
	var unchanged []*model.Task
	var writes []store.Write
	for _, e := range batch {
		before := tasks[e.id]
		if before == nil {
			g.alone(e) // it says what is wrong
			continue
		}
		after, err := e.rule(before)
		if err != nil || after == before {
			e.before, e.after, e.err = before, after, err
			undecided, unchanged = append(undecided, e), append(unchanged, before)
			continue
		}
		decided = append(decided, e)
		writes = append(writes, store.Write{Before: before, After: after})
	}
	g.leave(ctx, undecided, unchanged)
	written, err := g.tasks.Writes(store.For(ctx, store.Ending), writes, store.Patience)
	if err != nil {
		g.alone(decided...)
		return nil
	}
	for i, w := range written {
		switch e := decided[i]; {
		case w.Applied:
			e.answer(writes[i].Before, writes[i].After, nil)
		case w.Held, w.Refused != nil:
			g.alone(e)
		default:
			again = append(again, e)
		}
	}
	return again
}

// leave answers edits that change nothing, or that their rules refuse, if a majority has what was read. The others wait
// for that by themselves.
func (g *together) leave(ctx context.Context, edits []*edit, tasks []*model.Task) {
	same, err := g.tasks.AreAsRead(ctx, tasks)
	for _, e := range edits {
		if err == nil && same[e.id] {
			e.answer(e.before, e.after, e.err)
		} else {
			g.alone(e)
		}
	}
}

// alone writes each edit by itself, for as long as its caller waits.
func (g *together) alone(edits ...*edit) {
	for _, e := range edits {
		go func() { e.answer(g.tasks.Change(e.ctx, e.id, e.rule)) }()
	}
}

func (e *edit) answer(before, after *model.Task, err error) {
	e.before, e.after, e.err = before, after, err
	close(e.done)
}
