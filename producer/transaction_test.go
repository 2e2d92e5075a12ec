package producer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// transaction runs f in a transaction of the bundle's client.
func (b *bundle) transaction(f func(context.Context) error) error {
	b.t.Helper()
	session, err := b.db.Client().StartSession()
	require.NoError(b.t, err)
	defer session.EndSession(context.Background())
	_, err = session.WithTransaction(b.t.Context(), func(ctx context.Context) (any, error) { return nil, f(ctx) })
	return err
}

var errRollBack = errors.New("roll back")

func TestASendIsPartOfTheCallersTransaction(t *testing.T) {
	b := setup(t)
	users := b.db.Collection("users")
	require.NoError(t, b.db.CreateCollection(t.Context(), "users"))
	sendIn := func(key string, end error) (sent Sent, err error) {
		err = b.transaction(func(ctx context.Context) (err error) {
			if _, err = users.InsertOne(ctx, bson.D{{Key: "_id", Value: key}}); err != nil {
				return err
			}
			if sent, err = Send(ctx, b.p, mailType, mail{}, Key(key)); err != nil {
				return err
			}
			_, missing := b.p.Get(t.Context(), sent.ID)
			require.ErrorIs(t, missing, model.ErrNotFound, "nobody sees it before the commit")
			return end
		})
		return sent, err
	}
	sent, err := sendIn("a", nil) // also the very first send: the schema is set up outside
	require.NoError(t, err)
	require.True(t, sent.Created)
	require.Equal(t, sent.Generation, b.get(sent.ID).Generation)

	sent, err = sendIn("b", errRollBack)
	require.ErrorIs(t, err, errRollBack)
	_, err = b.p.Get(t.Context(), sent.ID)
	require.ErrorIs(t, err, model.ErrNotFound)
	n, err := users.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

func TestASendManyInATransactionIsAllOrNothing(t *testing.T) {
	b := setup(t)
	old := b.send(mail{To: "old"}, Key("1"))
	err := b.transaction(func(ctx context.Context) error {
		sent, err := SendMany(ctx, b.p, mailType, items(5))
		require.NoError(t, err)
		require.True(t, sent[0].Created)
		require.False(t, sent[1].Created, "a key that exists does not end the transaction")
		require.Equal(t, old.Generation, sent[1].Generation)
		return errRollBack
	})
	require.ErrorIs(t, err, errRollBack)
	require.EqualValues(t, 1, b.Tasks())
	require.NoError(t, b.transaction(func(ctx context.Context) error {
		_, err := SendMany(ctx, b.p, mailType, items(5))
		return err
	}))
	require.EqualValues(t, 5, b.Tasks())
}

func TestOutsideTransactionSendsAtOnceAndSurvivesARollBack(t *testing.T) {
	b := setup(t)
	require.ErrorIs(t, b.transaction(func(ctx context.Context) error {
		s, err := Send(ctx, b.p, mailType, mail{}, OutsideTransaction())
		require.NoError(t, err)
		require.Equal(t, s.ID, b.get(s.ID).ID, "there before the end of the transaction")
		return errRollBack
	}), errRollBack)
	require.EqualValues(t, 1, b.Tasks())
}

func TestItemsInsideAndOutsideATransactionAreNotMixed(t *testing.T) {
	b := setup(t)
	_, err := SendMany(t.Context(), b.p, mailType, []Item[mail]{{}, {Options: []Option{OutsideTransaction()}}})
	var invalid *model.InvalidError
	require.ErrorAs(t, err, &invalid)
	require.Equal(t, "outside_transaction", invalid.Field)
	require.ErrorContains(t, err, "item 1")
}

func TestAKeyRestartedInATransactionIsRolledBackWithIt(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, Key("k"))
	b.Run(s.ID, lifecycle.Success(bson.RawValue{}))
	again := func(end error) error {
		return b.transaction(func(ctx context.Context) error {
			sent, err := Send(ctx, b.p, mailType, mail{}, Key("k"), OnExisting(model.RestartSucceeded))
			require.NoError(t, err)
			require.True(t, sent.Created)
			return end
		})
	}
	require.ErrorIs(t, again(errRollBack), errRollBack)
	require.Equal(t, model.StatusSuccess, b.get(s.ID).Status)
	require.NoError(t, again(nil))
	require.Equal(t, model.StatusNew, b.get(s.ID).Status)
	_, err := b.p.room.Life(t.Context(), s.ID, s.Generation)
	require.NoError(t, err)
}

func TestACommandIsPartOfTheCallersTransactionAndWorkersHearOfItAfterwards(t *testing.T) {
	b := setup(t)
	s, other := b.send(mail{}, Key("k")), b.send(mail{}, Key("other"))
	b.Claim(s.ID, "w")
	b.Claim(other.ID, "w")
	cancelIn := func(end error) error {
		return b.transaction(func(ctx context.Context) error {
			if _, err := b.p.Cancel(ctx, s.ID, "changed my mind"); err != nil {
				return err
			}
			outside, cancel := context.WithTimeout(t.Context(), testdb.Patience)
			defer cancel()
			_, err := b.p.Cancel(outside, other.ID, "nobody waits for a transaction that is open")
			require.NoError(t, err)
			require.Zero(t, b.Signalled(s.ID))
			return end
		})
	}
	require.ErrorIs(t, cancelIn(errRollBack), errRollBack)
	require.Zero(t, b.get(s.ID).CancelRequestedAt)
	require.NoError(t, cancelIn(nil))
	require.NotZero(t, b.get(s.ID).CancelRequestedAt)
	require.Eventually(t, func() bool { return b.Signalled(s.ID) == 1 }, testdb.Patience, 10*time.Millisecond)
	require.Equal(t, 2, b.Signalled(other.ID))
}

