package flow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/decision"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	// linksAtOnce is how many streams are linked in one round.
	linksAtOnce = 100
	// linkTries is how often a process tries to link what it has appended while others decide. What
	// is left is due soon.
	linkTries = 20
	// perLinkInsert is how many tasks of linked nodes go out in one command.
	perLinkInsert = 1000
)

// linkAppended links the nodes of streams to which this process has appended.
func (f *Flows) linkAppended(batch []string) {
	slices.Sort(batch)
	ids := slices.Compact(batch)
	ctx, cancel := context.WithTimeout(context.Background(), appendTimeout)
	defer cancel()
	for tries := 0; len(ids) > 0 && tries < linkTries; tries++ {
		var left []string
		for some := range slices.Chunk(ids, linksAtOnce) {
			more, err := f.linkOnce(ctx, some, appended, f.notLeft)
			if err != nil {
				f.log.Debug().Err(err).Msg("could not link appended nodes; an engine does it")
			}
			if store.Outage(err) || ctx.Err() != nil {
				return
			}
			left = append(left, more...)
		}
		ids = left
	}
}

// notLeft says whether nodes of a stream are to be linked now, and are not left to the decision about the
// end of the last one: none runs, or there is more to link than a decision may. Another process that has
// appended may have been quicker.
func (f *Flows) notLeft(doc *graph.Flow) bool {
	return doc.RunningAt.IsZero() || !doc.DueAt.IsZero() && !doc.DueAt.After(f.store.Clock.Now())
}

func anyStream(*graph.Flow) bool { return true }

// linkOnce decides once about those of the streams that are wanted, and returns those about which there
// is more to decide, beside the error for those that the database refuses. upTo says up to which number nodes are linked.
func (f *Flows) linkOnce(ctx context.Context, ids []string, upTo func(*graph.Flow) int64, wanted func(*graph.Flow) bool) (more []string, err error) {
	began := clock.Read(f.store.Local())
	docs, err := f.store.Flows.ByIDs(ctx, ids)
	if err != nil {
		return nil, err
	}
	var all []*graph.Flow
	for _, doc := range docs {
		if doc != nil && wanted(doc) && (flowplan.Room(doc) > 0 || !doc.Backlog) {
			all = append(all, doc)
		}
	}
	afters, errs, err := f.link(ctx, all, upTo, flowplan.Link, f.store.Clock.Now())
	if err != nil {
		return nil, err
	}
	var writes []store.Decision[*graph.Flow]
	for i, doc := range all {
		if afters[i] == nil && errs[i] == nil {
			more = append(more, doc.ID)
		} else if errs[i] == nil && afters[i] != doc {
			writes = append(writes, store.Decision[*graph.Flow]{Before: doc, After: afters[i]})
		}
	}
	if len(writes) == 0 {
		return more, nil
	}
	applied, refused, err := f.decider.Several(ctx, began, writes)
	if err != nil {
		return nil, err
	}
	for i, w := range writes {
		if refused[i] != nil { // it is due soon
			err = errors.Join(err, refused[i])
		} else if !applied[i] || !w.After.DueAt.IsZero() && !w.After.DueAt.After(f.store.Clock.Now()) {
			more = append(more, w.After.ID)
		}
	}
	return more, err
}

// linkDue links the nodes of streams that are due.
func (p planner) linkDue(ctx context.Context, cases []decision.Case[*graph.Flow], answers []decision.Answer[*graph.Flow], now time.Time) error {
	var streams []*graph.Flow
	var of []int // of each stream: its case
	for i := range cases {
		if c := &cases[i]; c.Due && c.Doc.Kind == graph.KindStream && !answers[i].Changed && answers[i].Err == nil {
			streams, of = append(streams, c.Doc), append(of, i)
		}
	}
	afters, errs, err := p.link(ctx, streams, appended, flowplan.Link, now)
	if err != nil {
		return err
	}
	for n, i := range of {
		a := &answers[i]
		if a.Err = errs[n]; afters[n] != nil {
			a.After, a.Changed = afters[n], afters[n] != streams[n]
		}
	}
	return nil
}

