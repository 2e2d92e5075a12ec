package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/bulk"
	"github.com/mscheduler/mscheduler/internal/promises"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/plan/repeat"
	"github.com/mscheduler/mscheduler/producer"
)

// pauseReaches is when no handler of a paused type begins any more: workers claim nothing on a copy of the pauses that
// is older than a second, and a claim that is late is void with its lease.
const pauseReaches = 2*time.Second + lease

// deeds are what people did, and what they were told.
type deeds struct {
	cancelled  map[life]bool // as the answer said: nothing of it begins after that
	mayCancel  map[string]bool
	mayResolve map[string]bool
	final      map[life]ending   // the ends that anybody has seen
	nodes      map[string]string // the same of nodes of flows, by flow, node and life
	held       map[string]bool   // nobody has asked for their release
	priority   map[life]int      // of the last change that was answered
	paused     time.Time         // since when the answer of a pause has been there; zero = nothing is paused
	edited     map[int]time.Time // when an edition of the rule was answered, by the database's clock
	bulk       []string          // the keys of bulk jobs
	ordered    map[string]bool   // tasks that are sent in transactions: whether they are to be there
}

// ending is how a life ended.
type ending struct {
	status model.Status
	result string
}

func newDeeds() deeds {
	return deeds{
		cancelled: map[life]bool{}, mayCancel: map[string]bool{}, mayResolve: map[string]bool{}, final: map[life]ending{},
		nodes: map[string]string{}, held: map[string]bool{}, priority: map[life]int{}, edited: map[int]time.Time{}, ordered: map[string]bool{},
	}
}

// saw takes in a task as somebody has seen it: what has ended ends as nothing else.
func (w *world) saw(t *model.Task) {
	if t == nil || !t.Status.Ended() || t.Status == model.StatusPending {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	status := t.Status
	if status == model.StatusCompleted { // until its callback is delivered
		status = model.StatusSuccess
	}
	result, _ := t.Result.StringValueOK()
	now := ending{status, result}
	if was, known := w.final[lifeOf(t)]; known && was != now {
		w.violated("%s was %s (%s), and is %s (%s) in the same life", t.ID, was.status, was.result, now.status, now.result)
	}
	w.final[lifeOf(t)] = now
}

// sawFlow takes in a flow: a node that has ended changes only with a new life.
func (w *world) sawFlow(f *graph.Flow) {
	if f == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, s := range f.States {
		if s.Status != graph.NodeSuccess && s.Status != graph.NodeError {
			continue
		}
		id := fmt.Sprintf("the node %s of the flow %s, life %d", f.Nodes[i].ID, f.ID, s.Life)
		if was, known := w.nodes[id]; known && was != string(s.Status) {
			w.violated("%s was %s, and is %s", id, was, s.Status)
		}
		w.nodes[id] = string(s.Status)
	}
}

func (w *world) holds(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[id] = true
}

// releases says that somebody asks for the release of a task: it may begin.
func (w *world) releases(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, id)
}

// allows looks whether people allow an execution to begin. The caller holds the lock.
func (w *world) allows(x *execution) {
	if w.cancelled[x.life()] {
		w.violated("%s runs on %s, although it is Cancelled", x.task, x.p.name)
	}
	if w.held[x.task] {
		w.violated("%s runs on %s, although nobody has released it", x.task, x.p.name)
	}
	if x.typ == work && !w.paused.IsZero() && time.Since(w.paused) > pauseReaches {
		w.violated("%s runs on %s, although its type was paused %v ago", x.task, x.p.name, time.Since(w.paused))
	}
}

// refusedIsFine: a command that comes too late, or for what does not exist yet, is answered so.
func refusedIsFine(err error) error {
	var refused *model.RefusedError
	if errors.As(err, &refused) || errors.Is(err, model.ErrNotFound) {
		return nil
	}
	return err
}

// person does something every few seconds, through the process that is at hand.
func (w *world) person() {
	draw := newChance(w.seed, 4)
	acts := []func(*process, *chance){w.cancelsTask, w.cancelsTask, w.retriesTask, w.resolvesTask, w.updatesTask, w.pausesType, w.changesMany}
	if w.ticks {
		acts = append(acts, w.editsRule)
	}
	if w.graphs {
		acts = append(acts, w.changesFlow)
	}
	if w.repeats {
		acts = append(acts, w.resetsPlan)
	}
	for !w.healed.Load() {
		time.Sleep(draw.between(500*time.Millisecond, 3*time.Second))
		living := w.living()
		acts[draw.below(len(acts))](living[draw.below(len(living))], draw)
	}
}

