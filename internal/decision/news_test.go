package decision

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// listener is a planner that records the ends it decides about.
type listener struct {
	notePlanner
	told    []string
	bounded bool // something was kept in a time that the decider bounds
	knows   []string
}

func (p *listener) MustKnow(*note) []string { return p.knows }

func (*listener) Kind() string                 { return "note" }
func (*listener) Of(l store.OutboxLife) string { return l.Origin.ID }
func (*listener) DueAt(*note) time.Time        { return time.Time{} }

func (p *listener) Keep(ctx context.Context, _ []Case[*note]) error {
	_, bounded := ctx.Deadline()
	p.bounded = p.bounded || bounded
	return nil
}

func (p *listener) Decide(_ context.Context, cases []Case[*note], _ time.Time) ([]Answer[*note], error) {
	answers := make([]Answer[*note], len(cases))
	for i, c := range cases {
		for _, l := range c.Ends {
			p.told = append(p.told, fmt.Sprintf("%s %d", l.ID, l.Outbox[0].Rev))
		}
		answers[i] = Answer[*note]{After: c.Doc, Told: len(c.Ends)}
	}
	return answers, nil
}

func (notes) ByIDs(_ context.Context, ids []string) (map[string]*note, error) {
	found := map[string]*note{}
	for _, id := range ids {
		found[id] = &note{id: id}
	}
	return found, nil
}

// listening is a decider that hears of ends, as in an engine that runs.
func listening(t *testing.T) (*Decider[*note], *listener) {
	st, err := store.Open(store.Config{Database: testdb.New(t)})
	require.NoError(t, err)
	p := &listener{}
	d := New(Config[*note]{Store: st, Documents: notes{}, Planner: p})
	d.heard.listen(make(chan struct{}, 1))
	return d, p
}

func ended(id string, rev int64) *model.Task {
	return &model.Task{ID: id, Generation: 1, Origin: &model.Origin{ID: "n-" + id}, Outbox: []model.OutboxEntry{{Kind: "note", Rev: rev}}, OutboxAt: time.Now()}
}

// An engine hears of the ends of its own process, and a look may find them, too. It then read them and their
// documents once more.
func TestAnEndThatIsHeardAndFoundIsToldOnce(t *testing.T) {
	t.Parallel()
	d, p := listening(t)
	d.heard.ofEnd(ended("a", 2))
	d.heard.ofEnd(ended("new", 2)) // since the look
	d.found.ends = []store.OutboxLife{{Task: ended("a", 2)}, {Task: ended("b", 2)}}
	k := &rank{}
	k.become("one", []peer{{id: "one", beat: time.Now()}})
	k.begin()
	_, _, _, err := d.round(t.Context(), clock.Read(d.Store.Local()), d.Store.Clock.Now(), k)
	require.NoError(t, err)
	require.Equal(t, []string{"a 2", "new 2", "b 2"}, p.told)
	d.heard.ofEnd(ended("c", 2))
	d.heard.ofEnd(ended("d", 2))
	d.endsTold([]store.OutboxLife{{Task: ended("c", 2)}}) // as of a later page
	clear(d.told)                                         // they have left their outboxes
	d.hear(t.Context())
	require.Equal(t, []string{"a 2", "new 2", "b 2", "d 2"}, p.told)

	d.heard.ofEnd(ended("e", 2))
	d.heard.ofEnd(ended("e", 4)) // a person resolved it
	d.endsTold([]store.OutboxLife{{Task: ended("e", 2)}})
	d.hear(t.Context())
	require.Equal(t, []string{"a 2", "new 2", "b 2", "d 2", "e 4"}, p.told)
}

// A worker that was away records an end with the time at which its handler returned. A look asks only for newer ones.
func TestADecisionKnowsAnEndThatWasRecordedLate(t *testing.T) {
	t.Parallel()
	d, p := listening(t)
	late := ended("late", 2)
	late.Status, late.OutboxAt = model.StatusSuccess, time.Now().Add(-time.Minute)
	require.NoError(t, d.Store.Ready(t.Context()))
	_, err := d.Store.Tasks.Insert(t.Context(), []*model.Task{late})
	require.NoError(t, err)
	d.found.due, p.knows = []*note{{id: "n-late"}}, []string{"late"}
	k := &rank{}
	k.become("one", []peer{{id: "one", beat: time.Now()}})
	k.begin()
	_, _, _, err = d.round(t.Context(), clock.Read(d.Store.Local()), d.Store.Clock.Now(), k)
	require.NoError(t, err)
	require.Equal(t, []string{"late 2"}, p.told)
}

// Many ends that were heard of leave their outboxes before the next look, which would find a page of them.
func TestManyEndsThatWereHeardOfAreNotLeftToTheNextLook(t *testing.T) {
	t.Parallel()
	d, p := listening(t)
	for n := range perLook {
		d.heard.ofEnd(ended(fmt.Sprint(n), 2))
	}
	d.hear(t.Context())
	require.Len(t, p.told, perLook)
	require.Empty(t, d.told, "they are removed")
}

// A process may hear of many ends before its engine decides about them.
func TestOfAnEndThatIsHeardNothingLargeIsKept(t *testing.T) {
	t.Parallel()
	d, _ := listening(t)
	value := func(bytes int) bson.RawValue {
		return bson.RawValue{Type: bson.TypeBinary, Value: make([]byte, bytes)}
	}
	for id, bytes := range map[string]int{"small": 100, "large": 800} {
		task := ended(id, 2)
		task.Args, task.Result, task.Checkpoint, task.Steps = value(bytes), value(bytes), value(bytes), []model.Step{{Value: value(bytes)}}
		task.WorkerStates = []model.WorkerState{{ExecID: "e", Returns: value(bytes), Checkpoint: value(bytes)}}
		d.heard.ofEnd(task)
		require.Len(t, task.WorkerStates[0].Returns.Value, bytes, "it is the caller's")
	}
	for _, l := range d.heard.takeEnds() {
		want := 0
		if l.ID == "small" {
			want = 100
		}
		require.Equal(t, want > 0, l.Returned)
		require.Equal(t, "e", l.WorkerStates[0].ExecID)
		require.Len(t, l.Result.Value, want)
		require.Len(t, l.WorkerStates[0].Returns.Value, want)
		require.Zero(t, l.Args)
		require.Zero(t, l.Checkpoint)
		require.Empty(t, l.Steps)
		require.Zero(t, l.WorkerStates[0].Checkpoint)
	}
}

// What is kept of a page of ends may be hundreds of megabytes.
func TestWhatIsKeptOfEndsHasItsOwnTime(t *testing.T) {
	t.Parallel()
	d, p := listening(t)
	d.heard.ofEnd(ended("a", 2))
	d.hear(t.Context())
	require.Equal(t, []string{"a 2"}, p.told)
	require.False(t, p.bounded)
}
