package producer

import (
	"context"
	"encoding/base64"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/failkind"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

const eventPatience = testdb.Patience

func (b *bundle) subscribe(f EventFilter) *Subscription {
	b.t.Helper()
	s, err := b.p.Subscribe(b.t.Context(), f)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, s.Close(context.Background())) })
	return s
}

func (b *bundle) next(s *Subscription) model.TaskEvent {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), eventPatience)
	defer cancel()
	e, err := s.Next(ctx)
	require.NoError(b.t, err)
	require.NotEmpty(b.t, e.Token)
	return e
}

// seats counts those that subscriptions and workers hold, two for each.
func (b *bundle) seats() int64 {
	b.t.Helper()
	n, err := b.db.Collection("seats").CountDocuments(b.t.Context(), bson.D{})
	require.NoError(b.t, err)
	return n
}

func TestASubscriptionTellsALifeInOrder(t *testing.T) {
	b := setup(t)
	s := b.subscribe(EventFilter{})
	sent := b.send(mail{To: "ann"}, Tenant("acme"), Key("k"))
	b.Claim(sent.ID, "w1")
	b.End(sent.ID, "w1", lifecycle.Failed(failkind.Released, "shutdown"))
	b.Change(sent.ID, func(t *model.Task, now time.Time) (*model.Task, error) {
		after, no := lifecycle.Claim(t, lifecycle.Claimant{WorkerID: "w2", ExecID: "exec-of-w2"}, lifecycle.ResolveOptions(t.Options), now)
		require.Empty(b.t, no)
		return after, nil
	})
	require.NoError(t, b.Store.Tasks.SaveProgress(t.Context(), sent.ID, 1, "exec-of-w2", model.Progress{Percent: 50, Message: "half", At: b.Now()}))
	done := b.End(sent.ID, "w2", lifecycle.Success(bson.RawValue{}))

	e := b.next(s)
	require.Equal(t, model.EventSent, e.Kind)
	require.Equal(t, "acme/mail/k", e.TaskID)
	require.Equal(t, []string{"acme", "mail", "k"}, []string{e.Tenant, e.Type, e.Key})
	require.Equal(t, sent.Generation, e.Generation)
	e = b.next(s)
	require.Equal(t, model.EventClaimed, e.Kind)
	require.Equal(t, "w1", e.WorkerID)
	e = b.next(s)
	require.Equal(t, model.EventReleased, e.Kind)
	require.Equal(t, "shutdown", e.Reason)
	e = b.next(s)
	require.Equal(t, model.EventClaimed, e.Kind)
	require.Equal(t, "w2", e.WorkerID)
	e = b.next(s)
	require.Equal(t, model.EventProgress, e.Kind)
	require.Equal(t, "half", e.Progress.Message)
	e = b.next(s)
	require.Equal(t, model.EventEnded, e.Kind)
	require.Equal(t, model.StatusSuccess, e.Status)
	require.Equal(t, done.Rev, e.Rev)
	require.WithinDuration(t, done.FinishedAt, e.At, 0)
	require.Equal(t, e.Token, s.Token())
}

func TestASubscriptionTellsOnlyWhatItsFilterNames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		filter EventFilter
		told   []string
	}{
		{EventFilter{Tenant: "a.b"}, []string{"a.b/mail/k"}},
		{EventFilter{Tenant: model.NoTenant}, []string{"-/mail/k", "-/mail/k\nl", "-/mail/x/k", "-/other/k", "-/third/k"}},
		{EventFilter{Types: []string{"other", "third"}}, []string{"-/other/k", "-/third/k"}},
		{EventFilter{Types: []string{"mail"}, Key: "k"}, []string{"-/mail/k", "a.b/mail/k", "axb/mail/k"}},
		{EventFilter{Key: "x/k"}, []string{"-/mail/x/k"}},
		{EventFilter{Tenant: "a.b", Types: []string{"mail"}, Key: "k", Kinds: []model.EventKind{model.EventSent}}, []string{"a.b/mail/k"}},
	} {
		s := b.subscribe(c.filter)
		var told []string
		for range 2 { // what the second round tells comes after all that the first told wrongly
			for _, send := range []struct{ tenant, typ, key string }{
				{"", "mail", "k"}, {"", "mail", "k\nl"}, {"", "mail", "x/k"}, {"", "other", "k"}, {"", "third", "k"},
				{"a.b", "mail", "k"}, {"axb", "mail", "k"},
			} {
				opts := []Option{Key(send.key)}
				if send.tenant != "" {
					opts = append(opts, Tenant(send.tenant))
				}
				_, err := b.p.SendJSON(t.Context(), send.typ, nil, opts...)
				require.NoError(t, err)
			}
			_, err := b.db.Collection("tasks").DeleteMany(t.Context(), bson.D{})
			require.NoError(t, err)
		}
		for range 2 * len(c.told) {
			told = append(told, b.next(s).TaskID)
		}
		require.Equal(t, append(slices.Clone(c.told), c.told...), told, "%+v", c.filter)
		require.NoError(t, s.Close(t.Context()))
	}
}