// someTask is the id of one that was sent, "" while there is none.
func (w *world) someTask(draw *chance) string {
	w.mu.Lock()
	ids := make([]string, 0, len(w.asked.Tasks))
	for id := range w.asked.Tasks {
		ids = append(ids, id)
	}
	w.mu.Unlock()
	if len(ids) == 0 {
		return ""
	}
	slices.Sort(ids)
	return ids[draw.below(len(ids))]
}

func (w *world) cancelsTask(p *process, draw *chance) {
	id := w.someTask(draw)
	if id == "" {
		return
	}
	w.mu.Lock()
	w.mayCancel[id] = true
	w.mu.Unlock()
	p.sure("cancels "+id, func(ctx context.Context) error {
		t, err := p.producer.Cancel(ctx, id, "by a person")
		w.saw(t)
		if err == nil && t.Status == model.StatusCancelled {
			w.mu.Lock()
			w.cancelled[lifeOf(t)] = true
			w.mu.Unlock()
		}
		return refusedIsFine(err)
	})
}

func (w *world) retriesTask(p *process, draw *chance) {
	id := w.someTask(draw)
	if id == "" {
		return
	}
	w.retries(p, id)
}

func (w *world) retries(p *process, id string) {
	w.releases(id) // a new life is not held
	p.sure("retries "+id, func(ctx context.Context) error {
		t, err := p.producer.Retry(ctx, id, "by a person")
		w.saw(t)
		return refusedIsFine(err)
	})
}

func (w *world) resolvesTask(p *process, draw *chance) {
	id := w.someTask(draw)
	if id == "" {
		return
	}
	w.mu.Lock()
	w.mayResolve[id] = true
	w.mu.Unlock()
	p.sure("resolves "+id, func(ctx context.Context) error {
		t, err := p.producer.Resolve(ctx, id, "by a person")
		w.saw(t)
		return refusedIsFine(err)
	})
}

func (w *world) updatesTask(p *process, draw *chance) {
	id, priority := w.someTask(draw), draw.below(10)
	if id == "" {
		return
	}
	p.sure(fmt.Sprintf("gives %s the priority %d", id, priority), func(ctx context.Context) error {
		t, err := p.producer.Update(ctx, id, producer.Priority(priority))
		w.saw(t)
		if err == nil {
			w.mu.Lock()
			w.priority[lifeOf(t)] = priority
			w.mu.Unlock()
		}
		return refusedIsFine(err)
	})
}

func (w *world) pausesType(p *process, draw *chance) {
	if !p.sure("pauses the type work", func(ctx context.Context) error { return admin.New(p.producer).Pause(ctx, work) }) {
		w.resumes() // it may have been done
		return
	}
	w.mu.Lock()
	w.paused = time.Now()
	w.mu.Unlock()
	time.Sleep(draw.between(time.Second, 3*pauseReaches))
	w.resumes()
}

// resumes has the type run again, by the person whose network never fails.
func (w *world) resumes() {
	w.mu.Lock()
	w.paused = time.Time{}
	w.mu.Unlock()
	w.atDesk("resumes the type work", func(ctx context.Context) error { return admin.New(w.desk).Resume(ctx, work) })
}

// atDesk repeats a request of the person whose network never fails until it is answered: the database may be down.
func (w *world) atDesk(what string, ask func(ctx context.Context) error) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := ask(ctx)
		cancel()
		if err == nil {
			w.note("desk", "%s", what)
			return
		}
		w.note("desk", "%s: %v", what, shortly(err))
		time.Sleep(time.Second)
	}
}

// edition are the arguments of the rule's tasks, after so many edits.
func edition(n int) bson.M { return bson.M{"edition": n} }

// editsRule changes what the tasks of the rule are told. What ticks after the answer is told so.
func (w *world) editsRule(p *process, _ *chance) {
	w.mu.Lock()
	n := len(w.edited) + 1
	w.mu.Unlock()
	var changed bool
	p.sure(fmt.Sprintf("edits the rule, edition %d", n), func(ctx context.Context) error {
		r, err := p.rules.Named(ctx, "", promises.RuleName)
		if err != nil {
			return err
		}
		spec := periodic.SpecOf(r)
		spec.Args = edition(n)
		_, err = p.rules.Update(ctx, r.ID, r.Version, spec)
		changed = err == nil
		return err
	})
	if changed {
		w.mu.Lock()
		w.edited[n] = w.db.now()
		w.mu.Unlock()
	}
}

