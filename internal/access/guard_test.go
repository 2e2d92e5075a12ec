package access

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/proxy"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// unknown is the text of a token that nobody created.
func unknown() string { return prefix + random(idBytes) + "_" + random(secretBytes) }

func TestATokenAllowsWhatItsDocumentSays(t *testing.T) {
	x := newGate(t)
	text, token := x.create(Wanted{Name: "ci", Role: string(Operator), Tenants: []string{"b", "a", "-", "a"}, CreatedBy: "me"})
	require.Equal(t, Grant{Token: token.ID, Name: "ci", Role: Operator, Tenants: []string{"-", "a", "b"}}, x.accepts(text))
	text, token = x.create(Wanted{Name: "root", Role: string(Admin), Tenants: []string{}})
	g := x.accepts(text)
	require.Equal(t, Grant{Token: token.ID, Name: "root", Role: Admin}, g)
	require.True(t, g.Sees("any"))

	doc := x.stored(token.ID)
	require.NotContains(t, fmt.Sprint(doc), text[len(prefix)+idChars+1:], "the secret is not stored")
	require.NotContains(t, doc, "tenants")
	require.NotContains(t, doc, "expires_at")
	require.NotContains(t, doc, "delete_at")
}

func TestAGrantIsTheCallersOwn(t *testing.T) {
	x := newGate(t)
	text, _ := x.create(Wanted{Name: "n", Role: string(Viewer), Tenants: []string{"a"}})
	x.accepts(text).Tenants[0] = "b"
	require.Equal(t, []string{"a"}, x.accepts(text).Tenants)
}

func TestEveryWrongTokenIsRefusedInTheSameWay(t *testing.T) {
	x := newGate(t)
	text, token := x.create(Wanted{})
	revoked, other := x.create(Wanted{})
	_, err := Revoke(t.Context(), x.store, other.ID)
	require.NoError(t, err)
	for name, wrong := range map[string]string{
		"none": "", "malformed": "hunter2", "unknown": unknown(), "revoked": revoked,
		"wrong secret": prefix + token.ID + "_" + random(secretBytes), "another's secret": prefix + token.ID + "_" + revoked[len(prefix)+idChars+1:],
		"as a query": prefix + `{"$ne": ""}` + "_" + random(secretBytes), "longer": text + "0",
	} {
		for range 2 { // as it is read, and as it is remembered
			g, err := x.Check(t.Context(), wrong, "192.0.2.1")
			require.Equal(t, ErrNoToken, err, name)
			require.Equal(t, Grant{}, g, name)
		}
	}
	x.accepts(text)
}

func TestARevokedTokenIsRefusedWithinTheWindow(t *testing.T) {
	x := newGate(t)
	text, token := x.create(Wanted{})
	x.accepts(text)
	elsewhere := x.open() // the command line, say
	_, err := Revoke(t.Context(), elsewhere, token.ID)
	require.NoError(t, err)
	before := x.count("find")
	x.hand.forward(Window - 1)
	x.accepts(text)
	require.Equal(t, before, x.count("find"))
	x.hand.forward(1)
	for range failuresAllowed {
		x.refuses(ErrNoToken, text, "192.0.2.1")
	}
	_, err = x.Check(t.Context(), text, "192.0.2.1")
	var many *TooManyError
	require.ErrorAs(t, err, &many, "it was a right token once, and is like any wrong one")
	require.Equal(t, before+1, x.count("find"))
}

func TestAViewGrowsOldWhileTheMachineSleeps(t *testing.T) {
	x := newGate(t)
	text, token := x.create(Wanted{})
	x.accepts(text)
	_, err := Revoke(t.Context(), x.store, token.ID)
	require.NoError(t, err)
	asleep := &sleeper{hand: x.hand}
	x.clock = asleep
	asleep.slept = time.Hour // the monotonic clock stands still
	x.refuses(ErrNoToken, text, "192.0.2.1")
}

type sleeper struct {
	*hand
	slept time.Duration
}

func (s *sleeper) Now() time.Time { return s.hand.Now().Add(s.slept) }

