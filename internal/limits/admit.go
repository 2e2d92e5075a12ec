package limits

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// Admission is what became of candidates.
type Admission struct {
	Granted map[*model.Task]Grant
	// HeldBack are how many were taken out of the queries, because their key is full.
	HeldBack int
	// Later are tasks whose turn it is, and the start that goes with it is somebody else's,
	// who is about to claim them: before that time they are not worth asking for again.
	Later map[*model.Task]time.Time
}

// Admit asks for what the claim of each task needs by the execution with that id. Tasks
// that need nothing are not to be among them; those without a grant are not to be claimed
// now. The best come first, and no more than can start at once. After an error nothing is
// granted; what was taken until then the sweeper frees.
func (g *Gate) Admit(ctx context.Context, tasks []*model.Task, execID string) (Admission, error) {
	a := Admission{Granted: map[*model.Task]Grant{}, Later: map[*model.Task]time.Time{}}
	if len(tasks) == 0 {
		return a, nil
	}
	if !g.marked.Load() {
		if err := g.store.MarkLimited(ctx); err != nil {
			return a, err
		}
		g.marked.Store(true)
	}
	var types []string
	of := map[string][]*model.Task{}
	for _, t := range tasks {
		if of[t.Type] == nil {
			types = append(types, t.Type)
		}
		of[t.Type] = append(of[t.Type], t)
	}
	for _, typ := range types {
		if err := g.admitType(ctx, g.types.Get(typ), typ, of[typ], execID, &a); err != nil {
			return Admission{}, err
		}
	}
	return a, nil
}

func (g *Gate) admitType(ctx context.Context, typ *model.TaskType, name string, tasks []*model.Task, execID string, a *Admission) error {
	b := &batch{g: g, typ: name, execID: execID, keyed: typ.Keyed(), granted: map[*model.Task]Grant{}, later: map[*model.Task]time.Time{}}
	tasks, err := b.splitByKey(ctx, tasks)
	if err != nil {
		return err
	}
	if typ.Limited() {
		if tasks, err = b.byType(ctx, typ, tasks); err != nil {
			return err
		}
	} else {
		for _, t := range tasks {
			b.granted[t] = Grant{}
		}
	}
	if err := b.byKey(ctx, tasks); err != nil {
		return err
	}
	maps.Copy(a.Granted, b.granted)
	maps.Copy(a.Later, b.later)
	n, err := g.holdBack(ctx, name, b.blocked)
	a.HeldBack += n
	return err
}

// batch is what is being admitted of one type.
type batch struct {
	g       *Gate
	typ     string
	execID  string
	keyed   model.KeyLimit
	granted map[*model.Task]Grant
	blocked []*model.Task
	later   map[*model.Task]time.Time
}

func (b *batch) permit(t *model.Task, key string) model.Permit {
	return model.Permit{Type: b.typ, Key: key, TaskID: t.ID, Generation: t.Generation, Rev: t.Rev, ExecID: b.execID}
}

