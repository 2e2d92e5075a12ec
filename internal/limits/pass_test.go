package limits

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// maxRunning says how many of the type may run.
func (s *swept) maxRunning(n int) {
	s.t.Helper()
	typ := model.TaskType{MaxRunning: n}
	if was := s.types.Get(sweptType); was != nil {
		typ.Version = was.Version
	}
	s.limitType(typ)
}

var storedTasks int

// stored are n new tasks.
func (s *swept) stored(n int) (tasks []*model.Task) {
	s.t.Helper()
	for range n {
		storedTasks++
		tasks = append(tasks, lifecycle.NewTask(lifecycle.Draft{Type: sweptType, Key: fmt.Sprint("stored ", storedTasks)}, s.store.Clock.Now()))
	}
	_, err := s.store.Tasks.Insert(s.t.Context(), tasks)
	require.NoError(s.t, err)
	return tasks
}

// granted are the permits by which executions of that name may claim the tasks; hand is what
// passes on.
func (s *swept) granted(tasks []*model.Task, exec string, hand []lifecycle.Permit) (permits []lifecycle.Permit) {
	s.t.Helper()
	got, err := s.Admit(s.t.Context(), tasks, exec, hand)
	require.NoError(s.t, err)
	for _, t := range tasks {
		permits = append(permits, got.Granted[t].Permits...)
	}
	return permits
}

