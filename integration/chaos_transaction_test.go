package integration

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/workerevent"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// Somebody changes one task in a transaction of his own and takes his time. The pings
// and ends of its batch must not wait for him.
func TestAnOpenTransactionOnOneTaskCostsTheOthersNothing(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		if !e.Transactions {
			t.Skip("this engine has no transactions")
		}
		if e.Name == "secantusd" {
			t.Skip("secantusd lets every write of the server wait for an open transaction, and knows no maxTimeMS")
		}
		a := newArena(t, e)
		goOn := make(chan struct{})
		done := newEffects()
		h := a.hire("holder", func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			done.begin(task.TaskID)
			defer done.end(task.TaskID)
			select {
			case <-goOn:
				return 1, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}, func(c *handConfig) { c.Concurrency = 60 })
		ids := a.send(50, producer.Lease(3*time.Second, 12*time.Second))
		h.events.await(t, workerevent.Started, 50)
		blocked, others := ids[25], append(append([]string{}, ids[:25]...), ids[26:]...)

		session, err := a.db.Client().StartSession()
		require.NoError(t, err)
		defer session.EndSession(context.Background())
		require.NoError(t, session.StartTransaction())
		_, err = a.db.Collection("tasks").UpdateOne(mongo.NewSessionContext(t.Context(), session),
			bson.D{{Key: "_id", Value: blocked}}, bson.D{{Key: "$set", Value: bson.D{{Key: "remark", Value: "mine for now"}}}})
		require.NoError(t, err)
		first := a.get(others[0]).WorkerStates[0].PingExpireTime
		a.awaitEach(others, "pinged twice", func(task *model.Task) bool {
			return task.WorkerStates[0].PingExpireTime.Sub(first) > 5*time.Second
		})
		close(goOn)
		began := time.Now()
		a.awaitSuccess(others)
		if e.virtual() {
			require.LessOrEqual(t, time.Since(began), time.Second)
		}
		require.Equal(t, model.StatusExecuting, a.get(blocked).Status, "its transaction is still open")
		require.NoError(t, session.CommitTransaction(t.Context()))
		a.awaitEach([]string{blocked}, "ended", func(task *model.Task) bool { return task.Status == model.StatusSuccess })
		for _, id := range others {
			task := a.get(id)
			require.Len(t, task.WorkerStates, 1, inWords(task))
			require.Zero(t, task.LapseCount+task.ErrorCount)
		}
		require.Equal(t, "mine for now", a.get(blocked).Remark)
	})
}

// Which one it is must be found out once, not with every batch.
func TestADocumentThatIsHeldIsWrittenApartUntilItIsFree(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		if !e.Transactions || e.Name == "secantusd" {
			t.Skip("this engine has no transactions that others can work beside")
		}
		x := newExplaining(t, e)
		tasks := x.insert(40, "hot", nil)
		blocked := tasks[10].ID
		session, err := x.db.Client().StartSession()
		require.NoError(t, err)
		defer session.EndSession(context.Background())
		require.NoError(t, session.StartTransaction())
		_, err = x.db.Collection("tasks").UpdateOne(mongo.NewSessionContext(t.Context(), session),
			bson.D{{Key: "_id", Value: blocked}}, bson.D{{Key: "$set", Value: bson.D{{Key: "remark", Value: "mine for now"}}}})
		require.NoError(t, err)
		claims, _ := x.claim(tasks)
		updates := func(some []store.Write) (named [][]bool) {
			x.mu.Lock()
			x.caught = nil
			x.mu.Unlock()
			written, err := x.store.Tasks.Writes(t.Context(), some, time.Second)
			require.NoError(t, err)
			for i, w := range written {
				require.Equal(t, some[i].After.ID != blocked, w.Applied)
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			for _, cmd := range x.caught {
				if first, _ := cmd.IndexErr(0); first.Key() == "update" {
					with := bytes.Contains(cmd, []byte(blocked))
					alone := !bytes.Contains(cmd, []byte("$in\x00"))
					named = append(named, []bool{with, alone})
				}
			}
			return named
		}
		require.Greater(t, len(updates(claims[:20])), 3, "it is found by halves")
		alone := e.Sharded // behind a router each statement names one id
		require.Equal(t, [][]bool{{false, alone}, {true, true}}, updates(append(slices.Clone(claims[20:]), claims[10])), "then it goes apart")
		require.NoError(t, session.AbortTransaction(t.Context()))
		awaitTrue(t, func() string { // a suspect has little time for each try, and the machine may be busy
			written, err := x.store.Tasks.Writes(t.Context(), claims[10:11], time.Second)
			require.NoError(t, err)
			if !written[0].Applied {
				return "the document is free, and not written"
			}
			return ""
		})
	})
}
