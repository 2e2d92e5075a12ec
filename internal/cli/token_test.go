package cli

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/store"
)

// listed is what `token list -o json` prints.
func (s *session) listed() (tokens []map[string]any) {
	s.t.Helper()
	var out struct{ Tokens []map[string]any }
	s.ok("token", "list", "-o", "json").json(&out)
	return out.Tokens
}

// guard checks tokens as the REST API does.
func (s *session) guard() *access.Guard {
	s.t.Helper()
	st, err := store.Open(store.Config{Database: database(s.t, s)})
	require.NoError(s.t, err)
	return access.New(access.Config{Store: st})
}

func TestATokenIsPrintedOnceAndWorksUntilItIsRevoked(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	require.Contains(t, s.ok("token", "list").stderr, "no tokens; to create one: mscheduler token create")
	r := s.ok("token", "create", "ci", "--role", "operator", "--tenant", "b,a", "--tenant", "-", "--expires-in", "90d")
	require.Regexp(t, `^msk_[0-9a-z]{16}_[0-9a-z]{32}\n$`, r.stdout)
	text := strings.TrimSpace(r.stdout)
	id, secret, ok := access.Split(text)
	require.True(t, ok)
	require.Contains(t, r.stderr, "created the token "+id+"; it is shown only this once")
	require.NotContains(t, r.stderr, secret)

	guard := s.guard()
	grant, err := guard.Check(t.Context(), text, "192.0.2.1")
	require.NoError(t, err)
	require.Equal(t, access.Grant{Token: id, Name: "ci", Role: access.Operator, Tenants: []string{"-", "a", "b"}}, grant)
	require.NoError(t, guard.Wait(t.Context()))

	tokens := s.listed()
	require.Len(t, tokens, 1)
	require.Contains(t, tokens[0], "last_used_at")
	require.NotEmpty(t, tokens[0]["created_by"])
	created, err := time.Parse(time.RFC3339, tokens[0]["created_at"].(string))
	require.NoError(t, err)
	expires, err := time.Parse(time.RFC3339, tokens[0]["expires_at"].(string))
	require.NoError(t, err)
	require.WithinDuration(t, created.Add(90*24*time.Hour), expires, time.Minute)
	for name, want := range map[string]any{"id": id, "name": "ci", "role": "operator", "tenants": []any{"-", "a", "b"}, "state": "active"} {
		require.Equal(t, want, tokens[0][name], name)
	}
	require.Regexp(t, `(?m)^TOKEN +NAME +ROLE +TENANTS +STATE +CREATED +BY +EXPIRES +LAST USED$`, s.ok("token", "list").stdout)
	require.Regexp(t, `(?m)^`+id+` +ci +operator +-,a,b +active .*\(in (90d|89d 23h)\) .*(ago|now)$`, s.ok("token", "list").stdout)

	require.Equal(t, id+"  revoked\n", s.ok("token", "revoke", id).stdout)
	_, err = s.guard().Check(t.Context(), text, "192.0.2.1")
	require.ErrorIs(t, err, access.ErrNoToken)
	require.Equal(t, "revoked", s.listed()[0]["state"])
	_, err = database(t, s).Collection("tokens").UpdateByID(t.Context(), id, bson.D{{Key: "$set", Value: bson.D{{Key: "revoked_at", Value: time.UnixMilli(0)}}}})
	require.NoError(t, err)
	var again map[string]any
	s.ok("token", "revoke", text, "-o", "json").json(&again)
	require.Equal(t, "1970-01-01T00:00:00.000Z", again["revoked_at"], "the first revocation counts")
	s.fails(ExitNotFound, []string{"no such token: 0000000000000000"}, "token", "revoke", "0000000000000000")
}

func TestATokenAsJSONHasItsTextOnlyWhenItIsCreated(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	var made map[string]any
	s.ok("token", "create", "root", "--role", "admin", "-o", "json").json(&made)
	_, secret, ok := access.Split(made["token"].(string))
	require.True(t, ok)
	require.Equal(t, "active", made["state"])
	require.NotContains(t, made, "tenants")
	require.NotContains(t, made, "expires_at")
	doc := bson.M{}
	require.NoError(t, database(t, s).Collection("tokens").FindOne(t.Context(), bson.D{}).Decode(&doc))
	for _, output := range []string{"table", "json", "yaml"} {
		out := s.ok("token", "list", "-o", output).stdout
		require.Contains(t, out, made["id"])
		require.NotContains(t, out, secret)
		require.NotContains(t, out, "hash")
	}
	require.Regexp(t, `root +admin +\* +active .* never\n$`, s.ok("token", "list").stdout)
	require.Contains(t, s.ok("token", "list", "-o", "yaml").stdout, "    role: admin\n")
}

