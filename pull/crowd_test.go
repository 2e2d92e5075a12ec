package pull

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/claim"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// anything wants every task.
func anything(*model.Task) bool { return true }

func (b *bundle) crowd(types ...string) *crowd {
	return b.p.memory.crowd(claim.Finder{Store: b.p.room.Store, Types: b.p.room.Types}, types)
}

// asks returns asks for n tasks each, as they come to one look.
func asks(n, most int) []*ask {
	out := make([]*ask, n)
	for i := range out {
		out[i] = &ask{most: most, wants: anything, done: make(chan struct{})}
	}
	return out
}

func ids(tasks []*model.Task) (out []string) {
	for _, t := range tasks {
		out = append(out, t.ID)
	}
	return out
}

func TestOneLookDealsEachTaskToOneOfThoseThatAsk(t *testing.T) {
	l := newLooker(t)
	for i := range 30 {
		l.send(mail{}, producer.Key(fmt.Sprint(i)))
	}
	c := l.crowd("mail")
	all := asks(10, 2)
	c.answer(all)
	seen := map[string]bool{}
	for _, a := range all {
		require.NoError(t, a.err)
		require.Len(t, a.dealt, 2)
		for _, id := range ids(a.dealt) {
			require.False(t, seen[id])
			seen[id] = true
		}
	}
	l.mu.Lock()
	looks := len(l.looks)
	l.mu.Unlock()
	require.Less(t, looks, len(all), "one for the queue, whose first part says how large tasks are, and for tasks that are rare")
	require.Len(t, c.left, 10, "for who comes in the next moment")
	// What is dealt, and perhaps not claimed yet, is found again, and not dealt again.
	again := asks(2, 30)
	c.answer(again)
	require.Len(t, append(ids(again[0].dealt), ids(again[1].dealt)...), 10)
	for _, id := range append(ids(again[0].dealt), ids(again[1].dealt)...) {
		require.False(t, seen[id])
	}
	// It was not claimed.
	c.settle(all[0].dealt)
	third := asks(1, 30)
	c.answer(third)
	require.ElementsMatch(t, ids(all[0].dealt), ids(third[0].dealt))
}

func TestFewTasksAreSharedOutEvenly(t *testing.T) {
	b := setup(t)
	for i := range 12 {
		b.send(mail{}, producer.Key(fmt.Sprint(i)))
	}
	all := asks(4, 10)
	b.crowd("mail").answer(all)
	for _, a := range all {
		require.Len(t, a.dealt, 3)
	}
}

func TestWhatIsClaimedWhileALookIsUnderWayIsNotDealtAgain(t *testing.T) {
	px := testdb.Behind(t)
	b := setupOn(t, testdb.Through(t, px))
	s := b.send(mail{})
	c := b.crowd("mail")
	first := asks(1, 1)
	c.answer(first)
	require.Equal(t, []string{s.ID}, ids(first[0].dealt))
	trap := px.Set(proxy.Rule{Command: "find", Collection: "tasks", Do: proxy.HoldAfter})
	second := asks(1, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.answer(second)
	}()
	<-trap.Hit() // the server has found it
	c.settle(first[0].dealt)
	trap.Release()
	<-done
	require.Empty(t, second[0].dealt)
	third := asks(1, 1)
	c.answer(third)
	require.Equal(t, []string{s.ID}, ids(third[0].dealt), "nobody claimed it after all")
}

func TestWhatWasFoundIsNotDealtBeforeWhatIsSentSince(t *testing.T) {
	b := setup(t)
	for i := range 10 {
		b.send(mail{}, producer.Key(fmt.Sprint(i)))
	}
	c := b.crowd("mail")
	c.answer(asks(2, 1))
	require.NotEmpty(t, c.left)
	urgent := b.send(mail{}, producer.Key("urgent"), producer.Priority(9))
	got, err := b.p.Fetch(t.Context(), FetchRequest{WorkerID: "w", Types: []string{"mail"}})
	require.NoError(t, err)
	require.Equal(t, urgent.ID, got[0].Task.ID)
}

