package flow

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowplan"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

// gatherAll ends the tasks of nodes whose elements have ended, as long as long lasts. It comes after all else that may
// take long, so that many outputs keep no other flow waiting.
func (p planner) gatherAll(long context.Context, todos []todo, held map[string]error) {
	for _, do := range todos {
		i := do.place()
		if held[do.flow.ID] != nil || do.flow.States[i].Life != do.plan.Life || !flowplan.Gathers(do.flow, i) {
			continue
		}
		what := "the outputs of the elements of node " + do.flow.Nodes[i].ID
		switch err := p.gather(long, do.flow, i); {
		case store.Outage(err): // or the time is up. What follows finds out about an outage.
			held[do.flow.ID] = fmt.Errorf("%s are not all gathered yet: %s", what, err.Error())
		case err != nil: // it concerns this flow alone
			held[do.flow.ID] = fmt.Errorf("%s: %w", what, err)
		}
	}
}

// gather ends the task of a node whose elements have ended: with their outputs in order, and as a
// failure if one has failed. Of an element that failed the output is null. After an error the next try goes on with
// the outputs that were not read.
func (p planner) gather(ctx context.Context, f *graph.Flow, i int) (err error) {
	st := &f.States[i]
	var ids []string
	if !strings.ContainsFunc(st.Elements, func(letter rune) bool { return flowplan.ElementOpen(byte(letter)) }) {
		for k := range len(st.Elements) {
			ids = append(ids, flowspec.ElementID(f, i, k, st.Life))
		}
	}
	g := p.gathered.take(f, i)
	defer func() {
		if err != nil {
			p.gathered.keep(f, i, g)
		}
	}()
	for g.n < len(ids) && len(g.outputs) <= input.MaxResultBytes {
		tasks, read, err := p.store.Tasks.LastLivesPage(ctx, ids[g.n:], store.Output)
		for _, id := range ids[g.n : g.n+read] {
			t, there := tasks[id]
			if unread := g.add(st.Elements[g.n] == flowplan.ElementSucceeded, t, there); unread != nil {
				return unread
			}
		}
		if err != nil {
			return err
		}
	}
	out, _ := bsoncore.AppendArrayEnd(g.outputs[:len(g.outputs):len(g.outputs)], 0)
	result, why := bson.RawValue{Type: bson.TypeArray, Value: out}, g.why
	if len(out) > input.MaxResultBytes {
		result, why = bson.RawValue{}, fmt.Sprintf("the outputs of its elements have more than %d bytes together", input.MaxResultBytes)
	}
	if failed := strings.IndexByte(st.Elements, flowplan.ElementFailed); failed >= 0 {
		if why, err = p.whyFailed(ctx, f, i, failed); err != nil {
			return err
		}
	}
	status := model.StatusSuccess
	if why != "" {
		status = model.StatusFailure
	}
	_, err = p.concludeTask(ctx, taskID(f, i), &model.Origin{ID: f.ID, Generation: st.Life}, time.Time{}, status, result, why)
	return err
}

// whyFailed names the first element that failed.
func (p planner) whyFailed(ctx context.Context, f *graph.Flow, i, failed int) (string, error) {
	st := &f.States[i]
	id := flowspec.ElementID(f, i, failed, st.Life)
	tasks, err := p.store.Tasks.LastLivesOf(ctx, []string{id}, store.State)
	if err != nil {
		return "", err
	}
	info := "its task is gone"
	if t := tasks[id]; t != nil {
		if info = t.ErrorInfo; info == "" {
			info = "its task ended as " + string(t.Status)
		}
	}
	return fmt.Sprintf("%d of its %d elements failed, the first is element %d: %s",
		strings.Count(st.Elements, string(rune(flowplan.ElementFailed))), len(st.Elements), failed, info), nil
}

// maxGathered bounds the nodes whose outputs are remembered between two tries: each may have a megabyte.
const maxGathered = 16

// gathered are outputs that were read of nodes with elements whose tasks have not ended yet. It is safe for concurrent
// use.
type gathered struct {
	mu sync.Mutex
	of map[string]*outputs // by the task of the node
}

// outputs are those of the first elements of a node.
type outputs struct {
	createdAt time.Time // of the flow
	life      int64
	elements  string // their letters
	n         int
	outputs   []byte // an array that is not complete
	why       string // the node fails; "" = it does not
}

// take returns what is known, which nobody else has then.
func (g *gathered) take(f *graph.Flow, i int) *outputs {
	g.mu.Lock()
	defer g.mu.Unlock()
	id, st := taskID(f, i), &f.States[i]
	known := g.of[id]
	delete(g.of, id)
	if known != nil && known.createdAt.Equal(f.CreatedAt) && known.life == st.Life && known.elements == st.Elements {
		return known
	}
	_, begun := bsoncore.AppendArrayStart(nil)
	return &outputs{createdAt: f.CreatedAt, life: st.Life, elements: st.Elements, outputs: begun}
}

func (g *gathered) keep(f *graph.Flow, i int, what *outputs) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.of {
		if len(g.of) < maxGathered {
			break
		}
		delete(g.of, id)
	}
	g.of[taskID(f, i)] = what
}

// add takes in the output of the next element. The error says that this process cannot read it.
func (o *outputs) add(succeeded bool, t *model.Task, there bool) error {
	v := bsoncore.Value{Type: bsoncore.TypeNull}
	switch {
	case !succeeded:
	case !there:
		o.why = cmp.Or(o.why, fmt.Sprintf("the output of element %d is gone: its task has been deleted", o.n))
	case t == nil:
		return fmt.Errorf("this process cannot read the output of element %d", o.n)
	case t.Result.Type != 0:
		v = bsoncore.Value{Type: bsoncore.Type(t.Result.Type), Data: t.Result.Value}
	}
	if len(o.outputs) <= input.MaxResultBytes { // else they are too large together already
		o.outputs = bsoncore.AppendValueElement(o.outputs, strconv.Itoa(o.n), v)
	}
	o.n++
	return nil
}
