package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// age makes all that has ended as old as if it had ended a month ago.
func (a *arena) age(ctx context.Context) error {
	long := time.Now().Add(-30 * 24 * time.Hour)
	_, err := a.db.Collection("tasks").UpdateMany(ctx, bson.M{"archive_at": bson.M{"$gt": long.Add(time.Hour)}},
		bson.M{"$set": bson.M{"archive_at": long, "finished_at": long}})
	return err
}

// archiver is one on a store of its own, as another process has it.
func (a *arena) archiver() *store.Store {
	a.t.Helper()
	st, err := store.Open(store.Config{Database: a.db})
	require.NoError(a.t, err)
	require.NoError(a.t, st.ReadClock(a.t.Context()))
	return st
}

// everything pages through tasks and history, and is an error when a life is seen twice.
func (a *arena) everything(ctx context.Context, f admin.Filter) (map[string]*model.Task, error) {
	seen := map[string]*model.Task{}
	for token := ""; ; {
		page, err := a.admin.Find(ctx, f, 7, token)
		if err != nil {
			return nil, err
		}
		for _, task := range page.Tasks {
			life := fmt.Sprint(task.ID, "@", task.Generation)
			if seen[life] != nil {
				return nil, fmt.Errorf("%s was seen twice", life)
			}
			seen[life] = task
		}
		if token = page.Next; token == "" {
			return seen, nil
		}
	}
}

// Workers run tasks, senders start the same keys again as soon as they have ended or moved,
// two archivers move them, and a reader pages through both collections. Afterwards every
// life that ever began is in the history once, with the result of its own arguments.
func TestNothingIsLostOrDoubledWhileTasksAreArchivedAndStartedAgain(t *testing.T) {
	onEnginesInRealTime(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		keys, rounds := e.Of(100, 30), e.Of(20, 6)
		a.hire("w1", double)
		a.hire("w2", double)

		var mu sync.Mutex
		began := map[string]int{} // arguments by life
		for i := range keys {     // so that the first round of the senders starts each again
			sent := a.sendKey(fmt.Sprint("k", i), -i)
			began[fmt.Sprint(sent.ID, "@", sent.Generation)] = -i
		}
		a.awaitCount(model.StatusSuccess, int64(keys))
		sending, stop := context.WithCancel(t.Context())
		defer stop()
		var senders, others sync.WaitGroup
		failed := make(chan error, 100)
		for s := range 2 { // each has keys of its own, so it knows whose arguments a life has
			senders.Go(func() {
				for round := range rounds {
					for i := s; i < keys; i += 2 {
						n := round*keys + i
						sent, err := producer.Send(t.Context(), a.p, chaosWork, n, producer.Key(fmt.Sprint("k", i)), producer.OnExisting(model.RestartSucceeded))
						if err != nil {
							failed <- fmt.Errorf("sending: %w", err)
							return
						}
						if sent.Created {
							mu.Lock()
							began[fmt.Sprint(sent.ID, "@", sent.Generation)] = n
							mu.Unlock()
						}
					}
				}
			})
		}
		// until is work beside the senders.
		until := func(what string, do func(context.Context) error) {
			others.Go(func() {
				for sending.Err() == nil {
					if err := do(sending); err != nil && sending.Err() == nil {
						failed <- fmt.Errorf("%s: %w", what, err)
						return
					}
				}
			})
		}
		until("ageing", a.age)
		for range 2 {
			st := a.archiver()
			until("archiving", func(ctx context.Context) error { _, err := st.History.Archive(ctx, time.Time{}); return err })
		}
		until("reading", func(ctx context.Context) error { _, err := a.everything(ctx, admin.Filter{Past: true}); return err })
		senders.Wait()
		stop()
		others.Wait()
		close(failed)
		for err := range failed {
			require.NoError(t, err)
		}

		last := a.archiver()
		awaitTrue(t, func() string { // what still runs ends, and moves
			require.NoError(t, a.age(t.Context()))
			_, err := last.History.Archive(t.Context(), time.Time{})
			require.NoError(t, err)
			left, err := a.everything(t.Context(), admin.Filter{})
			require.NoError(t, err)
			if len(left) > 0 {
				return fmt.Sprintf("%d tasks to end and to move", len(left))
			}
			return ""
		})
		kept, err := a.everything(t.Context(), admin.Filter{OnlyPast: true})
		require.NoError(t, err)
		require.Len(t, kept, len(began))
		require.GreaterOrEqual(t, len(kept), 2*keys, "each key was started again")
		for life, args := range began {
			task := kept[life]
			require.NotNil(t, task, life)
			require.Equal(t, model.StatusSuccess, task.Status)
			require.Equal(t, args, argsOf(t, task), life)
			require.Equal(t, 2*args, resultOf(t, task), life)
			require.False(t, task.ArchivedAt.IsZero())
		}
		n, err := a.admin.Count(t.Context(), admin.Filter{Past: true})
		require.NoError(t, err)
		require.EqualValues(t, len(began), n)
	})
}

// Upkeep of any worker moves what is due, and a task's retention is its own.
func TestAWorkerArchivesWhatIsDueByItself(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		due := a.sendKey("due", 1)
		kept := a.sendKey("kept", 2)
		require.Equal(t, 2, a.drain(double).Succeeded)
		_, err := a.db.Collection("tasks").UpdateOne(t.Context(), bson.M{"_id": due.ID}, bson.M{"$set": bson.M{
			"archive_at": time.Now().Add(-time.Hour), "finished_at": time.Now().Add(-8 * 24 * time.Hour)}})
		require.NoError(t, err)
		a.hire("w", double)
		awaitTrue(t, func() string {
			lives, err := a.admin.Lives(t.Context(), due.ID)
			require.NoError(t, err)
			require.Len(t, lives, 1)
			if lives[0].ArchivedAt.IsZero() {
				return "the task in the history"
			}
			return ""
		})
		result, err := producer.Await(t.Context(), a.p, chaosWork, due)
		require.NoError(t, err)
		require.Equal(t, 2, result)
		require.Equal(t, model.StatusSuccess, a.get(kept.ID).Status)
	})
}