func TestKindsAreFilteredAndAnEndIsToldOfANewLifeToo(t *testing.T) {
	b := setup(t)
	s := b.subscribe(EventFilter{Kinds: []model.EventKind{model.EventEnded, model.EventSent}})
	sent := b.send(mail{}, Key("k"))
	b.Run(sent.ID, lifecycle.Failed(failkind.Fatal, "no"))
	again := b.Change(sent.ID, func(t *model.Task, now time.Time) (*model.Task, error) {
		return lifecycle.RetryNow(t, "again", lifecycle.ResolveOptions(t.Options), now)
	})
	b.Run(sent.ID, lifecycle.Success(bson.RawValue{}))
	for _, want := range []model.TaskEvent{
		{Kind: model.EventSent, Status: model.StatusNew, Generation: sent.Generation},
		{Kind: model.EventEnded, Status: model.StatusFailure, FailKind: failkind.Fatal, Reason: "no"},
		{Kind: model.EventSent, Status: model.StatusNew, Generation: again.Generation, Reason: "again"},
		{Kind: model.EventEnded, Status: model.StatusSuccess},
	} {
		e := b.next(s)
		require.Equal(t, want, model.TaskEvent{Kind: e.Kind, Status: e.Status, Generation: e.Generation, FailKind: e.FailKind, Reason: e.Reason})
	}
}

func TestASubscriptionResumesAfterAToken(t *testing.T) {
	b := setup(t)
	first := b.subscribe(EventFilter{})
	b.send(mail{}, Key("1"))
	b.send(mail{}, Key("2"))
	token := b.next(first).Token
	require.NoError(t, first.Close(t.Context()))
	b.send(mail{}, Key("3"))
	second := b.subscribe(EventFilter{After: token})
	require.Equal(t, "2", b.next(second).Key)
	require.Equal(t, "3", b.next(second).Key)
	require.NoError(t, second.Close(t.Context()))
	last := second.Token()
	b.send(mail{}, Key("4"))
	third := b.subscribe(EventFilter{Types: []string{"mail"}, After: last})
	for e, err := range third.All(t.Context()) {
		require.NoError(t, err)
		require.Equal(t, "4", e.Key)
		break
	}
}

func TestSubscriptionsAreFewAndGiveTheirSeatsBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one := EventFilter{Types: []string{"a", "b"}}
	first := b.subscribe(one)
	b.subscribe(EventFilter{Types: []string{"b", "a", "b"}})
	_, err := b.p.Subscribe(t.Context(), one)
	var none *model.NoStreamError
	require.ErrorAs(t, err, &none)
	require.True(t, none.Later)
	require.ErrorContains(t, err, "Await works without one")
	b.subscribe(EventFilter{Types: []string{"c"}})
	b.subscribe(EventFilter{Types: []string{"d"}})
	_, err = b.p.Subscribe(t.Context(), EventFilter{Types: []string{"e"}})
	require.ErrorAs(t, err, &none, "four in all")
	require.EqualValues(t, 8, b.seats(), "what was refused left nothing behind")
	for i := range store.StreamsInAll / 2 { // workers still find some
		seat, err := b.Store.Seats.Acquire(t.Context(), []string{"w", string(rune('a' + i))}, "worker")
		require.NoError(t, err)
		require.NotNil(t, seat)
	}
	require.NoError(t, first.Close(t.Context()))
	require.NoError(t, first.Close(t.Context()), "again")
	_, err = first.Next(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	b.subscribe(EventFilter{Types: []string{"e"}})
}

