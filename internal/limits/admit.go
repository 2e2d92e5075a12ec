package limits

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
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
//
// hand are permits that the process has at hand, all of the one type of the tasks: their
// executions have ended, as an acknowledged write says. They pass straight on, and no others are
// taken. Those that no grant names the caller gives back. nil = permits are taken.
func (g *Gate) Admit(ctx context.Context, tasks []*model.Task, execID string, hand []lifecycle.Permit) (Admission, error) {
	a := Admission{Granted: map[*model.Task]Grant{}, Later: map[*model.Task]time.Time{}}
	if len(tasks) == 0 {
		return a, nil
	}
	if !g.marked.Load() {
		if err := g.store.Control.MarkLimited(ctx); err != nil {
			return a, err
		}
		g.marked.Store(true)
	}
	types, of := grouped(tasks, func(t *model.Task) string { return t.Type })
	for _, typ := range types {
		if err := g.admitType(ctx, typ, of[typ], execID, hand, &a); err != nil {
			return Admission{}, err
		}
	}
	return a, nil
}

// grouped divides tasks by what a function returns for each, in their order. It leaves out those
// with "".
func grouped(tasks []*model.Task, by func(*model.Task) string) (groups []string, of map[string][]*model.Task) {
	of = map[string][]*model.Task{}
	for _, t := range tasks {
		group := by(t)
		if group == "" {
			continue
		}
		if of[group] == nil {
			groups = append(groups, group)
		}
		of[group] = append(of[group], t)
	}
	return groups, of
}

// byKeys groups tasks that have a key, in their order.
func byKeys(tasks []*model.Task) (keys []string, of map[string][]*model.Task) {
	return grouped(tasks, func(t *model.Task) string { return t.Options.LimitKey })
}

// admitType takes what can wait for nobody first, the looks, and last what is lost when it
// is not used: the starts, the type's before the key's.
func (g *Gate) admitType(ctx context.Context, name string, tasks []*model.Task, execID string, hand []lifecycle.Permit, a *Admission) (err error) {
	typ := g.types.Get(name)
	b := &batch{g: g, typ: name, execID: execID, hand: hand, keyed: lifecycle.Keyed(typ), granted: map[*model.Task]Grant{}, later: map[*model.Task]time.Time{}}
	if typ != nil {
		b.rate, b.maxRunning = typ.RateLimit, typ.MaxRunning
	}
	if b.maxRunning > 0 || b.keyed.MaxRunning > 0 {
		if b.others, b.settled, err = g.othersOf(ctx, name); err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context, []*model.Task) ([]*model.Task, error){
		b.withRate, b.withKeys, b.permits, b.keyPermits, b.starts, b.keyStarts,
	} {
		if tasks, err = step(ctx, tasks); err != nil {
			return err
		}
		if len(tasks) == 0 {
			break
		}
	}
	for _, t := range tasks {
		a.Granted[t] = b.granted[t]
	}
	if len(tasks) > 0 {
		g.with(name, func(k *candidates, _ time.Duration) { k.wishes = 0 })
	}
	maps.Copy(a.Later, b.later)
	n, err := g.holdBack(ctx, name, b.blocked)
	a.HeldBack += n
	return err
}

// batch is what is being admitted of one type.
type batch struct {
	g          *Gate
	typ        string
	execID     string
	rate       *model.RateLimit // of the type
	maxRunning int
	keyed      model.KeyLimit
	hand       []lifecycle.Permit // that pass on; nil = permits are taken
	first      time.Time          // the type's next start, by a look
	most       int                // so many starts of the type can be had; 0 = was not looked at
	others     others             // what began without its limits
	settled    bool               // there are no others
	granted    map[*model.Task]Grant
	blocked    []*model.Task
	later      map[*model.Task]time.Time
}

// of names the limit of a key of the type; "" = that of the type.
func (b *batch) of(key string) store.LimitOf { return store.LimitOf{Type: b.typ, Key: key} }

func (b *batch) permit(t *model.Task, key string) lifecycle.Permit {
	return lifecycle.Permit{Type: b.typ, Key: key, PermitUse: lifecycle.UseOf(t, b.execID)}
}

// withRate looks whether the type has a start at all, where tasks need more than that.
func (b *batch) withRate(ctx context.Context, tasks []*model.Task) ([]*model.Task, error) {
	keyed := func(t *model.Task) bool { return t.Options.LimitKey != "" }
	if b.rate == nil || b.maxRunning == 0 && !slices.ContainsFunc(tasks, keyed) {
		return tasks, nil
	}
	res, err := b.g.reserve(ctx, b.of(""), *b.rate, time.Time{}, 0)
	if err != nil {
		return nil, err
	}
	b.first = res.starts.First
	if b.first.After(b.g.store.Clock.Now().Add(res.pace.Ahead())) {
		b.g.rest(b.typ, b.first, *b.rate)
		return nil, nil
	}
	b.most = lifecycle.MostStarts(*b.rate, res.pace)
	return tasks, nil
}

