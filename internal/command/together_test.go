package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// gathered is a batch of edits of tasks that are stored, behind a proxy.
type gathered struct {
	*together
	t     *testing.T
	px    *proxy.Proxy
	db    *mongo.Database
	batch []*edit
}

func gather(t *testing.T, n int) *gathered {
	t.Helper()
	g := &gathered{t: t, px: testdb.Behind(t), db: testdb.New(t)}
	s, err := store.Open(store.Config{Database: engine.Connect(t, g.px.URI()).Database(g.db.Name())})
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	g.together = newTogether(s.Tasks)
	var tasks []*model.Task
	for i := range n {
		task := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: fmt.Sprint(i)}, s.Clock.Now())
		tasks = append(tasks, task)
		g.batch = append(g.batch, g.edit(task.ID, "edited"))
	}
	_, err = s.Tasks.Insert(t.Context(), tasks)
	require.NoError(t, err)
	return g
}

// edit begins an execution of that name, once.
func (g *gathered) edit(id, word string) *edit {
	return &edit{ctx: g.t.Context(), id: id, done: make(chan struct{}), rule: func(t *model.Task) (*model.Task, error) {
		if begun(t) == word {
			return t, nil
		}
		after := *t
		after.Rev++
		after.WorkerStates = append(slices.Clone(t.WorkerStates), model.WorkerState{WorkerID: "w", ExecID: word})
		return &after, nil
	}}
}

// begun is the last execution of the task.
func begun(t *model.Task) string {
	if n := len(t.WorkerStates); n > 0 {
		return t.WorkerStates[n-1].ExecID
	}
	return ""
}

func (g *gathered) stored(id string) string {
	g.t.Helper()
	task, err := g.tasks.Get(g.t.Context(), id)
	require.NoError(g.t, err)
	return begun(task)
}

// requireDone waits for an edit that succeeds.
func (g *gathered) requireDone(e *edit, word string) {
	g.t.Helper()
	select {
	case <-e.done:
	case <-time.After(testdb.Patience):
		require.FailNow(g.t, "the edit waits", e.id)
	}
	require.NoError(g.t, e.err)
	require.Equal(g.t, word, begun(e.after))
	require.Equal(g.t, word, g.stored(e.id))
}

func TestEditsThatCameTogetherTakeOneReadAndOneCommand(t *testing.T) {
	g := gather(t, 50)
	reads := g.px.Set(proxy.Rule{Command: "find", Collection: "tasks", Do: proxy.Pass, Times: -1})
	writes := g.px.Set(proxy.Rule{Command: "update", Collection: "tasks", Do: proxy.Pass, Times: -1})
	g.flush(g.batch)
	require.Equal(t, []int{1, 1}, []int{reads.Sprung(), writes.Sprung()})
	for _, e := range g.batch {
		g.requireDone(e, "edited")
	}
}

func TestEachOfSeveralEditsOfATaskIsDone(t *testing.T) {
	g := gather(t, 3)
	second := g.edit(g.batch[1].id, "edited again")
	g.flush(append(g.batch, second))
	for _, e := range []*edit{g.batch[0], g.batch[2]} {
		g.requireDone(e, "edited")
	}
	g.requireDone(second, "edited again")
	<-g.batch[1].done
	require.NoError(t, g.batch[1].err)
	require.Equal(t, "edited", begun(second.before), "in their order")
}

func TestWhatOneEditMeetsIsNotTheOthers(t *testing.T) {
	g := gather(t, 5)
	wrong := errors.New("wrong")
	gone := g.edit("-/t/gone", "edited")
	g.batch[1].rule = func(*model.Task) (*model.Task, error) { return nil, wrong }
	left, leave := context.WithCancel(t.Context())
	leave()
	g.batch[2].ctx = left
	// Somebody changes a task after it was read.
	crossed, rule := false, g.batch[3].rule
	g.batch[3].rule = func(task *model.Task) (*model.Task, error) {
		if !crossed {
			crossed = true
			_, err := g.db.Collection("tasks").UpdateByID(t.Context(), task.ID, bson.D{{Key: "$inc", Value: bson.D{{Key: "rev", Value: 1}}}})
			require.NoError(t, err)
		}
		return rule(task)
	}
	g.flush(append(g.batch, gone))
	for _, i := range []int{0, 3, 4} {
		g.requireDone(g.batch[i], "edited")
	}
	<-g.batch[1].done
	require.ErrorIs(t, g.batch[1].err, wrong)
	<-g.batch[2].done
	require.ErrorIs(t, g.batch[2].err, context.Canceled)
	require.Empty(t, g.stored(g.batch[2].id))
	<-gone.done
	require.ErrorIs(t, gone.err, store.ErrNotFound)
}

func TestAHeldTaskDelaysNoOthers(t *testing.T) {
	g := gather(t, 20)
	session, err := g.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, session.StartTransaction())
	held := g.batch[7]
	_, err = g.db.Collection("tasks").UpdateByID(mongo.NewSessionContext(t.Context(), session), held.id, bson.D{{Key: "$set", Value: bson.D{{Key: "remark", Value: "mine"}}}})
	require.NoError(t, err)
	g.flush(g.batch)
	for _, e := range g.batch {
		if e != held {
			g.requireDone(e, "edited")
		}
	}
	select {
	case <-held.done:
		require.Fail(t, "somebody holds it")
	default:
	}
	require.NoError(t, session.AbortTransaction(t.Context()))
	g.requireDone(held, "edited")
}

func TestAnAnswerThatIsLostIsAskedForAgain(t *testing.T) {
	for name, action := range map[string]proxy.Action{"before": proxy.CutBefore, "after": proxy.CutAfter} {
		for _, command := range []string{"find", "update"} {
			t.Run(command+" "+name, func(t *testing.T) {
				g := gather(t, 10)
				trap := g.px.Set(proxy.Rule{Command: command, Collection: "tasks", Do: action})
				g.flush(g.batch)
				for _, e := range g.batch {
					g.requireDone(e, "edited")
				}
				require.Equal(t, 1, trap.Sprung())
			})
		}
	}
}

func TestWhatComesAloneIsWrittenAtOnceAndGathersOthersOnlyWhileItIs(t *testing.T) {
	g := gather(t, 2)
	before, after, err := g.change(t.Context(), g.batch[0].id, g.batch[0].rule)
	require.NoError(t, err)
	require.Empty(t, begun(before))
	require.Equal(t, "edited", begun(after))
	ctx, cancel := context.WithCancel(t.Context())
	trap := g.px.Set(proxy.Rule{Command: "update", Collection: "tasks", Do: proxy.HoldBefore})
	done := make(chan error, 1)
	go func() {
		_, _, err := g.change(ctx, g.batch[1].id, g.batch[1].rule)
		done <- err
	}()
	<-trap.Hit()
	_, _, err = g.change(t.Context(), g.batch[0].id, g.edit("", "edited beside it").rule)
	require.NoError(t, err, "it does not wait for the one that is held up")
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	trap.Release()
}