// splitByKey leaves out those whose key is full by a look at the permits: they must not take
// anything from the others. The rest is at most what each key has room for.
func (b *batch) splitByKey(ctx context.Context, tasks []*model.Task) ([]*model.Task, error) {
	var keys []string
	for _, t := range tasks {
		if k := t.Options.LimitKey; k != "" && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 || b.keyed.MaxRunning == 0 {
		return tasks, nil
	}
	taken, err := b.g.store.KeysTaken(ctx, b.typ, keys)
	if err != nil {
		return nil, err
	}
	var free []*model.Task
	for _, t := range tasks {
		k := t.Options.LimitKey
		if k != "" && taken[k] >= b.keyed.MaxRunning {
			b.blocked = append(b.blocked, t)
			continue
		}
		taken[k]++ // also by the one that goes on
		free = append(free, t)
	}
	return free, nil
}

// byType takes starts and permits of the type.
func (b *batch) byType(ctx context.Context, typ *model.TaskType, tasks []*model.Task) ([]*model.Task, error) {
	g, wanted := b.g, len(tasks)
	if wanted == 0 {
		return nil, nil
	}
	var until []time.Time
	if r := typ.RateLimit; r != nil {
		starts, err := g.store.ReserveStarts(ctx, store.SlotOf{Type: b.typ}, *r, wanted)
		if err != nil {
			return nil, err
		}
		until = g.good(*r, starts)
		if len(until) < wanted {
			g.rest(b.typ, starts.Next, *r)
		}
		tasks = tasks[:len(until)]
	}
	if typ.MaxRunning == 0 {
		for i, t := range tasks {
			b.granted[t] = Grant{Until: until[i]}
		}
		return tasks, nil
	}
	want := make([]model.Permit, len(tasks))
	for i, t := range tasks {
		want[i] = b.permit(t, "")
	}
	got, err := g.store.TakeSlots(ctx, store.SlotOf{Type: b.typ}, typ.MaxRunning, want)
	if err != nil {
		return nil, err
	}
	if len(got) < len(want) {
		g.full(b.typ)
	} else if until == nil && len(want) > 0 {
		g.roomy(b.typ)
	}
	permits := byTask(got)
	var on []*model.Task
	for i, t := range tasks {
		p, ok := permits[t.ID]
		if !ok {
			continue
		}
		grant := Grant{Permits: []model.Permit{p}}
		if until != nil {
			grant.Until = until[i]
		}
		b.granted[t] = grant
		on = append(on, t)
	}
	return on, nil
}

// byKey takes permits and starts of the keys, for those that have what they need of their
// type.
func (b *batch) byKey(ctx context.Context, tasks []*model.Task) error {
	perKey := map[string][]*model.Task{}
	var keys []string
	for _, t := range tasks {
		k := t.Options.LimitKey
		if k == "" {
			continue
		}
		if perKey[k] == nil {
			keys = append(keys, k)
		}
		perKey[k] = append(perKey[k], t)
	}
	if len(keys) == 0 {
		return nil
	}
	if b.keyed.MaxRunning > 0 {
		permits, err := b.keyPermits(ctx, keys, perKey)
		if err != nil {
			return err
		}
		for _, k := range keys {
			perKey[k] = slices.DeleteFunc(perKey[k], func(t *model.Task) bool {
				p, ok := permits[t.ID]
				if ok {
					grant := b.granted[t]
					grant.Permits = append(grant.Permits, p)
					b.granted[t] = grant
				} else {
					b.block(t)
				}
				return !ok
			})
		}
	}
	if b.keyed.RateLimit == nil {
		return nil
	}
	for _, k := range keys {
		if err := b.keyStarts(ctx, k, perKey[k]); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) keyPermits(ctx context.Context, keys []string, perKey map[string][]*model.Task) (map[string]model.Permit, error) {
	if b.keyed.MaxRunning == 1 {
		var want []model.Permit
		for _, k := range keys {
			want = append(want, b.permit(perKey[k][0], k))
		}
		got, err := b.g.store.TakeKeys(ctx, want)
		return byTask(got), err
	}
	permits := map[string]model.Permit{}
	for _, k := range keys {
		var want []model.Permit
		for _, t := range perKey[k] {
			want = append(want, b.permit(t, k))
		}
		got, err := b.g.store.TakeSlots(ctx, store.SlotOf{Type: b.typ, Key: k}, b.keyed.MaxRunning, want)
		if err != nil {
			return nil, err
		}
		for id, p := range byTask(got) {
			permits[id] = p
		}
	}
	return permits, nil
}

func (b *batch) keyStarts(ctx context.Context, key string, tasks []*model.Task) error {
	if len(tasks) == 0 {
		return nil
	}
	of := store.SlotOf{Type: b.typ, Key: key}
	starts, err := b.g.store.ReserveStarts(ctx, of, *b.keyed.RateLimit, len(tasks))
	if err != nil {
		return err
	}
	until := b.g.good(*b.keyed.RateLimit, starts)
	for i, t := range tasks {
		if i >= len(until) {
			b.miss(t)
			continue
		}
		grant := b.granted[t]
		if grant.Until.IsZero() || until[i].Before(grant.Until) {
			grant.Until = until[i]
		}
		b.granted[t] = grant
	}
	return nil
}

// block gives back what the task has got: its key is full.
func (b *batch) block(t *model.Task) {
	b.giveBack(t)
	b.blocked = append(b.blocked, t)
}

// miss is for a task without a start. One that was given its turn just now is left to whoever
// has the start: to hold it back would only undo that, and refuse their claim.
func (b *batch) miss(t *model.Task) {
	now := b.g.store.Clock.Now()
	if good := t.WakeAt.Add(b.keyed.RateLimit.Tolerance()); good.After(now) {
		b.giveBack(t)
		b.later[t] = good
		b.g.lookAt(store.SlotOf{Type: b.typ, Key: t.Options.LimitKey}, good) // and so it is pending
		return
	}
	b.block(t)
}

func (b *batch) giveBack(t *model.Task) {
	b.g.Return(b.granted[t])
	delete(b.granted, t)
}

func byTask(permits []model.Permit) map[string]model.Permit {
	out := make(map[string]model.Permit, len(permits))
	for _, p := range permits {
		out[p.TaskID] = p
	}
	return out
}

// good are the times until which the starts that are good now are.
func (g *Gate) good(r model.RateLimit, s model.Starts) []time.Time {
	n := r.Good(s, g.store.Clock.Now())
	until := make([]time.Time, n)
	for i := range until {
		until[i] = s.First.Add(time.Duration(s.Count-n+i)*r.Spacing() + r.Tolerance())
	}
	return until
}