// withKeys leaves out those whose key is full by a look at its permits and its rate: they
// must not take anything from the others. The rest is at most what each key has room for.
func (b *batch) withKeys(ctx context.Context, tasks []*model.Task) ([]*model.Task, error) {
	keys, _ := byKeys(tasks)
	if len(keys) == 0 {
		return b.few(tasks), nil
	}
	taken, next := map[string]int{}, map[store.LimitOf]time.Time{}
	var err error
	if b.keyed.MaxRunning > 0 {
		if taken, err = b.g.store.Permits.KeysTaken(ctx, b.typ, keys); err != nil {
			return nil, err
		}
	}
	var latest time.Time
	if r := b.keyed.RateLimit; r != nil {
		of := make([]store.LimitOf, len(keys))
		for i, k := range keys {
			of[i] = b.of(k)
		}
		if next, err = b.g.store.Rates.Next(ctx, of, *r); err != nil {
			return nil, err
		}
		latest = b.g.store.Clock.Now().Add(b.g.pace().Ahead())
		if !b.first.IsZero() { // it must begin by both
			latest = b.first.Add(lifecycle.GoodFor(*r, b.g.pace()) / 2)
		}
	}
	var free []*model.Task
	for _, t := range tasks {
		k := t.Options.LimitKey
		if k == "" {
			free = append(free, t)
			continue
		}
		at := b.of(k)
		if b.keyed.MaxRunning > 0 && taken[k]+b.others.ofKey[k] >= b.keyed.MaxRunning {
			b.block(t)
			continue
		}
		if b.keyed.RateLimit != nil && next[at].After(latest) {
			b.miss(t)
			continue
		}
		taken[k]++ // also by the one that goes on
		if r := b.keyed.RateLimit; r != nil {
			next[at] = clock.Later(next[at], b.g.store.Clock.Now()).Add(lifecycle.Spacing(*r))
		}
		free = append(free, t)
	}
	return b.few(free), nil
}

// few are no more than can have a start of the type.
func (b *batch) few(tasks []*model.Task) []*model.Task {
	if b.most > 0 {
		return tasks[:min(len(tasks), b.most)]
	}
	return tasks
}

// permits takes permits of the type.
func (b *batch) permits(ctx context.Context, tasks []*model.Task) ([]*model.Task, error) {
	if b.maxRunning == 0 {
		return tasks, nil
	}
	limit := store.Limit{Most: b.maxRunning, Others: b.others.ofType, Settled: b.settled}
	take := b.take
	if b.hand != nil {
		take = b.pass
	}
	got, err := take(ctx, limit, tasks)
	if err != nil {
		return nil, err
	}
	permits := byTask(got)
	return b.keep(tasks, func(t *model.Task, g *Grant) bool { return g.permit(permits, t) }, nil), nil
}

// permit adds the task's permit to the grant; false if there is none.
func (g *Grant) permit(permits map[string]lifecycle.Permit, t *model.Task) bool {
	p, ok := permits[t.ID]
	if ok {
		g.Permits = append(g.Permits, p)
	}
	return ok
}

func (b *batch) take(ctx context.Context, limit store.Limit, tasks []*model.Task) ([]lifecycle.Permit, error) {
	want := make([]lifecycle.Permit, len(tasks))
	for i, t := range tasks {
		want[i] = b.permit(t, "")
	}
	got, err := b.g.store.Permits.Take(ctx, b.of(""), limit, want)
	if err != nil {
		return nil, err
	}
	if len(got) > 0 {
		b.g.tookUnwatched(b.typ, got[len(got)-1])
	}
	if len(got) < len(want) {
		if len(got) == 0 {
			b.g.wishUnwatched(ctx, b.typ)
		}
		b.g.full(b.typ)
	} else {
		b.g.roomy(b.typ)
	}
	return got, nil
}

func (b *batch) pass(ctx context.Context, limit store.Limit, tasks []*model.Task) ([]lifecycle.Permit, error) {
	now := b.g.store.Clock.Now()
	passes := make([]store.Pass, min(len(b.hand), len(tasks)))
	for i := range passes {
		passes[i] = store.Pass{From: b.hand[i], To: b.hand[i].PassTo(tasks[i], b.execID, now)}
	}
	return b.g.store.Permits.Pass(ctx, b.typ, limit, passes)
}

