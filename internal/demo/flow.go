package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/fleet"
	"github.com/mscheduler/mscheduler/model"
)

// flowKey is the key of the flow at the end of the demo, killedNode the node whose worker is killed.
const (
	flowKey    = "order-1"
	killedNode = "pay"
	flowKeys   = "flow:" // the keys of the tasks of nodes begin with it
)

// nodeKey is the key of the task of a node.
func nodeKey(node string) string { return flowKeys + flowKey + ":" + node }

// flowResult is what became of the flow.
type flowResult struct {
	Status   graph.Status `json:"status"`
	Nodes    int          `json:"nodes"`
	Success  int          `json:"succeeded"`     // nodes that are SUCCESS
	Takeover float64      `json:"takeover_ms"`   // from the kill until another worker had the node
	Killed   string       `json:"killed_worker"` // it ran the node pay
	Took     string       `json:"took_over_by"`  // the worker that ended the node
}

// ok says whether the flow went on as if nobody had died.
func (f *flowResult) ok() bool {
	return f.Status == graph.StatusFinish && f.Nodes > 0 && f.Success == f.Nodes && f.Killed != f.Took
}

// runFlow starts a flow, kills the worker that runs one of its nodes, and waits for its end.
func (d *demo) runFlow(ctx context.Context, s *Summary) error {
	d.view.note("every task has ended. Now a flow: check, then pay and pack at the same time, then ship")
	gate := make(chan struct{})
	d.Set(func() { d.target.pinned[nodeKey(killedNode)] = gate })
	release := func() {
		d.Set(func() {
			if d.target.pinned[nodeKey(killedNode)] != nil {
				delete(d.target.pinned, nodeKey(killedNode))
				close(gate)
			}
		})
	}
	defer release()
	path := filepath.Join(d.dir, "order.yaml")
	if err := os.WriteFile(path, []byte(d.flowFile()), 0o600); err != nil {
		return fmt.Errorf("writing the flow: %w", err)
	}
	if err := d.cli(ctx, "flow start -f order.yaml", "flow", "start", "-f", path); err != nil {
		return err
	}
	w, held, err := d.holderOf(ctx, killedNode)
	if err != nil {
		return err
	}
	d.view.note("SIGKILL to %s, which runs the node %s", w.id, killedNode)
	d.Set(func() { w.state = killed })
	w.Kill()
	d.Set(func() { delete(d.target.pinned, nodeKey(killedNode)) }) // who takes over is answered
	took, err := d.moveOn(ctx, w, held)
	if err != nil {
		return err
	}
	err = d.until(ctx, "another worker to run the node", func() bool {
		s.Flow.Took = d.started[held[0].task].by
		return s.Flow.Took != w.id
	})
	if err != nil {
		return err
	}
	s.Flow.Killed, s.Flow.Takeover = w.id, float64(took.Milliseconds())
	d.view.note("%s took over the node %s within %.1f s", s.Flow.Took, killedNode, took.Seconds())
	if err := d.flowEnds(ctx, s); err != nil {
		return err
	}
	d.view.note("the flow is FINISH: ship started when pay and pack had succeeded")
	return d.cli(ctx, "flow show "+flowKey, "flow", "show", flowKey, "--graph", "text")
}

// flowFile is the definition of the flow. Each node is an http task that calls the target.
func (d *demo) flowFile() string {
	var b strings.Builder
	fmt.Fprintf(&b, "key: %s\nnodes:\n", flowKey)
	for _, n := range []struct{ id, after string }{{"check", ""}, {"pay", "check"}, {"pack", "check"}, {"ship", "pay, pack"}} {
		fmt.Fprintf(&b, "  - id: %s\n    type: http\n    after: [%s]\n    args: {method: POST, url: %q}\n", n.id, n.after, d.target.url(nodeKey(n.id)))
		fmt.Fprintf(&b, "    options: {ping_interval: %v, worker_timeout: %v}\n", pingInterval, lease)
	}
	return b.String()
}

// cli runs a command that a user would use, and shows what it prints.
func (d *demo) cli(ctx context.Context, shown string, args ...string) error {
	p, err := fleet.Start(d.command("mscheduler "+shown, args...))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, p.Kill)()
	if err := p.Wait(); err != nil {
		return errors.Join(context.Cause(ctx), fmt.Errorf("mscheduler %s: %w", shown, err))
	}
	out := " " + p.Output()
	if strings.Contains(out, "\n") {
		out = strings.ReplaceAll("\n"+p.Output(), "\n", "\n          ")
	}
	d.view.note("mscheduler %s:%s", shown, out)
	return nil
}

// holderOf waits until a worker runs a node whose call is held, and returns it.
func (d *demo) holderOf(ctx context.Context, node string) (w *worker, held []holding, err error) {
	err = d.until(ctx, "the node "+node+" to run", func() bool {
		for _, l := range d.workers {
			for c := range d.target.flying[l.id] {
				if c.held && c.task == taskID(nodeKey(node)) && l.now() == working && d.holds(l, c.holding) {
					w, held = l, []holding{c.holding}
				}
			}
		}
		return w != nil
	})
	return w, held, err
}

// flowEnds waits until the flow is over, and counts its nodes.
func (d *demo) flowEnds(ctx context.Context, s *Summary) error {
	id := model.NoTenant + "/" + flowKey
	return d.poll(ctx, "the flow to end", func() (bool, error) {
		doc, err := d.db.Store.Flows.Get(ctx, id)
		if err != nil || doc.Status != graph.StatusFinish {
			return false, err
		}
		s.Flow.Status, s.Flow.Nodes = doc.Status, len(doc.States)
		for _, st := range doc.States {
			if st.Status == graph.NodeSuccess {
				s.Flow.Success++
			}
		}
		return true, nil
	})
}
