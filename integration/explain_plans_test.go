package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/plan/repeat"
)

// Every query about plans and their results reads an index, among thousands of others.
func TestEveryQueryAboutPlansReadsAnIndex(t *testing.T) {
	onEnginesAtFullSize(t, func(t *testing.T, e Engine) {
		x := newExplaining(t, e)
		ctx, st, now := t.Context(), x.store, x.store.Clock.Now().Truncate(time.Millisecond)
		n := e.Of(2_000, 500)
		plans := make([]*repeat.Plan, n)
		for i := range plans {
			at := now.Add(time.Duration(i+1) * time.Hour)
			id := fmt.Sprintf("p%04d", i)
			plans[i] = &repeat.Plan{
				ID: "-/" + id, PlanID: id, Station: "s", Step: 1, PlanTime: at, LookAt: at.Add(time.Minute), Status: repeat.StatusRunning, Rev: 1, UpdatedAt: at, EndedAt: at,
			}
			if i%4 == 3 {
				plans[i].Status = repeat.StatusCancelled
			}
		}
		_, _, err := st.Plans.Insert(ctx, plans)
		require.NoError(t, err)
		existed, _, err := st.Plans.Insert(ctx, plans[:3])
		require.NoError(t, err)
		require.Equal(t, []int{0, 1, 2}, existed)
		x.explain("find", func() {
			_, err := st.Plans.Get(ctx, "-/p0007")
			require.NoError(t, err)
		}).within(t, 2, 1)
		x.explain("find", func() {
			found, err := st.Plans.Past(ctx, []string{"-/p0007", "-/p0008"})
			require.NoError(t, err)
			require.Empty(t, found)
		}).within(t, 4, 0)
		for _, f := range []store.PlanFilter{{}, {Status: repeat.StatusRunning}, {Over: true}, {Status: repeat.StatusRunning, Over: true}} {
			for _, span := range []store.Span{{Limit: 20}, {Limit: 20, At: plans[n/2].UpdatedAt, ID: plans[n/2].ID}} {
				for _, span.Oldest = range []bool{false, true} {
					x.explain("find", func() {
						found, _, err := st.Plans.List(ctx, f, span)
						require.NoError(t, err)
						require.Equal(t, !f.Over, len(found) == 20)
					}).within(t, 2*20+12, 20+6)
				}
			}
		}
		for _, after := range []*repeat.Plan{nil, plans[10]} {
			x.explain("find", func() {
				late, _, err := st.Plans.Late(ctx, now.Add(300*time.Hour), after, 20)
				require.NoError(t, err)
				require.Len(t, late, 20)
			}).within(t, 2*20+12, 20+6)
		}
		x.explain("find", func() {
			late, _, err := st.Plans.Late(ctx, now, nil, 20)
			require.NoError(t, err)
			require.Empty(t, late)
		}).within(t, 4, 0)
		x.explain("aggregate", func() {
			var next time.Time
			waiting := false
			none := func() { t.Error("nothing is planned") }
			require.NoError(t, st.Ask(ctx, "looking", st.Plans.Questions(store.Look[*repeat.Plan]{
				Now: now.Add(100 * time.Hour), Limit: 100, Next: func(at time.Time) { next = at }, LeftBefore: now, Left: none, Waiting: func() { waiting = true },
			})...))
			require.Equal(t, plans[99].LookAt, next.UTC())
			require.True(t, waiting)
		}).within(t, 8, 2)
		x.explain("aggregate", func() {
			running := false
			require.NoError(t, st.Ask(ctx, "looking", st.Plans.RunningQuestion(func() { running = true })))
			require.True(t, running)
		}).within(t, 2, 1)

		x.explain("find", func() {
			lives := []store.OutboxLife{{Task: &model.Task{ID: "-/report/a", Generation: 1}}, {Task: &model.Task{ID: "-/report/b", Generation: 1}, InHistory: true}}
			tasks, _, err := st.Tasks.LivesPage(ctx, lives, store.Returned)
			require.NoError(t, err)
			require.Equal(t, []*model.Task{nil, nil}, tasks)
		}).within(t, 2, 0)
		var results []*repeat.Result
		for i := range n {
			p := plans[i/10]
			results = append(results, &repeat.Result{ID: fmt.Sprint(p.ID, "/", i), Plan: p.ID, PlanID: p.PlanID, At: now.Add(time.Duration(i) * time.Second)})
		}
		require.NoError(t, st.Results.Put(ctx, results))
		require.NoError(t, st.Results.Put(ctx, results[:5]), "they are there")
		for _, after := range []*repeat.Result{nil, results[32]} {
			x.explain("find", func() {
				found, more, err := st.Results.List(ctx, "-/p0003", store.ResultPage{After: after, Limit: 5})
				require.NoError(t, err)
				require.True(t, more)
				require.Len(t, found, 5)
			}).within(t, 10+4, 8+3)
		}
		x.explain("update", func() {
			held, err := st.Plans.Leave(ctx, plans[:3], now.Add(time.Hour), time.Hour)
			require.NoError(t, err)
			require.Empty(t, held)
		}).within(t, 2*3, 3)
		x.explain("update", func() {
			_, err := st.Plans.CarriedOut(ctx, plans[:3])
			require.NoError(t, err)
		}).within(t, 2*3, 3)
	})
}
