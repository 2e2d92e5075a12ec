package integration

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

// subscriber is a subscription and what it told.
type subscriber struct {
	t *testing.T
	*producer.Subscription
	told []model.TaskEvent
}

// subscribe begins to listen on a database, which may be behind a proxy.
func subscribe(t *testing.T, db *mongo.Database, f producer.EventFilter) *subscriber {
	t.Helper()
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	s, err := p.Subscribe(t.Context(), f)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close(context.Background())) })
	return &subscriber{t: t, Subscription: s}
}

// hears reads events until enough says so.
func (s *subscriber) hears(enough func([]model.TaskEvent) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), chaosPatience)
	defer cancel()
	for !enough(s.told) {
		e, err := s.Next(ctx)
		require.NoError(s.t, err, "after %v", s.told)
		s.told = append(s.told, e)
	}
}

// ends says whether that many ends were told.
func ends(n int) func([]model.TaskEvent) bool {
	return func(told []model.TaskEvent) bool {
		left := n
		for _, e := range told {
			if e.Kind == model.EventEnded {
				left--
			}
		}
		return left <= 0
	}
}

// of are the kinds that were told of one task, in order.
func (s *subscriber) of(id string) (kinds []model.EventKind) {
	for _, e := range s.told {
		if e.TaskID == id {
			kinds = append(kinds, e.Kind)
		}
	}
	return kinds
}

func TestASubscriberHearsWhatHappensInTheFleet(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		needSubscriptions(t, e)
		a := newArena(t, e)
		s := subscribe(t, a.db, producer.EventFilter{Types: []string{chaosWork.Name()}})
		lapsed := a.send(1)
		a.abandon(lapsed, "dead", time.Second)
		failing := func(ctx context.Context, task *consumer.Task[int]) (int, error) {
			if task.Args == argsFails && task.Attempt == 1 {
				return 0, errNo
			}
			if err := task.Progress(ctx, 50, "half"); err != nil {
				return 0, err
			}
			return double(ctx, task)
		}
		a.hire("w1", failing)
		a.hire("w2", failing)
		plain := a.sendKey("plain", 7).ID
		fails := a.sendKey("fails", argsFails, retries(1, time.Millisecond)).ID
		held := a.sendKey("held", 8, producer.Held()).ID
		_, err := a.p.Release(t.Context(), held)
		require.NoError(t, err)
		s.hears(ends(4))

		work := []model.EventKind{model.EventClaimed, model.EventProgress, model.EventEnded}
		require.Equal(t, slices.Concat([]model.EventKind{model.EventSent}, work), s.of(plain))
		require.Equal(t, slices.Concat([]model.EventKind{model.EventSent, model.EventClaimed, model.EventFailed}, work), s.of(fails))
		require.Equal(t, slices.Concat([]model.EventKind{model.EventSent, model.EventReleased}, work), s.of(held))
		require.Equal(t, []model.EventKind{model.EventSent, model.EventClaimed, model.EventTakenOver, model.EventProgress, model.EventEnded}, s.of(lapsed[0]))
		for _, ev := range s.told {
			switch ev.Kind {
			case model.EventTakenOver:
				require.Equal(t, failkind.Lapsed, ev.FailKind)
				require.Contains(t, []string{"w1", "w2"}, ev.WorkerID)
			case model.EventEnded:
				require.Equal(t, model.StatusSuccess, ev.Status)
				require.Equal(t, a.get(ev.TaskID).FinishedAt, ev.At)
			}
		}
	})
}

// Another scenario's large documents would push the place at which it resumes out of the
// server's log.
func TestASubscriptionSurvivesACutNetworkAndMissesNothing(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		needSubscriptions(t, e)
		a := newArena(t, e.another(t))
		px, away := a.behind()
		s := subscribe(t, away, producer.EventFilter{Kinds: []model.EventKind{model.EventSent}})
		heard := func(n int) func([]model.TaskEvent) bool {
			return func(told []model.TaskEvent) bool { return len(told) >= n }
		}
		ids := a.send(3)
		s.hears(heard(3))
		px.Cut()
		ids = append(ids, a.send(50)...)
		px.Mend()
		s.hears(heard(53))
		px.Drop() // again, and what was on its way is told all the same
		ids = append(ids, a.send(5)...)
		s.hears(heard(58))
		var told []string
		for _, ev := range s.told {
			told = append(told, ev.TaskID)
		}
		require.ElementsMatch(t, ids, told)
	})
}

