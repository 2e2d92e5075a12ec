package producer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// behindProxy is a bundle whose producer's connection a test may break.
func behindProxy(t *testing.T, retryWrites bool) (*bundle, *proxy.Proxy) {
	t.Helper()
	px := testdb.Behind(t)
	b := setup(t, func(c *Config) {
		o := options.Client().SetRetryWrites(retryWrites).SetServerSelectionTimeout(testdb.Patience)
		c.Database = ownClient(t, px.URI(), o).Database(c.Database.Name())
	})
	b.send(mail{}) // schema and clock
	return b, px
}

// lose loses the next n commands of that name, or their answers.
func lose(px *proxy.Proxy, name string, how proxy.Action, n int) {
	px.Set(proxy.Rule{Command: name, Do: how, Times: n})
}

func TestASendThatMayHaveHappenedIsSafeToRepeatWithItsKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		action proxy.Action
		stored bool
	}{
		"the request was lost": {proxy.CutBefore, false},
		"the answer was lost":  {proxy.CutAfter, true},
	} {
		t.Run(name, func(t *testing.T) {
			b, px := behindProxy(t, false)
			lose(px, "insert", c.action, 1)
			sent, err := Send(t.Context(), b.p, mailType, mail{}, Key("k"))
			require.True(t, mongo.IsNetworkError(err), "the driver's error is found through the wrapping: %v", err)
			require.Equal(t, store.Ambiguous, store.Classify(err))
			require.Equal(t, Sent{ID: "-/mail/k"}, sent)

			again := b.send(mail{}, Key("k"))
			require.Equal(t, !c.stored, again.Created)
			require.EqualValues(t, 2, b.Tasks(), "the first one and one for the key")
		})
	}
}

func TestASendWithoutKeyNamesTheOneItMadeUpWhenItFails(t *testing.T) {
	t.Parallel()
	b, px := behindProxy(t, false)
	lose(px, "insert", proxy.CutAfter, 1)
	sent, err := Send(t.Context(), b.p, mailType, mail{})
	require.Error(t, err)
	_, _, key, err := input.ParseTaskID(sent.ID)
	require.NoError(t, err)
	require.False(t, b.send(mail{}, Key(key)).Created, "it was stored, and a repetition finds it")
}

func TestOneLostAnswerIsSettledByTheDriver(t *testing.T) {
	t.Parallel()
	b, px := behindProxy(t, true)
	lose(px, "insert", proxy.CutAfter, 1)
	require.True(t, b.send(mail{}, Key("k")).Created)
	lose(px, "insert", proxy.CutAfter, 1)
	sent, err := SendMany(t.Context(), b.p, mailType, items(10))
	require.NoError(t, err)
	for _, s := range sent {
		require.True(t, s.Created)
	}
	require.EqualValues(t, 12, b.Tasks())
}

func TestASendManyThatWasCutOffNamesItsItemsAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	b, px := behindProxy(t, false)
	const n = maxChunk + 10 // two inserts, of which the first arrives
	lose(px, "insert", proxy.CutAfter, 1)
	sent, err := SendMany(t.Context(), b.p, mailType, items(n))
	var many *ManyError
	require.ErrorAs(t, err, &many)
	require.Len(t, many.Failed, n)
	require.True(t, mongo.IsNetworkError(many.Failed[0]))
	require.ErrorContains(t, many.Failed[n-1], "not attempted after an earlier error")
	require.Equal(t, "-/mail/0", sent[0].ID)
	require.EqualValues(t, 1+maxChunk, b.Tasks())

	sent, err = SendMany(t.Context(), b.p, mailType, items(n))
	require.NoError(t, err)
	require.False(t, sent[0].Created)
	require.True(t, sent[n-1].Created)
	require.EqualValues(t, 1+n, b.Tasks())
}

func TestATaskThatTheDatabaseRefusesFailsAlone(t *testing.T) {
	b := setup(t)
	b.send(mail{})
	err := b.db.RunCommand(t.Context(), bson.D{{Key: "collMod", Value: "tasks"}, {Key: "validator", Value: bson.D{
		{Key: "creator", Value: bson.D{{Key: "$ne", Value: "eve"}}},
	}}}).Err()
	var command mongo.CommandError
	if err != nil {
		require.ErrorAs(t, err, &command)
		require.True(t, command.HasErrorCode(238), "%v", err)
		t.Skip("this server has no validators: ", err)
	}
	many := items(3)
	many[1].Options = append(many[1].Options, Creator("eve"))
	sent, err := SendMany(t.Context(), b.p, mailType, many)
	var failed *ManyError
	require.ErrorAs(t, err, &failed)
	require.Len(t, failed.Failed, 1)
	require.Equal(t, store.Fatal, store.Classify(failed.Failed[1]))
	require.True(t, sent[0].Created)
	require.True(t, sent[2].Created)
}

func TestACommandWhoseAnswerWasLostMayBeRepeated(t *testing.T) {
	t.Parallel()
	b, px := behindProxy(t, false)
	s := b.send(mail{}, Key("k"))
	b.Claim(s.ID, "w")
	lose(px, "update", proxy.CutAfter, 1) // of the task: the signal is not written
	_, err := b.p.Cancel(t.Context(), s.ID, "stop")
	require.True(t, mongo.IsNetworkError(err), "%v", err)
	require.NotZero(t, b.get(s.ID).CancelRequestedAt)
	require.Zero(t, b.Signalled(s.ID))

	_, err = b.p.Cancel(t.Context(), s.ID, "stop")
	require.NoError(t, err)
	require.Equal(t, 1, b.Signalled(s.ID), "the repetition does what was left to do")
}

func TestWhileTheDatabaseIsAwayASendEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b, px := behindProxy(t, true)
	px.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := Send(ctx, b.p, mailType, mail{}, Key("k"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	px.Mend()
	b.send(mail{}, Key("k"))
	require.EqualValues(t, 2, b.Tasks())
}

func TestASchemaOfALaterReleaseIsRefusedByNameOfTheRemedy(t *testing.T) {
	b := setup(t)
	_, err := b.db.Collection("meta").InsertOne(t.Context(), bson.D{
		{Key: "_id", Value: "schema"}, {Key: "version", Value: 99}, {Key: "min_reader", Value: 99}})
	require.NoError(t, err)
	_, err = Send(t.Context(), b.p, mailType, mail{})
	require.ErrorContains(t, err, "too new")
	require.ErrorContains(t, err, "use a newer release of mscheduler")
	require.Zero(t, b.Tasks())
}

func TestManySendersLearnTogetherThatTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	px := testdb.Behind(t)
	b := setup(t, func(c *Config) {
		o := options.Client().SetServerSelectionTimeout(2 * time.Second)
		c.Database = ownClient(t, px.URI(), o).Database(c.Database.Name())
	})
	px.Cut()
	const n = 100 // one after the other they would take 200 s
	ctx, cancel := context.WithTimeout(t.Context(), testdb.Patience)
	defer cancel()
	errs := make(chan error, n)
	for range n {
		go func() {
			_, err := Send(ctx, b.p, mailType, mail{})
			errs <- err
		}()
	}
	for range n {
		err := <-errs
		require.Error(t, err)
		require.NoError(t, ctx.Err(), "%v", err)
	}
	px.Mend()
	require.Eventually(t, func() bool { // the driver tries to connect twice a second
		_, err := Send(t.Context(), b.p, mailType, mail{})
		return err == nil
	}, time.Minute, time.Millisecond)
}
