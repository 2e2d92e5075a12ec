package producer

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/fakeworker"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

func items(n int, opts ...Option) []Item[mail] {
	out := make([]Item[mail], n)
	for i := range out {
		out[i] = Item[mail]{Args: mail{To: fmt.Sprint(i)}, Options: append([]Option{Key(fmt.Sprint(i))}, opts...)}
	}
	return out
}

func TestTensOfThousandsAreSentInFewRoundTrips(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
	counter := new(commandCounter)
	b := setup(t, counter.watch(t))
	b.send(mail{}) // schema and clock
	counter.reset()
	const n = 20_000
	sent, err := SendMany(t.Context(), b.p, mailType, items(n))
	require.NoError(t, err)
	require.Len(t, sent, n)
	require.LessOrEqual(t, counter.total(), 8, "commands for %d tasks", n)
	require.EqualValues(t, n+1, b.Tasks())
	for i, s := range sent {
		require.Equal(t, model.TaskID("", "mail", fmt.Sprint(i)), s.ID, "results are in the order of the items")
		require.True(t, s.Created)
	}

	counter.reset()
	const old = 6_000
	again, err := SendMany(t.Context(), b.p, mailType, items(old))
	require.NoError(t, err)
	require.LessOrEqual(t, counter.total(), 10, "commands for %d tasks that exist", old)
	for i, s := range again {
		require.False(t, s.Created)
		require.Equal(t, sent[i].Generation, s.Generation)
		require.Equal(t, model.StatusNew, s.Status)
	}
}

func TestASendManySaysForEachItemWhetherItWasCreated(t *testing.T) {
	b := setup(t)
	old := b.send(mail{To: "old"}, Key("1"))
	sent, err := SendMany(t.Context(), b.p, mailType, append(items(3), items(1)...)) // 0 twice
	require.NoError(t, err)
	var created []bool
	for _, s := range sent {
		created = append(created, s.Created)
	}
	require.Equal(t, []bool{true, false, true, false}, created)
	require.Equal(t, old.Generation, sent[1].Generation)
	require.JSONEq(t, `{"to":"old"}`, string(codec.ValueJSON(b.get(old.ID).Args)))
}

func TestAnInvalidItemIsNamedAndNothingIsWritten(t *testing.T) {
	b := setup(t)
	bad := items(10)
	bad[3].Options = append(bad[3].Options, Priority(77))
	bad[7].Options = append(bad[7].Options, Key(""))
	sent, err := SendMany(t.Context(), b.p, mailType, bad)
	require.Empty(t, sent)
	var many *ManyError
	require.ErrorAs(t, err, &many)
	require.Equal(t, 10, many.Total)
	require.Len(t, many.Failed, 2)
	require.ErrorContains(t, many.Failed[3], "priority is 77")
	require.ErrorContains(t, many.Failed[7], "key")
	require.NoError(t, many.Failed[4])
	require.ErrorIs(t, err, model.ErrInvalid)
	require.ErrorContains(t, err, "2 of 10 tasks failed: item 3: priority is 77")
	require.Zero(t, b.Tasks())
}

func TestASendManyOfNothingDoesNothing(t *testing.T) {
	b := setup(t)
	sent, err := SendMany(t.Context(), b.p, mailType, nil)
	require.NoError(t, err)
	require.Empty(t, sent)
}

func TestTheFailureOfTheOnlyItemIsAManyErrorToo(t *testing.T) {
	b := setup(t)
	_, err := SendMany(t.Context(), b.p, mailType, []Item[mail]{{Options: []Option{Priority(77)}}})
	var many *ManyError
	require.ErrorAs(t, err, &many)
	require.ErrorContains(t, many.Failed[0], "priority")
}

func TestItemsOfSeveralTypesAreSentTogether(t *testing.T) {
	b := setup(t)
	sent, err := b.p.SendManyJSON(t.Context(), []JSONItem{
		{Type: "a", Args: []byte(`1`)}, {Type: "b", Options: []Option{Priority(9)}},
	})
	require.NoError(t, err)
	require.Equal(t, "a", b.get(sent[0].ID).Type)
	require.Equal(t, 9, b.get(sent[1].ID).Priority)
}

func TestASendManyOfLargeTasksIsSplit(t *testing.T) {
	outs := make([]*outgoing, 130)
	for i := range outs {
		outs[i] = &outgoing{task: &model.Task{Args: bson.RawValue{Value: make([]byte, input.MaxArgsBytes)}}}
	}
	var sizes []int
	total := 0
	for c := range chunks(outs) {
		bytes := 0
		for _, o := range c {
			bytes += len(o.task.Args.Value)
		}
		require.LessOrEqual(t, bytes, maxChunkBytes)
		sizes = append(sizes, len(c))
		total += len(c)
	}
	require.Equal(t, len(outs), total)
	require.Greater(t, len(sizes), 1)
}