// commands are what was sent while do ran.
func (s *swept) commands(do func()) []bson.Raw {
	s.t.Helper()
	s.mu.Lock()
	s.sent = nil
	s.mu.Unlock()
	do()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

func (s *swept) holders() []lifecycle.Permit {
	s.t.Helper()
	holders, err := s.store.Permits.Holders(s.t.Context(), store.LimitOf{Type: sweptType}, 100)
	require.NoError(s.t, err)
	return holders
}

func TestAPermitPassesOnByOneUpdate(t *testing.T) {
	s := newSwept(t)
	s.maxRunning(2)
	had := s.granted(s.stored(2), "e1", nil)
	require.Len(t, had, 2)
	s.pass(6 * time.Second)
	require.Empty(t, s.granted(s.stored(1), "settle", nil), "both are taken; and nothing began without one")
	s.store.Clock.Skip(time.Minute)
	next := s.stored(2)
	var got []lifecycle.Permit
	sent := s.commands(func() { got = s.granted(next, "e2", had) })
	require.Len(t, got, 2)
	require.Len(t, sent, 1, "%s", sent)
	require.Equal(t, "permits", sent[0].Lookup("update").StringValue())
	holders := s.holders()
	require.ElementsMatch(t, got, holders)
	for i, p := range got {
		require.Equal(t, had[i].Name, p.Name)
		require.Equal(t, lifecycle.Permit{
			Name: had[i].Name, Type: sweptType, PermitUse: lifecycle.UseOf(next[i], "e2"),
			At: p.At, LookAt: p.At.Add(5 * time.Second),
		}, p, "as if it had just been taken")
		require.True(t, p.At.After(had[i].At))
	}
}

func TestAPermitThatASweeperHasFreedPassesNowhere(t *testing.T) {
	s := newSwept(t)
	s.maxRunning(2)
	had := s.granted(s.stored(2), "e1", nil)
	require.NoError(t, s.store.Permits.Free(t.Context(), had[:1]))
	other := s.another()
	theirs := other.granted(s.stored(1), "e2", nil)
	require.Len(t, theirs, 1)
	require.Equal(t, had[0].Name, theirs[0].Name)
	got := s.granted(s.stored(2), "e3", had)
	require.Len(t, got, 1)
	require.Equal(t, had[1].Name, got[0].Name)
	require.ElementsMatch(t, []lifecycle.Permit{theirs[0], got[0]}, s.holders())
}

func TestAPermitBeyondALoweredLimitPassesNowhere(t *testing.T) {
	s := newSwept(t)
	s.maxRunning(3)
	had := s.granted(s.stored(3), "e1", nil)
	require.Len(t, had, 3)
	s.maxRunning(2)
	for range 8 { // also once it has seen that nothing began without a permit
		s.pass(2 * time.Second)
		for i := range had {
			require.Empty(t, s.granted(s.stored(1), "e2", had[i:i+1]), "three are open, two may be")
		}
	}
	// Once the one beyond the limit is free, the others pass. Until then the greatest free
	// number is left alone, which may be that of the permit that would pass.
	slices.SortFunc(had, func(a, b lifecycle.Permit) int { return strings.Compare(b.Name, a.Name) })
	require.NoError(t, s.store.Permits.Free(t.Context(), had[:1]))
	for _, p := range had[1:] {
		require.Len(t, s.granted(s.stored(1), "e3", []lifecycle.Permit{p}), 1)
	}
	require.Len(t, s.holders(), 2)
}

func TestAPermitPassesOnlyWhileNothingBeganBeyondTheLimit(t *testing.T) {
	s := newSwept(t)
	began := s.permitless(1, "")
	s.maxRunning(2)
	had := s.granted(s.stored(2), "e1", nil)
	require.Len(t, had, 1, "one began without a permit")
	require.Len(t, s.granted(s.stored(1), "e2", had), 1, "it passes on as it was taken")
	full := lifecycle.Permit{Name: "run/" + sweptType + "#1", Type: sweptType, PermitUse: lifecycle.PermitUse{TaskID: "t", ExecID: "e"}}
	require.Empty(t, s.granted(s.stored(1), "e3", []lifecycle.Permit{full}), "the place of the other")
	s.end(began[0])
}

// watched says when the gate's worker hears that there is room.
func (s *swept) watched(holds bool) <-chan int {
	room := make(chan int, 100)
	s.Watch(Watcher{
		Room:  func(_ string, n int) { room <- n },
		Holds: func(string) bool { return holds },
	})
	return room
}

func TestAProcessThatWaitsLearnsOfAFreePermitByALookAtThePermits(t *testing.T) {
	s := newSweptBy(t, testdb.NewClock()) // it never waits for so long that it searches
	other := s.another()
	room := s.watched(true)
	s.maxRunning(1)
	require.NoError(t, other.types.Fresh(t.Context(), 0))
	had := other.granted(s.stored(1), "e1", nil)
	require.Len(t, had, 1)
	tasks := s.stored(3)
	sent := s.commands(func() {
		require.Empty(t, s.granted(tasks, "e2", nil))
		s.Learn(tasks)
		require.True(t, s.Waiting(sweptType))
		require.Zero(t, s.Next(), "no search is worth while")
		require.NoError(t, s.store.Permits.Free(t.Context(), had))
		select {
		case n := <-room:
			require.Equal(t, 1, n)
		case <-time.After(testdb.Patience):
			t.Fatal("nobody said that the permit is free")
		}
	})
	searches := 0
	for _, c := range of(sent, "find", "tasks", "") {
		if c.Lookup("hint").StringValue() != store.IndexLapse { // that asks what began without a permit
			searches++
		}
	}
	require.Zero(t, searches)
	require.NotEmpty(t, of(sent, "find", "permits", "type"))
	require.Len(t, s.granted(tasks, "e3", nil), 1)
}

func TestALookForRoomReadsNoPermits(t *testing.T) {
	s := newSwept(t)
	s.maxRunning(2)
	had := s.granted(s.stored(2), "e1", nil)
	s.pass(6 * time.Second)
	require.Empty(t, s.granted(s.stored(1), "settle", nil))
	for free := range 3 {
		sent := s.commands(func() {
			n, err := s.room(t.Context(), sweptType)
			require.NoError(t, err)
			require.Equal(t, free, n)
		})
		require.Len(t, of(sent, "aggregate", "permits", ""), 1)
		require.Len(t, sent, 1)
		if free < 2 {
			require.NoError(t, s.store.Permits.Free(t.Context(), had[free:free+1]))
		}
	}
}

func TestAProcessThatWaitsForLongIsAnsweredOnceByOneThatPassesItsPermitOn(t *testing.T) {
	s := newSwept(t)
	waits := s.another()
	s.maxRunning(1)
	require.NoError(t, waits.types.Fresh(t.Context(), 0))
	waits.watched(false)
	s.watched(true)
	had := s.granted(s.stored(1), "e1", nil)
	tasks := s.stored(2)
	s.Learn(tasks)
	require.Empty(t, waits.granted(tasks, "e2", nil))
	waits.Learn(tasks)
	deadline := time.Now().Add(20 * time.Second)
	for {
		answered, err := s.Yield(t.Context(), sweptType)
		require.NoError(t, err)
		if answered {
			break
		}
		require.True(t, time.Now().Before(deadline), "nobody wished for a permit")
		s.Gate.mu.Lock()
		s.known[sweptType].wishCheck = -wishAfter // it may look again
		s.Gate.mu.Unlock()
	}
	require.True(t, s.Waiting(sweptType), "it leaves the permit to the other")
	s.ReturnForOthers(had)
	require.NoError(t, s.Wait(t.Context()))
	require.True(t, s.Waiting(sweptType))
	require.Empty(t, s.holders())
}

// A gate of pulls does not watch: only its callers' searches ask for permits.
func TestAProcessThatOnlySearchesWishesForAPermitToo(t *testing.T) {
	clock := testdb.NewClock()
	s := newSweptBy(t, clock)
	s.maxRunning(1)
	had := s.granted(s.stored(1), "e1", nil)
	require.Len(t, had, 1)
	tasks := s.stored(1)
	waits := s.another()
	wishes := func(after time.Duration) bool {
		clock.Move(after)
		require.Empty(t, waits.granted(tasks, "e2", nil))
		wished, err := s.store.Permits.AnswerWish(t.Context(), sweptType, "whoever has the permit", time.Minute)
		require.NoError(t, err)
		return wished
	}
	require.False(t, wishes(0))
	require.False(t, wishes(wishAfter-1), "it has not waited for long")
	require.True(t, wishes(1))
	clock.Move(aside / 2) // a caller that asks four times a second comes before aside is over
	require.False(t, waits.Waiting(sweptType))
	require.False(t, wishes(wishAfter-aside/2-1))
	require.True(t, wishes(1), "once a second")
	require.NoError(t, s.store.Permits.Free(t.Context(), had))
	took := waits.granted(tasks, "e3", nil)
	require.Len(t, took, 1)
	tasks = s.stored(1)
	require.False(t, wishes(0))
	require.False(t, wishes(2*wishAfter), "it has a permit, and others have theirs")
	require.NoError(t, s.store.Permits.Free(t.Context(), took))
	require.Len(t, s.granted(s.stored(1), "e4", nil), 1)
	require.True(t, wishes(2*wishAfter))
}

// The executions of others may take hours.
func TestAProcessLooksMoreOftenAfterItsFirstWishesAlone(t *testing.T) {
	s := newSwept(t)
	waits := s.another()
	s.maxRunning(1)
	require.NoError(t, waits.types.Fresh(t.Context(), 0))
	waits.watched(false)
	had := s.granted(s.stored(1), "e1", nil)
	tasks := s.stored(2)
	require.Empty(t, waits.granted(tasks, "e2", nil))
	waits.Learn(tasks)
	waits.roomy(sweptType) // the test looks
	wish := func() bool {
		before := s.store.Local().Monotonic() - wishAfter
		return waits.wish(t.Context(), sweptType, &wait{since: before, wished: before})
	}
	require.False(t, waits.wish(t.Context(), sweptType, &wait{since: s.store.Local().Monotonic() + time.Hour}), "it has only begun to wait")
	for range quickWishes {
		require.True(t, wish(), "also in another wait")
	}
	require.False(t, wish())
	require.NoError(t, s.store.Permits.Free(t.Context(), had))
	require.Len(t, waits.granted(tasks, "e3", nil), 1)
	require.True(t, wish(), "it had a permit meanwhile")

	waits.mu.Lock()
	w := waits.waitOf(sweptType)
	w.pause = longestLook
	waits.mu.Unlock()
	waits.sooner(sweptType, w)
	require.Equal(t, wishedLook, w.pause)
	waits.sooner("another", w)
	require.Nil(t, waits.waits["another"], "a type that waits no longer goes on")
}

func TestAProcessHeedsNoWishOfItsOwn(t *testing.T) {
	s := newSwept(t)
	ctx := t.Context()
	require.NoError(t, s.store.Permits.Wish(ctx, sweptType, "me"))
	answered, err := s.store.Permits.AnswerWish(ctx, sweptType, "me", time.Minute)
	require.NoError(t, err)
	require.False(t, answered)
	answered, err = s.store.Permits.AnswerWish(ctx, sweptType, "other", time.Minute)
	require.NoError(t, err)
	require.True(t, answered)
	answered, err = s.store.Permits.AnswerWish(ctx, sweptType, "other", time.Minute)
	require.NoError(t, err)
	require.False(t, answered, "it was answered")
	require.NoError(t, s.store.Permits.Wish(ctx, sweptType, "me"))
	s.store.Clock.Skip(time.Hour)
	answered, err = s.store.Permits.AnswerWish(ctx, sweptType, "other", time.Minute)
	require.NoError(t, err)
	require.False(t, answered, "it waits no longer")
}

// Looks that are planned end with the gate.
func TestAGateThatWaitsCloses(t *testing.T) {
	s := newSwept(t)
	s.watched(true)
	s.maxRunning(1)
	require.Len(t, s.granted(s.stored(2), "e1", nil), 1)
	require.True(t, s.Waiting(sweptType))
	var wg sync.WaitGroup
	wg.Go(s.Close)
	closed, cancel := context.WithCancel(t.Context())
	go func() { wg.Wait(); cancel() }()
	select {
	case <-closed.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("it does not close")
	}
}