func TestASeatIsKeptWhileTheSubscriptionIsOpen(t *testing.T) {
	b := setup(t)
	b.p.subscriptions.renewal = 5 * time.Millisecond
	s := b.subscribe(EventFilter{})
	expiry := func() (at time.Time) {
		cur, err := b.db.Collection("seats").Find(t.Context(), bson.D{})
		require.NoError(t, err)
		var docs []struct {
			At time.Time `bson:"expires_at"`
		}
		require.NoError(t, cur.All(t.Context(), &docs))
		require.Len(t, docs, 2)
		return docs[0].At
	}
	before := expiry()
	require.Eventually(t, func() bool { return expiry().After(before) }, eventPatience, 5*time.Millisecond)

	// Somebody else has it: another one is taken.
	_, err := b.db.Collection("seats").UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "holder", Value: "other"}}}})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return b.seats() == 4 }, eventPatience, 5*time.Millisecond)
	b.send(mail{}, Key("k"))
	require.Equal(t, "k", b.next(s).Key)

	// And now all of them.
	_, err = b.db.Collection("seats").UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "holder", Value: "other"}}}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), eventPatience)
	defer cancel()
	_, err = s.Next(ctx)
	var none *model.NoStreamError
	require.ErrorAs(t, err, &none)
	require.ErrorContains(t, err, "seat lapsed")
}

func TestASubscriptionWaitsForAServerThatIsDown(t *testing.T) {
	px := testdb.Behind(t)
	b := setup(t, func(c *Config) { c.Database = testdb.Through(t, px) })
	require.NoError(t, b.p.room.Prepare(t.Context()))
	// The driver tries a read twice itself.
	seats := px.Set(proxy.Rule{Command: "find", Collection: "seats", Do: proxy.CutBefore, Times: 4})
	stream := px.Set(proxy.Rule{Command: "aggregate", Collection: "tasks", Do: proxy.CutBefore, Times: 4})
	s := b.subscribe(EventFilter{})
	require.Equal(t, 4, max(seats.Sprung(), stream.Sprung()))
	b.send(mail{}, Key("k"))
	require.Equal(t, "k", b.next(s).Key)
}

func TestASubscriptionRefusesBadInput(t *testing.T) {
	b := setup(t)
	for field, f := range map[string]EventFilter{
		"tenant": {Tenant: "a/b"}, "types": {Types: []string{"a", ""}}, "key": {Key: "a\x00"}, "kinds": {Kinds: []model.EventKind{"pinged"}},
	} {
		_, err := b.p.Subscribe(t.Context(), f)
		var bad *model.InvalidError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, field, bad.Field)
	}
	_, err := b.p.Subscribe(t.Context(), EventFilter{Types: make([]string, 101)})
	require.ErrorContains(t, err, "types are 101")
	_, err = b.p.Subscribe(t.Context(), EventFilter{After: "nonsense"})
	require.ErrorIs(t, err, model.ErrInvalid)
	_, err = b.p.Subscribe(t.Context(), EventFilter{After: foreignToken(t)})
	require.ErrorIs(t, err, model.ErrInvalid)
	require.Zero(t, b.seats())
}

// foreignToken has the form of a token, but no server gave it.
func foreignToken(t *testing.T) string {
	raw, err := bson.Marshal(bson.D{{Key: "_data", Value: "8200"}})
	require.NoError(t, err)
	return base64.RawURLEncoding.EncodeToString(raw)
}

func TestNextMayBeGivenUpAndCalledAgain(t *testing.T) {
	b := setup(t)
	s := b.subscribe(EventFilter{})
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() {
		_, err := s.Next(ctx)
		waiting <- err
	}()
	cancel()
	require.ErrorIs(t, <-waiting, context.Canceled)
	b.send(mail{}, Key("k"))
	require.Equal(t, "k", b.next(s).Key)
}

func TestASlowReaderLosesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.subscribe(EventFilter{})
	const many = 2500 // more than the server sends at a time
	sent, err := SendMany(t.Context(), b.p, mailType, make([]Item[mail], many))
	require.NoError(t, err)
	told := map[string]int{}
	for range many {
		told[b.next(s).TaskID]++
	}
	require.Len(t, told, many)
	for _, one := range sent {
		require.Equal(t, 1, told[one.ID])
	}
}

func TestAProducersCloseEndsItsSubscriptions(t *testing.T) {
	b := setup(t)
	s := b.subscribe(EventFilter{})
	require.NoError(t, b.p.Close(t.Context()))
	_, err := s.Next(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	require.Zero(t, b.seats())
	_, err = b.p.Subscribe(t.Context(), EventFilter{})
	require.ErrorIs(t, err, ErrClosed)
}