// changesMany resolves everything that waits for a person, as one job.
func (w *world) changesMany(p *process, _ *chance) {
	w.mu.Lock()
	w.mayResolve[allOf(manual)] = true // also those whose send has not been answered
	key := fmt.Sprintf("bulk-%d", len(w.bulk))
	w.bulk = append(w.bulk, key)
	w.mu.Unlock()
	p.sure("resolves all that are Pending, as the job "+key, func(ctx context.Context) error {
		_, err := p.jobs.Start(ctx, &bulk.Job{Action: bulk.Resolve.Name, Filter: &bulk.Filter{Type: manual}}, key, "")
		return err
	})
}

// allOf stands for all tasks of a type.
func allOf(typ string) string { return typ + "/*" }

// changesFlow cancels a flow, or begins it again from a node, or resolves one, or has its task run again.
func (w *world) changesFlow(p *process, draw *chance) {
	id, name := fmt.Sprintf("-/%d", draw.below(3)), string(rune('a'+draw.below(4)))
	w.mu.Lock()
	for _, name := range []string{"a", "b", "c", "d"} { // the task of a node that is resolved before it ran, too
		w.mayCancel[fmt.Sprintf("-/%s/flow:%s:%s", node, id[2:], name)] = true
	}
	w.mu.Unlock()
	act, do := "resolves "+name+" of", func(ctx context.Context) (*graph.Flow, error) {
		return p.flows.Resolve(ctx, id, name, graph.NodeSuccess, "by a person")
	}
	switch draw.below(5) {
	case 4:
		w.retries(p, fmt.Sprintf("-/%s/flow:%s:%s", node, id[2:], name))
		return
	case 0:
		act, do = "cancels", func(ctx context.Context) (*graph.Flow, error) { return p.flows.Cancel(ctx, id, "by a person") }
	case 1:
		act, do = "begins again from "+name+" of", func(ctx context.Context) (*graph.Flow, error) { return p.flows.RetryFrom(ctx, id, name) }
	}
	p.sure(fmt.Sprintf("%s the flow %s", act, id), func(ctx context.Context) error {
		f, err := do(ctx)
		w.sawFlow(f)
		return refusedIsFineOf(err)
	})
}

func (w *world) resetsPlan(p *process, draw *chance) {
	id := fmt.Sprintf("-/%d", draw.below(3))
	p.sure("resets the plan "+id, func(ctx context.Context) error {
		_, err := p.plans.Reset(ctx, id)
		return refusedIsFineOf(err)
	})
}

// tidies is what a person does at the end: nothing waits for people any more.
func (w *world) tidies(f *found) {
	for id, t := range f.Tasks {
		if t.Status == model.StatusWait && t.Type == work { // its sender died before it released it
			w.releases(id)
			w.atDesk("releases "+id, func(ctx context.Context) error {
				_, err := w.desk.Release(ctx, id)
				return refusedIsFine(err)
			})
		}
		if t.Status == model.StatusPending {
			w.mu.Lock()
			w.mayResolve[id] = true
			w.mu.Unlock()
			w.atDesk("resolves "+id, func(ctx context.Context) error {
				t, err := w.desk.Resolve(ctx, id, "in the end")
				w.saw(t)
				return refusedIsFine(err)
			})
		}
	}
	for _, flows := range []map[string]*graph.Flow{f.Flows, f.streams} {
		for _, doc := range flows {
			w.tidiesFlow(doc)
		}
	}
	for id, doc := range f.Plans {
		if doc != nil && doc.Status == repeat.StatusError {
			w.atDesk("resets the plan "+id, func(ctx context.Context) error {
				_, err := w.lead().plans.Reset(ctx, id)
				return refusedIsFineOf(err)
			})
		}
	}
}

// tidiesFlow resolves what waits for a person.
func (w *world) tidiesFlow(doc *graph.Flow) {
	w.sawFlow(doc)
	if doc == nil || doc.Status != graph.StatusPending {
		return
	}
	for i, s := range doc.States {
		if s.Status == graph.NodePending && s.Own {
			w.atDesk("resolves "+doc.Nodes[i].ID+" of the flow "+doc.ID, func(ctx context.Context) error {
				f, err := w.lead().flows.Resolve(ctx, doc.ID, doc.Nodes[i].ID, graph.NodeError, "in the end")
				w.sawFlow(f)
				return refusedIsFineOf(err)
			})
		}
	}
}

// lead is a living process.
func (w *world) lead() *process { return w.living()[0] }

// refusedIsFineOf is refusedIsFine for flows and plans.
func refusedIsFineOf(err error) error {
	var refused *model.RefusedError
	if errors.As(err, &refused) || errors.Is(err, model.ErrNotFound) {
		return nil
	}
	return err
}