func TestAWorkerIsDealtNothingThatItRefused(t *testing.T) {
	b := setup(t)
	first := b.send(mail{}, producer.Key("a"))
	second := b.send(mail{}, producer.Key("b"))
	b.p.memory.seeker(claim.Finder{Store: b.p.room.Store, Types: b.p.room.Types, WorkerID: "w"}).Refused.Add(first.ID, b.Now(), time.Time{})
	for _, want := range []string{second.ID} {
		got, err := b.p.Fetch(t.Context(), FetchRequest{WorkerID: "w", Types: []string{"mail"}})
		require.NoError(t, err)
		require.Len(t, got, 1, "the refused one stands before it")
		require.Equal(t, want, got[0].Task.ID)
	}
	got, err := b.p.Fetch(t.Context(), FetchRequest{WorkerID: "x", Types: []string{"mail"}})
	require.NoError(t, err)
	require.Equal(t, first.ID, got[0].Task.ID)
}

func TestATaskThatNamesAWorkerIsFetchedByItAmongManyOthers(t *testing.T) {
	b := setup(t)
	for i := range 50 {
		b.send(mail{}, producer.Key(fmt.Sprint(i)))
	}
	own := b.send(mail{}, producer.Key("own"), producer.Workers("w"))
	got, err := b.p.Fetch(t.Context(), FetchRequest{WorkerID: "w", Types: []string{"mail"}})
	require.NoError(t, err)
	require.Equal(t, own.ID, got[0].Task.ID)
}

func TestWorkersThatFetchAtOnceGetEachTaskOnceAndInFewCommands(t *testing.T) {
	px := testdb.BehindPatient(t)
	b := setupOn(t, testdb.Through(t, px))
	const workers, each = 40, 5
	for i := range workers * each {
		b.send(mail{}, producer.Key(fmt.Sprint(i)))
	}
	// Two commands: the claims of the worker that was first, and those of all others.
	first := px.Set(proxy.Rule{Command: "update", Collection: "tasks", Do: proxy.HoldBefore})
	writes := px.Set(proxy.Rule{Command: "update", Collection: "tasks", Do: proxy.Pass, Times: -1})
	fetch := func(worker int) []Fetched {
		got, err := b.p.Fetch(t.Context(), FetchRequest{WorkerID: fmt.Sprint("w", worker), Types: []string{"mail"}, Max: each})
		require.NoError(t, err)
		return got
	}
	var mu sync.Mutex
	by := map[string]int{}
	note := func(got []Fetched) {
		mu.Lock()
		defer mu.Unlock()
		for _, f := range got {
			by[f.Task.ID]++
		}
	}
	var all sync.WaitGroup
	all.Go(func() { note(fetch(0)) })
	<-first.Hit()
	for i := 1; i < workers; i++ {
		all.Go(func() { note(fetch(i)) })
	}
	require.Eventually(t, func() bool { return b.p.gathered.claims.Len() == workers }, testdb.Patience, time.Millisecond)
	first.Release()
	all.Wait()
	require.Len(t, by, workers*each)
	for id, n := range by {
		require.Equal(t, 1, n, id)
	}
	require.Equal(t, 1, writes.Sprung(), "the claims of all others")
}

func TestAFetchThatIsAbandonedLeavesItsShareToOthers(t *testing.T) {
	px := testdb.Behind(t)
	b := setupOn(t, testdb.Through(t, px))
	s := b.send(mail{})
	c := b.crowd("mail")
	trap := px.Set(proxy.Rule{Command: "find", Collection: "tasks", Do: proxy.HoldBefore})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := c.take(ctx, ask{most: 1, wants: anything})
		failed <- err
	}()
	<-trap.Hit()
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	trap.Release()
	require.Eventually(t, func() bool {
		got, err := c.take(t.Context(), ask{most: 1, wants: anything})
		require.NoError(t, err)
		return len(got.dealt) == 1 && got.dealt[0].ID == s.ID
	}, testdb.Patience, 10*time.Millisecond)
}