func TestATokenExpiresByTheDatabasesClock(t *testing.T) {
	x := newGate(t)
	require.NoError(t, x.store.FreshClock(t.Context()))
	text, token := x.create(Wanted{Name: "n", Role: string(Viewer), ExpiresAt: x.store.Clock.Now().Add(time.Minute)})
	require.Equal(t, 90*24*time.Hour, token.DeleteAt.Sub(token.ExpiresAt))
	x.accepts(text)
	require.True(t, x.store.Clock.Skip(time.Minute-time.Second))
	x.accepts(text)
	require.True(t, x.store.Clock.Skip(time.Second))
	for range 2 * failuresAllowed { // its holder has the secret: no failed sign-in
		x.refuses(ErrExpired, text, "192.0.2.1")
	}
	x.refuses(ErrNoToken, prefix+token.ID+"_"+random(secretBytes), "192.0.2.1")
}

func TestConcurrentChecksOfATokenAreOneRead(t *testing.T) {
	x := newGate(t)
	text, _ := x.create(Wanted{})
	before := x.count("find")
	for n := 1; n <= 2; n++ {
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				if _, err := x.Check(t.Context(), text, "192.0.2.1"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Equal(t, n, x.count("find")-before)
		x.hand.forward(Window)
	}
}

func TestAFloodOfUnknownTokensCostsFewReads(t *testing.T) {
	x := newGate(t)
	good, _ := x.create(Wanted{})
	x.accepts(good)
	before := x.count("find")
	same := unknown()
	for i := range 100 {
		x.refuses(ErrNoToken, same, fmt.Sprintf("192.0.2.%d", i))
	}
	require.Equal(t, before+1, x.count("find"), "an unknown token is remembered")

	// From one address: no more reads than failures are allowed.
	before = x.count("find")
	var many *TooManyError
	for range 1000 {
		if _, err := x.Check(t.Context(), unknown(), "198.51.100.1"); !errors.As(err, &many) {
			require.ErrorIs(t, err, ErrNoToken)
		}
	}
	require.Equal(t, before+failuresAllowed, x.count("find"))

	// From as many addresses as there are tokens, at once: one read at a time, for all that wait.
	before = x.count("find")
	trap := x.proxy.Set(proxy.Rule{Command: "find", Collection: "tokens", Do: proxy.HoldBefore})
	var wg sync.WaitGroup
	for i := range 500 {
		wg.Go(func() {
			if _, err := x.Check(t.Context(), unknown(), fmt.Sprintf("10.0.%d.%d", i/250, i%250)); !errors.Is(err, ErrNoToken) {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool { return x.reads.Len() == 500 }, testdb.Patience, time.Millisecond)
	x.accepts(good) // and does not wait
	trap.Release()
	wg.Wait()
	require.LessOrEqual(t, x.count("find"), before+2)
}

func TestTheViewIsBounded(t *testing.T) {
	x := newGate(t)
	good, _ := x.create(Wanted{})
	x.accepts(good)
	for i := range maxKept + 5 {
		put(x.missing, fmt.Sprint(i), x.missing[""])
		x.failures.failed(fmt.Sprint(i))
	}
	require.Len(t, x.missing, maxKept)
	require.Len(t, x.failures.clear, maxKept)
	before := x.count("find")
	x.accepts(good)
	require.Equal(t, before, x.count("find"), "unknown ids do not displace a token")
}

func TestWhoseTokenIsRightIsNotLockedOutByOthersOfTheAddress(t *testing.T) {
	x := newGate(t)
	text, token := x.create(Wanted{})
	fresh, _ := x.create(Wanted{})
	x.accepts(text)
	for range failuresAllowed {
		x.refuses(ErrNoToken, "wrong", "192.0.2.1:1")
	}
	var many *TooManyError
	for _, wrong := range []string{"wrong", unknown(), prefix + token.ID + "_" + random(secretBytes), fresh} {
		_, err := x.Check(t.Context(), wrong, "192.0.2.1:2")
		require.ErrorAs(t, err, &many)
		require.Equal(t, failureForgiven, many.RetryAfter)
	}
	x.accepts(text)
	x.hand.forward(Window) // and neither when it must be read again
	x.accepts(text)
	x.hand.forward(failureForgiven - Window)
	require.NotEmpty(t, x.accepts(fresh), "a failure is forgiven")
}

func TestTheLastUseIsWrittenAtMostOnceAMinute(t *testing.T) {
	x := newGate(t)
	text, token := x.create(Wanted{})
	require.NotContains(t, x.stored(token.ID), "last_used_at")
	used := func() time.Time {
		for range 50 {
			x.accepts(text)
			x.hand.forward(time.Second)
		}
		require.NoError(t, x.Wait(t.Context()))
		return x.stored(token.ID)["last_used_at"].(bson.DateTime).Time()
	}
	first := used()
	require.WithinDuration(t, time.Now(), first, time.Minute)
	require.Equal(t, 1, x.count("update"))
	x.hand.forward(-50 * time.Second) // the database's clock has not gone on with the test's
	require.NoError(t, x.store.ReadClock(t.Context()))

	// Another process knows nothing of the first one's write, and does not repeat it.
	other := patient(Config{Store: x.open()})
	_, err := other.Check(t.Context(), text, "")
	require.NoError(t, err)
	require.NoError(t, other.Wait(t.Context()))
	require.Equal(t, 2, x.count("update"))
	require.Equal(t, first, x.stored(token.ID)["last_used_at"].(bson.DateTime).Time())

	_, err = x.db.Collection("tokens").UpdateByID(t.Context(), token.ID, bson.D{{Key: "$set", Value: bson.D{{Key: "last_used_at", Value: first.Add(-2 * time.Minute)}}}})
	require.NoError(t, err)
	x.hand.forward(time.Minute)
	require.False(t, used().Before(first))
}

func TestATokenThatThisReleaseCannotReadIsNone(t *testing.T) {
	x := newGate(t)
	text, token := x.create(Wanted{})
	later, other := x.create(Wanted{})
	_, err := x.db.Collection("tokens").UpdateByID(t.Context(), other.ID, bson.D{{Key: "$set", Value: bson.D{{Key: "tenants", Value: "all"}}}})
	require.NoError(t, err)
	x.refuses(ErrNoToken, later, "192.0.2.1")
	require.Contains(t, x.log.String(), other.ID)
	x.accepts(text)
	tokens, unread, _, err := x.store.Tokens.List(t.Context(), store.TokenPlace{}, 10)
	require.NoError(t, err)
	require.Len(t, tokens, 1)
	require.Equal(t, token.ID, tokens[0].ID)
	require.Len(t, unread, 1)
	require.Equal(t, other.ID, unread[0].ID)
	_, err = x.db.Collection("tokens").UpdateByID(t.Context(), token.ID, bson.D{{Key: "$set", Value: bson.D{{Key: "role", Value: "auditor"}}}})
	require.NoError(t, err)
	x.hand.forward(Window)
	require.False(t, x.accepts(text).Role.Includes(Viewer))
}

func TestWithoutTheDatabaseAChecksErrorIsNotAboutTheToken(t *testing.T) {
	t.Parallel()
	x := newGate(t)
	text, _ := x.create(Wanted{})
	x.accepts(text)
	x.proxy.Cut()
	x.accepts(text)
	x.hand.forward(Window)
	for range 2 * failuresAllowed { // no failed sign-ins
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		g, err := x.Check(ctx, text, "192.0.2.1")
		cancel()
		require.Error(t, err)
		require.NotErrorIs(t, err, ErrNoToken)
		require.Equal(t, Grant{}, g)
	}
	_, err := x.Check(t.Context(), text, "192.0.2.1")
	require.ErrorContains(t, err, "checking a token")
	require.True(t, store.Unreachable(err), "%v", err)
	x.proxy.Mend()
	x.recovers(text)
}

func TestAUseThatCannotBeWrittenIsOnlyLogged(t *testing.T) {
	t.Parallel()
	x := newGate(t)
	text, token := x.create(Wanted{})
	x.proxy.Set(proxy.Rule{Command: "update", Collection: "tokens", Times: -1, Do: proxy.CutBefore})
	x.accepts(text)
	require.NoError(t, x.Wait(t.Context()))
	require.Contains(t, x.log.String(), "could not write when tokens were last used")
	require.NotContains(t, x.stored(token.ID), "last_used_at")
	x.proxy.Clear()
	x.hand.forward(time.Minute)
	x.recovers(text)
	require.NoError(t, x.Wait(t.Context()))
	require.Contains(t, x.stored(token.ID), "last_used_at")
}