// The server no longer has what happened while the network was cut: code 286.
func TestASubscriptionSaysThatEventsWereMissed(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		needSubscriptions(t, e)
		a := newArena(t, e)
		px, away := a.behind()
		s := subscribe(t, away, producer.EventFilter{})
		a.send(1)
		s.hears(func(told []model.TaskEvent) bool { return len(told) == 1 })
		lost, err := bson.Marshal(bson.D{{Key: "ok", Value: 0.0}, {Key: "code", Value: int32(286)},
			{Key: "codeName", Value: "ChangeStreamHistoryLost"}, {Key: "errmsg", Value: "the resume point may no longer be in the oplog"}})
		require.NoError(t, err)
		px.Rewrite(func(command string, answer bson.Raw) bson.Raw {
			if command == "getMore" {
				return lost
			}
			return answer
		})
		a.send(1) // an event, so that the stream hears at once
		ctx, cancel := context.WithTimeout(t.Context(), chaosPatience)
		defer cancel()
		for err == nil {
			_, err = s.Next(ctx)
		}
		require.ErrorIs(t, err, model.ErrMissed)
		require.ErrorContains(t, err, "events were missed")
		require.NotEmpty(t, s.Token())
		px.Rewrite(nil)
		again := subscribe(t, a.db, producer.EventFilter{After: s.Token()})
		again.hears(func(told []model.TaskEvent) bool { return len(told) == 1 }) // this server has it all the same
	})
}

// needSubscriptions skips a scenario on a deployment without change streams.
func needSubscriptions(t *testing.T, e Engine) {
	t.Helper()
	if !e.Streams && !e.Sharded {
		t.Skip("this engine has no change streams")
	}
}

// A router names no replica set. A subscription reads its change stream all the same.
func TestASubscriptionWorksBehindARouter(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		needSubscriptions(t, e)
		a := newArena(t, e)
		px, away := a.behind()
		px.Rewrite(proxy.AsRouter)
		streams := px.Set(proxy.Rule{Command: "aggregate", Contains: "$changeStream", Times: -1, Do: proxy.Pass})
		s := subscribe(t, away, producer.EventFilter{Types: []string{chaosWork.Name()}})
		id := a.sendKey("k", 1).ID
		s.hears(func(told []model.TaskEvent) bool { return len(told) == 1 })
		require.Equal(t, []model.EventKind{model.EventSent}, s.of(id))
		require.Equal(t, 1, streams.Sprung())
	})
}

func TestWhereThereAreNoStreamsASubscriptionSaysSo(t *testing.T) {
	onEngines(t, func(t *testing.T, e Engine) {
		a := newArena(t, e)
		px, away := a.behind()
		px.Rewrite(func(command string, answer bson.Raw) bson.Raw {
			var doc bson.D
			if !strings.EqualFold(command, "hello") || bson.Unmarshal(answer, &doc) != nil {
				return answer
			}
			out, err := bson.Marshal(slices.DeleteFunc(doc, func(el bson.E) bool { return el.Key == "setName" || el.Key == "msg" }))
			if err != nil {
				return answer
			}
			return out
		})
		p, err := producer.New(producer.Config{Database: away})
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close(context.Background())) }()
		streams := px.Set(proxy.Rule{Command: "aggregate", Contains: "$changeStream", Times: -1, Do: proxy.Pass})
		_, err = p.Subscribe(t.Context(), producer.EventFilter{})
		var none *model.NoStreamError
		require.ErrorAs(t, err, &none)
		require.False(t, none.Later)
		require.ErrorContains(t, err, "standalone")
		require.ErrorContains(t, err, "Await works without one")
		require.Zero(t, streams.Sprung(), "it asked for a stream all the same")
	})
}