// The transaction ends when the first insert has put its item aside, before the second begins.
func TestItemsOfAKeyThatATransactionHoldsApplyInTheirOrder(t *testing.T) {
	b, px := behindProxy(t, true)
	session, err := b.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, session.StartTransaction())
	_, err = Send(mongo.NewSessionContext(t.Context(), session), b.p, mailType, mail{To: "the transaction's"}, Key("k"))
	require.NoError(t, err)

	k := func(to string) Item[mail] {
		return Item[mail]{Args: mail{To: to}, Options: []Option{Key("k"), OnExisting(model.UpdateArgs)}}
	}
	full := Item[mail]{Args: mail{To: strings.Repeat("x", input.MaxArgsBytes-100)}}
	many := append([]Item[mail]{k("first")}, slices.Repeat([]Item[mail]{full}, maxChunkBytes/input.MaxArgsBytes)...)
	many = append(many, k("last"), Item[mail]{Args: mail{To: "of the second insert"}})
	second := px.Set(proxy.Rule{Command: "insert", Contains: "of the second insert", Do: proxy.HoldBefore})
	defer second.Release()
	done := make(chan error, 1)
	go func() {
		_, err := SendMany(t.Context(), b.p, mailType, many)
		done <- err
	}()
	testdb.Receive(t, second.Hit())
	require.NoError(t, session.CommitTransaction(t.Context()))
	second.Release()
	require.NoError(t, testdb.Receive(t, done))
	require.JSONEq(t, `{"to":"last"}`, string(codec.ValueJSON(b.get(model.TaskID("", "mail", "k")).Args)))
}

func TestWhatATransactionCommittedIsToldThoughAnotherIsRolledBack(t *testing.T) {
	b := setup(t)
	s := b.send(mail{}, Key("k"))
	b.Claim(s.ID, "w")
	require.NoError(t, b.transaction(func(ctx context.Context) error {
		_, err := b.p.Cancel(ctx, s.ID, "")
		return err
	}))
	require.ErrorIs(t, b.transaction(func(ctx context.Context) error {
		_, err := b.p.Update(ctx, s.ID, Workers("nobody"))
		require.NoError(t, err)
		return errRollBack
	}), errRollBack)
	require.Eventually(t, func() bool { return b.Signalled(s.ID) == 1 }, testdb.Patience, 10*time.Millisecond)
}

// A process may end as soon as its transaction has committed.
func TestACloseTellsWhatHasBeenCommittedAndForgetsTheRest(t *testing.T) {
	b := setup(t)
	s, open := b.send(mail{}, Key("k")), b.send(mail{}, Key("open"))
	b.Claim(s.ID, "w")
	b.Claim(open.ID, "w")
	require.NoError(t, b.transaction(func(ctx context.Context) error {
		_, err := b.p.Cancel(ctx, s.ID, "")
		return err
	}))
	require.ErrorIs(t, b.transaction(func(ctx context.Context) error {
		_, err := b.p.Cancel(ctx, open.ID, "")
		require.NoError(t, err)
		require.NoError(t, b.p.Close(t.Context()))
		return errRollBack
	}), errRollBack)
	require.Equal(t, 1, b.Signalled(s.ID))
	require.Zero(t, b.Signalled(open.ID))
}

func TestATransactionThatMetAnotherIsRetriedByTheDriver(t *testing.T) {
	b := setup(t)
	b.send(mail{})
	tries := 0
	require.NoError(t, b.transaction(func(ctx context.Context) error {
		if tries++; tries == 1 {
			// Look, so that the snapshot is taken, then let somebody else store the key.
			_, err := b.db.Collection("tasks").CountDocuments(ctx, bson.D{})
			require.NoError(t, err)
			b.send(mail{To: "first"}, Key("k"))
		}
		sent, err := Send(ctx, b.p, mailType, mail{To: "second"}, Key("k"))
		if tries == 1 {
			var labelled mongo.LabeledError
			require.ErrorAs(t, err, &labelled, "the wrapped error keeps its label")
			require.True(t, labelled.HasErrorLabel("TransientTransactionError"))
		} else {
			require.False(t, sent.Created)
		}
		return err
	}))
	require.Equal(t, 2, tries)
}

// A session without a transaction undoes nothing, so an end in it counts like any other. One in a transaction may still
// be rolled back.
func TestAnEndInASessionWithoutATransactionIsCounted(t *testing.T) {
	b := setup(t)
	count := func() int64 { return b.p.room.Store.Measure.Types.Of(mailType.Name()).Ended.Of(measure.Success).Load() }
	complete := func(ctx context.Context, key string) error {
		now := b.p.room.Store.Clock.Now()
		task := lifecycle.NewTask(lifecycle.Draft{Type: mailType.Name(), Key: key}, now)
		task, refused := lifecycle.Claim(task, lifecycle.Claimant{WorkerID: "w", ExecID: key}, lifecycle.EffectiveOf(task, model.Options{}), now)
		require.Empty(t, refused)
		_, err := b.p.room.Store.Tasks.Insert(t.Context(), []*model.Task{task})
		require.NoError(t, err)
		_, err = b.p.Complete(ctx, input.HandleOf(task, key).String(), nil)
		return err
	}
	_, err := Send(t.Context(), b.p, mailType, mail{}, Held()) // it sets up the schema
	require.NoError(t, err)
	session, err := b.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(context.Background())
	require.NoError(t, complete(mongo.NewSessionContext(t.Context(), session), "plain"))
	require.EqualValues(t, 1, count())
	require.NoError(t, b.transaction(func(ctx context.Context) error { return complete(ctx, "in a transaction") }))
	require.EqualValues(t, 1, count())
}
