package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/flow"
	"github.com/mscheduler/mscheduler/flow/graph"
	"github.com/mscheduler/mscheduler/internal/flowspec"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/plan"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// decidedKind is a kind of documents about which an engine decides.
type decidedKind struct {
	collection string
	engine     func(context.Context) error
	create     func(n int) (id string)
	// provoke has something decided about a document; nil = time does.
	provoke func(n int)
	// mayEnd waits until the task of a document may end; nil = at once.
	mayEnd func(over <-chan struct{}, n string)
}

const heldDocuments = 12

func decidedKinds(t *testing.T, a *arena) map[string]decidedKind {
	t.Helper()
	rules, err := periodic.New(periodic.Config{Database: a.db})
	require.NoError(t, err)
	flows, err := flow.New(flow.Config{Database: a.db})
	require.NoError(t, err)
	plans, err := plan.New(plan.Config{Database: a.db})
	require.NoError(t, err)
	link := func(n int) {
		_, err := flows.Append(t.Context(), "scene", fmt.Sprint(n), graph.NodeSpec{Type: "held", OnFailure: graph.Continue})
		require.NoError(t, err)
	}
	nodes := map[string]chan struct{}{} // of flows that may end
	for n := range heldDocuments {
		nodes[fmt.Sprint(n)] = make(chan struct{}, 20)
	}
	return map[string]decidedKind{
		"rule": {collection: "periodic_rules", engine: rules.Run, create: func(n int) string {
			r, err := rules.Create(t.Context(), schedule.Spec{Name: fmt.Sprint("rule ", n), Cron: "* * * * * *", Type: "held"})
			require.NoError(t, err)
			_, err = rules.Enable(t.Context(), r.ID, 0)
			require.NoError(t, err)
			return r.ID
		}},
		"flow": {collection: "flows", engine: flows.Run, provoke: func(n int) {
			nodes[fmt.Sprint(n)] <- struct{}{}
			nodes[fmt.Sprint(n)] <- struct{}{}
		}, mayEnd: func(over <-chan struct{}, n string) {
			select {
			case <-nodes[n]:
			case <-over:
			}
		}, create: func(n int) string {
			s := graph.Spec{Key: fmt.Sprint("held ", n)}
			for i := range 20 {
				node := graph.NodeSpec{ID: fmt.Sprint("n", i), Type: "held", Args: map[string]any{"n": fmt.Sprint(n)}}
				if i > 0 {
					node.After = []string{fmt.Sprint("n", i-1)}
				}
				s.Nodes = append(s.Nodes, node)
			}
			f, err := flows.Start(t.Context(), s)
			require.NoError(t, err)
			return f.ID
		}},
		"plan": {collection: "plans", engine: plans.Run, create: func(n int) string {
			p, err := plans.Publish(t.Context(), repeat.Spec{
				PlanID: fmt.Sprint("held ", n), Station: "held", Description: "held", PlanType: repeat.Second, PlanValue: 1, PlanRepet: 200, NoKeep: true,
				Messages: []any{n},
			})
			require.NoError(t, err)
			return p.ID
		}},
		"stream": {collection: "flows", engine: flows.Run, provoke: link, create: func(n int) string {
			link(n)
			id, _ := flowspec.StreamID("scene", fmt.Sprint(n))
			return id
		}},
	}
}

func TestAnOpenTransactionOnADecidedDocumentDelaysNoOthers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"rule", "flow", "plan", "stream"} {
		t.Run(name, func(t *testing.T) {
			onEnginesWithHolds(t, func(t *testing.T, a *arena) {
				kind := decidedKinds(t, a)[name]
				over := make(chan struct{})
				c, err := consumer.New(consumer.Config{Database: a.db, Concurrency: 2 * heldDocuments})
				require.NoError(t, err)
				require.NoError(t, consumer.Handle(c, model.NewType[map[string]any, model.None]("held"), func(ctx context.Context, task *consumer.Task[map[string]any]) (model.None, error) {
					if kind.mayEnd != nil {
						kind.mayEnd(over, fmt.Sprint(task.Args["n"]))
					}
					return model.None{}, ctx.Err()
				}))
				a.runEngine(c.Run)
				t.Cleanup(func() { close(over) })
				a.runEngine(kind.engine)
				ids := make([]string, heldDocuments)
				for n := range ids {
					ids[n] = kind.create(n)
				}
				const held = 5
				decisions := func(n int) int64 {
					var doc struct {
						Rev int64 `bson:"rev"`
					}
					require.NoError(t, a.db.Collection(kind.collection).FindOne(t.Context(), bson.D{{Key: "_id", Value: ids[n]}}).Decode(&doc))
					return doc.Rev
				}
				var provoking sync.WaitGroup
				// decided waits for two decisions about each of the documents.
				decided := func(which ...int) {
					before := map[int]int64{}
					for _, n := range which {
						before[n] = decisions(n)
					}
					for n := range ids {
						if kind.provoke != nil {
							provoking.Go(func() { kind.provoke(n) }) // it waits for the one that is held
						}
					}
					awaitTrue(t, func() string {
						for n, rev := range before {
							if is := decisions(n); is < rev+2 {
								return fmt.Sprintf("%s %d had %d decisions and has %d", name, n, rev, is)
							}
						}
						return ""
					})
				}
				all, others := []int{}, []int{}
				for n := range ids {
					if all = append(all, n); n != held {
						others = append(others, n)
					}
				}
				decided(all...)
				session := a.touch(kind.collection, ids[held])
				rev := decisions(held)
				decided(others...)
				decided(others...)
				require.Equal(t, rev, decisions(held))
				require.NoError(t, session.CommitTransaction(t.Context()), "it was open all the time")
				decided(all...)
				provoking.Wait()
			})
		})
	}
}