func TestATokenThatWouldHaveExpiredIsNotCreated(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	s.fails(ExitUsage, []string{"expires_at is 2020-01-01T00:00:00Z, which has passed"}, "token", "create", "n", "--role", "viewer", "--expires-at", "2020-01-01")
	s.fails(ExitUsage, []string{"expires_at is 2999-01-01T00:00:00Z; want a time within 100 years"}, "token", "create", "n", "--role", "viewer", "--expires-at", "2999-01-01")
	require.Empty(t, s.listed())
	s.ok("token", "create", "n", "--role", "viewer", "--expires-at", "2099-01-01")
	_, err := database(t, s).Collection("tokens").UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "expires_at", Value: time.Now().Add(-time.Hour)}}}})
	require.NoError(t, err)
	require.Equal(t, "expired", s.listed()[0]["state"])
}

func TestTokensAreListedPageByPage(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	var ids []string
	for range 3 {
		text := strings.TrimSpace(s.ok("token", "create", "n", "--role", "viewer").stdout)
		id, _, ok := access.Split(text)
		require.True(t, ok)
		ids = append(ids, id)
	}
	// Tokens of one instant, and one that somebody wrote by hand.
	at := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	tokens := database(t, s).Collection("tokens")
	_, err := tokens.UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "created_at", Value: at}}}})
	require.NoError(t, err)
	_, err = tokens.InsertMany(t.Context(), []any{bson.D{{Key: "_id", Value: "by-hand"}, {Key: "role", Value: "viewer"}}, bson.D{{Key: "_id", Value: "by-hand-2"}, {Key: "role", Value: "viewer"}}})
	require.NoError(t, err)
	slices.Sort(ids)
	ids = append([]string{"by-hand", "by-hand-2"}, ids...)
	var listed []string
	for after := ""; ; {
		var page struct {
			Tokens []struct{ ID string }
			Next   string
		}
		s.ok("token", "list", "--limit", "1", "--after", after, "-o", "json").json(&page)
		require.Len(t, page.Tokens, 1)
		listed = append(listed, page.Tokens[0].ID)
		if after = page.Next; after == "" {
			break
		}
		require.Contains(t, s.ok("token", "list", "--limit", strconv.Itoa(len(listed))).stderr, "for the next page: --after '"+after+"'")
	}
	require.Equal(t, ids, listed)
	require.NotContains(t, s.ok("token", "list", "--limit", "5").stderr, "--after")
	s.fails(ExitUsage, []string{"--limit is 0; want 1 to 1000"}, "token", "list", "--limit", "0")
	s.fails(ExitUsage, []string{"--after is \"x\"; want the value that the previous page printed"}, "token", "list", "--after", "x")
}

func TestATokenOfALaterReleaseHidesNoOther(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	s.ok("token", "create", "n", "--role", "viewer")
	_, err := database(t, s).Collection("tokens").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "later"}, {Key: "role", Value: bson.A{"viewer", "worker"}}})
	require.NoError(t, err)
	r := s.fails(ExitFailed, []string{"the token later cannot be read"}, "token", "list")
	require.Regexp(t, ` +n +viewer `, r.stdout)
}

// What is pasted by mistake may be most of a token: no error repeats it.
func TestAMistakeWithATokenDoesNotRepeatItsSecret(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	text := strings.TrimSpace(s.ok("token", "create", "n", "--role", "viewer").stdout)
	_, secret, _ := access.Split(text)
	for _, wrong := range []string{text + "0", text[1:], secret, strings.ToUpper(text)} {
		r := s.fails(ExitUsage, []string{"id is not that of a token"}, "token", "revoke", wrong)
		require.NotContains(t, strings.ToLower(r.stderr), secret)
	}
}

func TestTheRolesOfATokenAreCompleted(t *testing.T) {
	require.Contains(t, newSession(t).ok("__complete", "token", "create", "n", "--role", "").stdout, "viewer\noperator\nadmin\nworker\n")
}