// linkDry links the nodes of streams that have run dry by a decision about ends, as part of that
// decision. What was appended is read anew: it is not guarded by the rev, so the stream may have been
// read before. Nodes are looked for also where no look is due: the one that appended them was slow.
func (p planner) linkDry(ctx context.Context, answers []decision.Answer[*graph.Flow], now time.Time) error {
	dry := map[string]int{} // by id: its case
	for i := range answers {
		if a := &answers[i]; a.Changed && flowplan.Dry(a.After) {
			dry[a.After.ID] = i
		}
	}
	if len(dry) == 0 {
		return nil
	}
	fresh, err := p.store.Flows.Appending(ctx, slices.Collect(maps.Keys(dry)))
	if err != nil {
		return err
	}
	var streams []*graph.Flow
	for _, s := range fresh {
		after := *answers[dry[s.ID]].After
		if s.Rev != after.Rev-1 {
			continue // somebody has decided since
		}
		after.Appended, after.DueAt, after.LookUntil = s.Appended, s.DueAt, s.LookUntil
		streams = append(streams, &after)
	}
	afters, _, err := p.link(ctx, streams, appended, flowplan.LinkDry, now)
	if err != nil {
		return err
	}
	for _, after := range afters {
		if after != nil {
			answers[dry[after.ID]].After = after
		}
	}
	return nil
}

// linkDried links the nodes of streams that have run dry and were stored while that was decided. Whoever
// stored them saw that the stream runs, and left them to that decision, which had read already.
func (f *Flows) linkDried(batch []string) {
	ctx, cancel := context.WithTimeout(context.Background(), appendTimeout)
	defer cancel()
	for some := range slices.Chunk(batch, linksAtOnce) {
		upTo := make(map[string]int64, len(some))
		for _, id := range some {
			upTo[id] = math.MaxInt64
		}
		found, err := f.store.Waiting(ctx, upTo, 0)
		if err != nil {
			f.log.Debug().Err(err).Msg("could not look for nodes to link; they are due soon")
			return
		}
		for id, w := range found {
			if w.More {
				_ = f.streams.links.Put(ctx, id) // else it is due soon
			}
		}
	}
}

// linking is flowplan.Link or a variant.
type linking func(f *graph.Flow, appended []*graph.Node, more bool, now time.Time) *graph.Flow

// appended is the last number that was reserved when the stream was read.
func appended(f *graph.Flow) int64 { return f.Appended }

// everything is beyond all numbers.
func everything(*graph.Flow) int64 { return math.MaxInt64 }

// link decides about the nodes of streams that are to be linked, with numbers up to that of upTo. errs
// are those of streams about which this process cannot decide. A stream that was not read, because
// others have much to link, has neither a decision nor an error.
func (f *Flows) link(ctx context.Context, streams []*graph.Flow, upTo func(*graph.Flow) int64, link linking, now time.Time) (afters []*graph.Flow, errs []error, err error) {
	last := make(map[string]int64, len(streams))
	for _, doc := range streams {
		if n := upTo(doc); n > 0 {
			last[doc.ID] = n
		}
	}
	// Those in the window may be INIT still: their link is not carried out yet.
	found, err := f.store.Waiting(ctx, last, flowplan.PerLink)
	if err != nil {
		return nil, nil, err
	}
	afters, errs = make([]*graph.Flow, len(streams)), make([]error, len(streams))
	for i, doc := range streams {
		w := found[doc.ID]
		if w == nil && last[doc.ID] > 0 {
			continue
		} else if w == nil { // nothing was ever appended
			w = new(store.Waiting)
		}
		if w.Unread != nil && len(w.Nodes) == 0 {
			errs[i] = fmt.Errorf("stream %s: the node %s, which is the next, cannot be read: %w", doc.ID, w.Unread.ID, w.Unread.Err)
			continue
		}
		afters[i] = link(doc, w.Nodes, w.More, now)
	}
	return afters, errs, nil
}

