//go:build unix

package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/engine"
	"github.com/mscheduler/mscheduler/internal/promises"
	"github.com/mscheduler/mscheduler/model"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// during is a span of the seconds after noon.
func during(from, to float64) span {
	at := func(s float64) time.Time { return noon.Add(time.Duration(s * float64(time.Second))) }
	return span{at(from), at(to)}
}

func TestTheTargetAppliesAnEffectOnceAndRefusesALateOne(t *testing.T) {
	f := newEffects()
	defer f.Close()
	require.True(t, f.take("t", "1", call{What: "begin", Exec: "first"}))
	require.True(t, f.take("t", "2", call{What: "begin", Exec: "second"}))
	require.False(t, f.take("t", "1", call{What: "effect", Exec: "first"}), "a later execution is known")
	require.True(t, f.take("t", "2", call{What: "effect", Exec: "second"}))
	require.True(t, f.take("t", "3", call{What: "effect", Exec: "third"}), "its key is known")
	require.Equal(t, 1, f.tasks["t"].effects)
	require.Equal(t, 1, f.repeated)
	require.Equal(t, 1, f.refused)
}

func TestHowLongTooManyRunIsMeasuredWithoutStalls(t *testing.T) {
	require.Zero(t, crowded([]span{during(0, 1), during(1, 2)}, 1))
	require.Equal(t, time.Second, crowded([]span{during(0, 2), during(1, 3)}, 1))
	require.Zero(t, crowded([]span{during(0, 2), during(1, 3)}, 2))
	require.Equal(t, time.Second, crowded([]span{during(0, 4), during(1, 2), during(3, 3.5)}, 1), "not both together")
}

// What the target knows that the database cannot know is found.
func TestEachThingThatTheTargetSeesIsFound(t *testing.T) {
	for want, wrong := range map[string]func(f *effects){
		"": func(*effects) {},
		"two executions of t have the fencing token 1": func(f *effects) {
			f.take("t", "1", call{What: "begin", Exec: "second", Type: promises.Work, At: noon})
		},
		"an execution of t on a held it for 500ms after another had begun on b": func(f *effects) {
			f.take("t", "2", call{What: "begin", Exec: "second", Type: promises.Work, Worker: "b", At: noon.Add(time.Second / 2)})
		},
		"a step of t had the value won, and then second": func(f *effects) {
			f.take("t", "0", call{What: "begin", Exec: "second", Type: promises.Work, At: noon, Step: "second"})
		},
		"two nodes of the stream links/g ran at once for 500ms": func(f *effects) {
			for n := range 2 {
				_, id := promises.LinkOf("g", "s", n)
				f.take(id, "1", call{What: "begin", Exec: id, Type: promises.Link, At: noon, Spans: []span{during(float64(n)/2, float64(n)/2+1)}})
			}
		},
		"t succeeded, and its effect was applied 0 times": func(f *effects) { f.tasks["t"].effects = 0 },
		"t succeeded by won, whose effect was refused":    func(f *effects) { f.tasks["t"].execs["won"].refused = true },
		"more than 2 tasks of the type limited ran at once for 1s": func(f *effects) {
			for n := range promises.AtOnce + 1 {
				f.take(fmt.Sprint(n), "1", call{What: "begin", Exec: fmt.Sprint(n), Type: promises.Limited, At: noon, Spans: []span{during(0, 1)}})
			}
		},
	} {
		t.Run(want, func(t *testing.T) {
			f := newEffects()
			defer f.Close()
			f.take("t", "1", call{What: "begin", Exec: "won", Type: promises.Work, Worker: "a", At: noon})
			f.take("t", "1", call{What: "effect", Exec: "won"})
			f.take("t", "1", call{What: "end", Exec: "won", At: noon.Add(time.Second), Spans: []span{during(0, 1)}, Step: "won"})
			wrong(f)
			task := &model.Task{ID: "t", Status: model.StatusSuccess, WorkerStates: []model.WorkerState{{ExecID: "won", SuccessTime: noon}}}
			task.Result.Type, task.Result.Value, _ = bson.MarshalValue("won")
			found := []string{""}
			stored := map[string]*model.Task{"t": task}
			for n := range 2 {
				node, id := promises.LinkOf("g", "s", n)
				stored[id] = &model.Task{ID: id, Type: promises.Link, Origin: &model.Origin{ID: "links/g", Node: node.ID}}
			}
			f.check(&promises.Stored{Tasks: stored}, func(_, format string, values ...any) { found = append(found, fmt.Sprintf(format, values...)) })
			require.Contains(t, found, want)
			if want == "" {
				require.Len(t, found, 3, "the links have not ended")
			}
		})
	}
}

func TestARunInWhichNothingHappensIsFound(t *testing.T) {
	w := newWorld(&engine.Deployment{}, false, nil, members{})
	defer w.close()
	found := func() (all []string) {
		w.wrong = nil
		w.checkSubstance()
		for _, v := range w.wrong {
			all = append(all, v.what)
		}
		return all
	}
	require.Equal(t, []string{"no task was accepted", "no link was accepted", "no flow was accepted", "no plan was accepted", "no fault was caused"}, found())
	for _, kind := range kinds {
		w.hear(report{Stored: kind, ID: kind})
	}
	w.count("kill")
	require.Empty(t, found())
	for n := range someCut {
		w.effects.take(fmt.Sprint(n), "1", call{What: "begin", Exec: fmt.Sprint(n), Type: promises.Work, Worker: "a.1", At: noon})
	}
	require.Empty(t, found(), "nobody was killed")
	w.killed("a.1")
	require.Equal(t, []string{"3 executions were cut off, and none of their tasks ran again"}, found())
	w.effects.take("0", "1", call{What: "end", Exec: "0", At: noon})
	require.Empty(t, found(), "one of them had ended")
	w.effects.take("later", "1", call{What: "begin", Exec: "later", Type: promises.Work, Worker: "a.1", At: time.Now().Add(time.Hour)})
	require.Empty(t, found(), "a later process of that name is alive")
	w.effects.take("3", "1", call{What: "begin", Exec: "3", Type: promises.Work, Worker: "a.1", At: noon})
	require.Len(t, found(), 1)
	w.effects.take("3", "2", call{What: "begin", Exec: "taken over", Type: promises.Work, Worker: "b.1", At: noon})
	require.Empty(t, found())
}

func TestTheMembersOfAReplicaSetAreNamedByTheirProxies(t *testing.T) {
	names := map[string]string{"one:1": "127.0.0.1:11", "two:2": "127.0.0.1:12"}
	answer, err := bson.Marshal(bson.D{{Key: "hosts", Value: bson.A{"one:1", "two:2"}}, {Key: "me", Value: "two:2"}, {Key: "primary", Value: "one:1"}, {Key: "setName", Value: "one:1"}})
	require.NoError(t, err)
	var got bson.D
	require.NoError(t, bson.Unmarshal(renamed("hello", answer, names), &got))
	require.Equal(t, bson.D{
		{Key: "hosts", Value: bson.A{"127.0.0.1:11", "127.0.0.1:12"}}, {Key: "me", Value: "127.0.0.1:12"}, {Key: "primary", Value: "127.0.0.1:11"}, {Key: "setName", Value: "one:1"},
	}, got)
	require.Equal(t, bson.Raw(answer), renamed("find", answer, names))
}
