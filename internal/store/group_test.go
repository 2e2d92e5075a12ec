package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// claims are n claims of one batch, of fresh tasks at the same time.
func claims(t *testing.T, n int, change func(i int, task *model.Task)) []Write {
	t.Helper()
	now := time.UnixMilli(1_700_000_000_000).UTC()
	out := make([]Write, n)
	for i := range out {
		task := lifecycle.NewTask(lifecycle.Draft{Type: "t", Key: fmt.Sprintf("k%06d", i)}, now.Add(-time.Duration(i)*time.Millisecond))
		task.DueAt, task.StartTime = now, now
		if change != nil {
			change(i, task)
		}
		after, no := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: "w", ExecID: "x"}, lifecycle.ResolveOptions(task.Options), now)
		require.Empty(t, no)
		out[i] = Write{Before: task, After: after}
	}
	return out
}

func filterOf(t *testing.T, st statement) bson.D {
	t.Helper()
	var doc struct {
		Q     bson.D `bson:"q"`
		Multi bool   `bson:"multi"`
	}
	require.NoError(t, bson.Unmarshal(st.encode(st.ids), &doc))
	require.Equal(t, len(st.ids) > 1, doc.Multi)
	return doc.Q
}

func TestFreshTasksAreClaimedByOneStatement(t *testing.T) {
	writes := claims(t, 500, nil)
	got := group(writes)
	require.Len(t, got, 1)
	require.Len(t, got[0].ids, 500)
	q := filterOf(t, got[0])
	require.Equal(t, []string{"_id", "rev", "generation"}, []string{q[0].Key, q[1].Key, q[2].Key})
	require.Equal(t, bson.D{{Key: "$lte", Value: writes[0].Before.Generation}}, q[2].Value, "the newest of the group")
}

func TestWhatDiffersIsAnotherStatement(t *testing.T) {
	writes := claims(t, 6, func(i int, task *model.Task) {
		switch i {
		case 1:
			task.Rev = 7
		case 2:
			task.Options.WorkerTimeout = 90 * time.Second
		case 3:
			task.ErrorCount = 2
		}
	})
	writes[4].Lapsed, writes[4].At = "somebody's", time.UnixMilli(1)
	got := group(writes)
	var ids [][]string
	for _, st := range got {
		ids = append(ids, st.ids)
	}
	id := func(i int) string { return writes[i].After.ID }
	require.Equal(t, [][]string{{id(0), id(5)}, {id(1)}, {id(2)}, {id(3)}, {id(4)}}, ids)
	require.Equal(t, "worker_states", filterOf(t, got[4])[3].Key, "a takeover names the lapsed execution")
}

func TestCommandsStayBelowTheLimitsOfTheServer(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
	st := statement{guard: func(dst []byte) []byte { return dst }, update: make([]byte, 3<<20)}
	bson.Raw(st.update)[0] = 5 // never decoded here: only its size counts
	var many []statement
	for i := range 10 {
		st.ids = []string{fmt.Sprint(i)}
		many = append(many, st)
	}
	parts := commands(many, maxStatementIDs)
	require.Len(t, parts, 4)
	total := 0
	for _, p := range parts {
		size := 0
		for _, enc := range p.encoded {
			size += len(enc)
		}
		require.LessOrEqual(t, size, maxCommandBytes)
		require.Len(t, p.encoded, p.ids)
		total += p.ids
	}
	require.Equal(t, 10, total)

	writes := claims(t, 12_000, nil)
	one := group(writes)
	parts = commands(one, maxStatementIDs)
	require.Len(t, parts, 1)
	require.Len(t, parts[0].encoded, 3)
	require.Equal(t, 12_000, parts[0].ids)

	parts = commands(one, 1) // behind a router
	require.Len(t, parts, 12)
	for _, p := range parts {
		require.Len(t, p.encoded, maxStatementsShard)
	}
}

func TestSplittingKeepsEachIDOnce(t *testing.T) {
	writes := claims(t, 101, func(i int, task *model.Task) {
		if i%3 == 0 {
			task.Rev = 4
		}
	})
	queue := commands(group(writes), maxStatementIDs)
	require.Len(t, queue, 1)
	seen := map[string]int{}
	for depth := 0; len(queue) > 0; depth++ {
		require.Less(t, depth, 10_000)
		c := queue[0]
		queue = queue[1:]
		require.Len(t, c.encoded, len(c.parts))
		if c.ids == 1 {
			require.Len(t, c.parts, 1)
			seen[c.parts[0].ids[0]]++
			continue
		}
		parts := c.split(fanout, false)
		require.LessOrEqual(t, len(parts), fanout)
		ids := 0
		for _, part := range parts {
			require.Less(t, part.ids, c.ids)
			ids += part.ids
		}
		require.Equal(t, c.ids, ids)
		queue = append(queue, parts...)
	}
	require.Len(t, seen, 101)
	for id, n := range seen {
		require.Equal(t, 1, n, id)
	}
}

// One of two updates of a task is answered first, as not done, and then the other one as done.
func TestThatOneUpdateOfATaskIsDoneSaysNothingOfAnother(t *testing.T) {
	of := func(ids ...string) statement { return statement{ids: ids, update: []byte{}} }
	first, second := of("a", "b"), of("c", "a")
	upsert := of("a")
	upsert.upsert = true
	require.Empty(t, repeated([]statement{first, of("c"), upsert}, 4))
	require.Equal(t, []string{"a"}, repeated([]statement{first, second}, 4))
	require.Equal(t, []string{"a"}, repeated([]statement{of("a", "b", "a")}, 3))

	var b batch
	b.answered(&command{parts: []statement{second}, ids: 2}, false)
	b.answered(&command{parts: []statement{first}, ids: 2}, true)
	b.doubt(repeated([]statement{first, second}, 4))
	require.Equal(t, map[string]bool{"a": true, "c": true}, b.x.unsure)
}