// linked stores the tasks of nodes that were linked, and returns those that may run already: they
// need no release. held are streams of which a task cannot be stored now.
func (p planner) linked(ctx context.Context, flows []*graph.Flow, held map[string]error) (running map[string]*model.Task, err error) {
	type link struct {
		flow  *graph.Flow
		nodes []*graph.Node
	}
	var links []link
	var missing []string
	for _, f := range flows {
		for k := range f.Planned {
			pl := &f.Planned[k]
			if pl.Do != flowplan.DoLink {
				continue
			}
			l := link{f, pl.Links}
			if pl.Links == nil {
				first := flowplan.Place(f, pl)
				for i := first; i < first+pl.N; i++ {
					missing = append(missing, flowplan.RecordID(f, i))
					l.nodes = append(l.nodes, &graph.Node{ID: flowplan.RecordID(f, i)})
				}
			}
			links = append(links, l)
		}
	}
	if len(links) == 0 {
		return map[string]*model.Task{}, nil
	}
	read, unread := map[string]*graph.Node{}, map[string]error{}
	for some := range slices.Chunk(missing, flowplan.PerLink) {
		found, cannot, err := p.store.Nodes.Appended(ctx, some)
		if err != nil {
			return nil, err
		}
		maps.Copy(read, found)
		maps.Copy(unread, cannot)
	}
	now := p.store.Clock.Now()
	running = map[string]*model.Task{}
	var tasks []*model.Task
	var of []*graph.Flow
	for _, l := range links {
		for _, n := range l.nodes {
			if why := unread[n.ID]; why != nil {
				held[l.flow.ID] = fmt.Errorf("reading the node %s: %w", n.ID, why)
				break
			}
			if n.Task == nil {
				if n = read[n.ID]; n == nil || n.Task == nil {
					continue // it was carried out
				}
			}
			t := *n.Task
			if err := p.types.Give(&t); err != nil {
				held[l.flow.ID] = err
				break
			}
			task := &t
			if startsNow(l.flow, n) {
				if r, err := lifecycle.Release(task, lifecycle.EffectiveOf(task, p.types.Options(t.Type)), now); err == nil {
					task, running[t.ID] = r, r
				}
			}
			tasks, of = append(tasks, task), append(of, l.flow)
		}
	}
	return running, p.insert(ctx, tasks, of, running, held)
}

// insert stores tasks of flows. running are those that may run: where one was there before, it may
// have to be released all the same.
func (p planner) insert(ctx context.Context, tasks []*model.Task, of []*graph.Flow, running map[string]*model.Task, held map[string]error) error {
	for len(tasks) > 0 {
		n := min(len(tasks), perLinkInsert)
		exists, err := p.store.Tasks.Insert(ctx, tasks[:n])
		var some *store.InsertError
		if err != nil && !errors.As(err, &some) {
			return fmt.Errorf("storing the tasks of linked nodes: %w", err)
		}
		for i, t := range tasks[:n] {
			if exists[i] {
				delete(running, t.ID)
			}
			if some != nil && some.Refused[i] != nil {
				delete(running, t.ID)
				held[of[i].ID] = fmt.Errorf("storing the task %s: %w", t.ID, some.Refused[i])
			}
		}
		tasks, of = tasks[n:], of[n:]
	}
	return nil
}

// startsNow says whether the first life of a node may run.
func startsNow(f *graph.Flow, n *graph.Node) bool {
	for i := range f.Nodes {
		if flowplan.RecordID(f, i) == n.ID {
			return f.States[i].Status == graph.NodeReady && f.States[i].Life == 0
		}
	}
	return false
}

// linkLost looks for nodes that wait to be linked although nobody looks for them: the process that
// appended them stood still before it stored them, and died after. Their numbers do not matter: a part
// of the database may have been restored.
func (f *Flows) linkLost(ctx context.Context) (failed error) {
	for after := ""; ; {
		ids, err := f.store.Nodes.NextWaiting(ctx, after, perLinkInsert)
		if err != nil || len(ids) == 0 {
			return errors.Join(failed, err)
		}
		for some := range slices.Chunk(ids, linksAtOnce) {
			if _, err := f.linkOnce(ctx, some, everything, anyStream); store.Outage(err) {
				return errors.Join(failed, err)
			} else if err != nil { // it concerns these alone
				failed = errors.Join(failed, err)
			}
		}
		after = ids[len(ids)-1]
	}
}