func TestExistingKeysOfASendManyAreTreatedAsTheirOptionSays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	sent, err := SendMany(t.Context(), b.p, mailType, items(40))
	require.NoError(t, err)
	for i, s := range sent[:20] {
		out := lifecycle.Success(bson.RawValue{})
		if i%2 == 0 {
			out = lifecycle.Failed(failkind.Fatal, "no")
		}
		b.Run(s.ID, out)
	}
	again, err := SendMany(t.Context(), b.p, mailType, items(40, OnExisting(model.RestartFailed, model.UpdateArgs), Priority(9)))
	require.NoError(t, err)
	for i, s := range again {
		doc := b.get(s.ID)
		require.Equal(t, doc.Generation, s.Generation)
		require.Equal(t, doc.Status, s.Status)
		switch {
		case i < 20 && i%2 == 0:
			require.True(t, s.Created, "it failed, so it began a new life")
			require.Greater(t, s.Generation, sent[i].Generation)
			require.Equal(t, model.StatusNew, s.Status)
		case i < 20:
			require.False(t, s.Created)
			require.Equal(t, model.StatusSuccess, s.Status, "left alone")
		default:
			require.False(t, s.Created)
			require.Equal(t, sent[i].Generation, s.Generation)
			require.Equal(t, 9, doc.Priority, "updated")
		}
	}
}

func TestAManyErrorNamesAFewAndCountsTheRest(t *testing.T) {
	e := &ManyError{Total: 9}
	for i := range 5 {
		e.add(i, errors.New("no"))
	}
	require.EqualError(t, e, "5 of 9 tasks failed: item 0: no; item 1: no; item 2: no; and 2 more")
}

func TestOfTheItemsOfOneKeyTheLastWins(t *testing.T) {
	b := setup(t)
	const keys, each = 20, 8
	for _, name := range []string{"new", "existing"} {
		var many []Item[mail]
		for i := range keys * each {
			many = append(many, Item[mail]{Args: mail{To: fmt.Sprint(name, i)}, Options: []Option{Key(fmt.Sprint(i / each)), OnExisting(model.UpdateArgs)}})
		}
		_, err := SendMany(t.Context(), b.p, mailType, many)
		require.NoError(t, err)
		for key := range keys {
			doc := b.get(model.TaskID("", "mail", fmt.Sprint(key)))
			require.JSONEq(t, fmt.Sprintf(`{"to":"%s%d"}`, name, each*key+each-1), string(codec.ValueJSON(doc.Args)))
		}
	}
}

func TestAnItemUpdatesTheLifeThatAnEarlierItemBegan(t *testing.T) {
	b := setup(t)
	s := b.send(mail{To: "ann"}, Key("k"))
	b.Run(s.ID, lifecycle.Failed(failkind.Fatal, "no such user"))
	sent, err := SendMany(t.Context(), b.p, mailType, []Item[mail]{
		{Args: mail{To: "bob"}, Options: []Option{Key("k"), OnExisting(model.UpdateArgs)}},
		{Args: mail{To: "eve"}, Options: []Option{Key("k"), OnExisting(model.RestartFailed)}},
		{Args: mail{To: "dan"}, Options: []Option{Key("k"), OnExisting(model.UpdateArgs)}},
	})
	require.NoError(t, err)
	require.Equal(t, []model.Status{model.StatusFailure, model.StatusNew, model.StatusNew}, []model.Status{sent[0].Status, sent[1].Status, sent[2].Status})
	require.True(t, sent[1].Created)
	require.False(t, sent[2].Created)
	require.JSONEq(t, `{"to":"dan"}`, string(codec.ValueJSON(b.get(s.ID).Args)))
}

// The number of items bounds no read: what is stored may be much larger than what is sent.
func TestASendManyReadsTheTasksThatItChangesOneByOne(t *testing.T) {
	counter := new(commandCounter)
	b := setup(t, counter.watch(t))
	const n, size = 8, 100_000
	for _, it := range items(n) {
		s := b.send(it.Args, it.Options...)
		b.Run(s.ID, lifecycle.Success(fakeworker.Value(t, strings.Repeat("x", size))))
	}
	counter.reset()
	sent, err := SendMany(t.Context(), b.p, mailType, items(n, OnExisting(model.RestartSucceeded)))
	require.NoError(t, err)
	for _, s := range sent {
		require.True(t, s.Created)
	}
	require.Greater(t, counter.largest, size, "a change reads the whole task")
	require.Less(t, counter.largest, 2*size)
}