// keep lets those go on to which more could be granted; what the others have got is given
// back, and refused told.
func (b *batch) keep(tasks []*model.Task, more func(*model.Task, *Grant) bool, refused func(*model.Task)) (on []*model.Task) {
	for _, t := range tasks {
		grant := b.granted[t]
		if more(t, &grant) {
			b.granted[t] = grant
			on = append(on, t)
			continue
		}
		b.g.Return(grant)
		delete(b.granted, t)
		if refused != nil {
			refused(t)
		}
	}
	return on
}

// keyPermits takes permits of the keys.
func (b *batch) keyPermits(ctx context.Context, tasks []*model.Task) ([]*model.Task, error) {
	keys, of := byKeys(tasks)
	if len(keys) == 0 || b.keyed.MaxRunning == 0 {
		return tasks, nil
	}
	permits, err := b.takeKeys(ctx, keys, of)
	if err != nil {
		return nil, err
	}
	return b.keep(tasks, func(t *model.Task, g *Grant) bool { return g.permit(permits, t) || t.Options.LimitKey == "" }, b.block), nil
}

func (b *batch) takeKeys(ctx context.Context, keys []string, of map[string][]*model.Task) (map[string]lifecycle.Permit, error) {
	if b.keyed.MaxRunning == 1 {
		var want []lifecycle.Permit
		for _, k := range keys {
			want = append(want, b.permit(of[k][0], k))
		}
		got, err := b.g.store.Permits.TakeKeys(ctx, want)
		return byTask(got), err
	}
	permits := map[string]lifecycle.Permit{}
	for _, k := range keys {
		var want []lifecycle.Permit
		for _, t := range of[k] {
			want = append(want, b.permit(t, k))
		}
		limit := store.Limit{Most: b.keyed.MaxRunning, Others: b.others.ofKey[k], Settled: b.settled}
		got, err := b.g.store.Permits.Take(ctx, b.of(k), limit, want)
		if err != nil {
			return nil, err
		}
		maps.Copy(permits, byTask(got))
	}
	return permits, nil
}

// starts reserves starts of the type.
func (b *batch) starts(ctx context.Context, tasks []*model.Task) ([]*model.Task, error) {
	if b.rate == nil {
		return tasks, nil
	}
	res, err := b.g.reserve(ctx, b.of(""), *b.rate, time.Time{}, len(tasks))
	if err != nil {
		return nil, err
	}
	if res.starts.Count < len(tasks) {
		b.g.rest(b.typ, res.starts.Next, *b.rate)
	}
	i := -1
	return b.keep(tasks, func(_ *model.Task, g *Grant) bool {
		i++
		return i < res.starts.Count && res.give(i, g)
	}, nil), nil
}

// keyStarts reserves starts of the keys, by which those of the type can be kept.
func (b *batch) keyStarts(ctx context.Context, tasks []*model.Task) ([]*model.Task, error) {
	keys, of := byKeys(tasks)
	if len(keys) == 0 || b.keyed.RateLimit == nil {
		return tasks, nil
	}
	got := map[*model.Task]bool{}
	for _, k := range keys {
		from := b.granted[of[k][0]].From
		res, err := b.g.reserve(ctx, b.of(k), *b.keyed.RateLimit, from, len(of[k]))
		if err != nil {
			return nil, err
		}
		for i, t := range of[k][:res.starts.Count] {
			grant := b.granted[t]
			got[t] = res.give(i, &grant)
			b.granted[t] = grant
		}
	}
	return b.keep(tasks, func(t *model.Task, _ *Grant) bool { return got[t] || t.Options.LimitKey == "" }, b.miss), nil
}

// block holds a task back: its key is full.
func (b *batch) block(t *model.Task) { b.blocked = append(b.blocked, t) }

// miss is for a task without a start. One that was given its turn just now is left to whoever
// has the start: to hold it back would only undo that, and refuse their claim. Starts for which turns are given
// together lie up to Ahead apart, and each is reserved up to Ahead before its time.
func (b *batch) miss(t *model.Task) {
	good := t.WakeAt.Add(max(lifecycle.Tolerance(*b.keyed.RateLimit), 2*b.g.pace().Ahead()))
	if !good.After(b.g.store.Clock.Now()) {
		b.block(t)
		return
	}
	b.later[t] = good
	b.g.lookAt(b.of(t.Options.LimitKey), good) // and so it is pending
}

func byTask(permits []lifecycle.Permit) map[string]lifecycle.Permit {
	out := make(map[string]lifecycle.Permit, len(permits))
	for _, p := range permits {
		out[p.TaskID] = p
	}
	return out
}
