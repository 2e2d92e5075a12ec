package rest_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

func TestAnAdminCreatesListsAndRevokesTokens(t *testing.T) {
	t.Parallel()
	w := guarded(t)
	all := w.with(access.Admin)
	made := all.ok("POST", "/api/v1/tokens", `{"name": "shop", "role": "operator", "tenants": ["shop", "-"], "expires_in": "90d"}`)
	text, id := made["token"].(string), made["id"].(string)
	require.Equal(t, []any{"-", "shop"}, made["tenants"])
	require.Regexp(t, "^token/", made["created_by"])
	expires, err := time.Parse(time.RFC3339, made["expires_at"].(string))
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(90*24*time.Hour), expires, time.Hour)
	shop := w.by(text)
	shop.ok("POST", "/api/v1/tasks", `{"type": "mail", "tenant": "shop"}`)
	shop.fails(http.StatusForbidden, "POST", "/api/v1/tasks", `{"type": "mail", "tenant": "other"}`)
	shop.fails(http.StatusForbidden, "POST", "/api/v1/tokens", `{"name": "n", "role": "viewer"}`)
	shop.fails(http.StatusForbidden, "GET", "/api/v1/tokens", "")

	listed := all.do("GET", "/api/v1/tokens", "")
	require.Equal(t, "active", at(listed.body, "tokens.1.state"))
	require.Equal(t, id, at(listed.body, "tokens.1.id"), "the oldest first")
	require.NotContains(t, listed.text, "hash")
	require.NotContains(t, listed.text, text[len("msk_")+16+1:])

	page := all.ok("GET", "/api/v1/tokens?limit=1", "")
	require.Len(t, page["tokens"], 1)
	require.Equal(t, at(listed.body, "tokens.0.id"), at(page, "tokens.0.id"))
	page = all.ok("GET", "/api/v1/tokens?limit=1&page_token="+page["next"].(string), "")
	require.Equal(t, id, at(page, "tokens.0.id"))
	require.NotContains(t, page, "next")
	require.Contains(t, all.fails(http.StatusUnprocessableEntity, "GET", "/api/v1/tokens?page_token=x", ""), "page_token")

	revoked := all.ok("POST", "/api/v1/tokens/"+text+"/revoke", "") // as somebody does who has found it
	require.Equal(t, "revoked", revoked["state"])
	require.Equal(t, revoked, all.ok("POST", "/api/v1/tokens/"+id+"/revoke", ""), "again")
	require.Eventually(t, func() bool { return shop.do("GET", "/api/v1/tasks?tenant=shop", "").status == http.StatusUnauthorized }, testdb.Patience, 10*time.Millisecond)
	all.fails(http.StatusNotFound, "POST", "/api/v1/tokens/0000000000000000/revoke", "")
	require.Contains(t, all.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/tokens/"+text+"./revoke", ""), "path.id") // as it ended a sentence
	w.with(access.Viewer).fails(http.StatusForbidden, "POST", "/api/v1/tokens/"+text+"./revoke", "")
	require.Len(t, all.audit("?kind=token&outcome=refused&operation=revoke-token"), 3)

	entries := all.audit("?kind=token&resource=" + id)
	require.Len(t, entries, 3)
	require.Equal(t, "active", at(entries[1], "before.state"))
	require.Equal(t, "revoked", at(entries[1], "after.state"))
	require.Equal(t, "create-token", at(entries[2], "operation"))
	secret := text[len("msk_")+16+1:]
	require.NotContains(t, fmt.Sprint(all.audit("")), secret)
	names, err := w.db.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	for _, name := range names {
		var docs []bson.M
		found, err := w.db.Collection(name).Find(t.Context(), bson.D{})
		require.NoError(t, err)
		require.NoError(t, found.All(t.Context(), &docs))
		require.NotContains(t, fmt.Sprint(docs), secret, name)
	}
}

func TestATokenThatIsNotRightIsNotCreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for body, field := range map[string]string{
		`{"role": "viewer"}`: "body.name", `{"name": "n", "role": "king"}`: "body.role", `{"name": "n", "role": "viewer", "tenants": []}`: "body.tenants",
		`{"name": "n", "role": "viewer", "tenants": ["a/b"]}`:                                       "body.tenants",
		`{"name": "n", "role": "viewer", "expires_in": "0s"}`:                                       "body.expires_in",
		`{"name": "n", "role": "viewer", "expires_in": "-1h"}`:                                      "body.expires_in",
		`{"name": "n", "role": "viewer", "expires_in": "1h", "expires_at": "2100-01-01T00:00:00Z"}`: "body.expires_in",
		`{"name": "n", "role": "viewer", "expires_at": "2000-01-01T00:00:00Z"}`:                     "body.expires_at",
		`{"name": "n", "role": "viewer", "expires_at": "soon"}`:                                     "body.expires_at",
		`{"name": "n", "role": "viewer", "expires_at": "9999-01-01T00:00:00Z"}`:                     "body.expires_at",
		`{"name": "n", "role": "viewer", "created_by": "me"}`:                                       "body.created_by",
	} {
		require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/tokens", body), field, body)
	}
	require.Contains(t, w.fails(http.StatusUnprocessableEntity, "POST", "/api/v1/tokens/x/revoke", ""), "path.id")
	require.Empty(t, w.ok("GET", "/api/v1/tokens", "")["tokens"])

	// Over the API of a machine without tokens, the first one is made; it closes the API.
	first := w.ok("POST", "/api/v1/tokens", `{"name": "ops", "role": "admin", "expires_at": "2100-01-01T00:00:00Z"}`)
	require.Equal(t, "anybody", first["created_by"])
	require.Eventually(t, func() bool { return w.do("GET", "/api/v1/tokens", "").status == http.StatusUnauthorized }, testdb.Patience, 10*time.Millisecond)
	require.Len(t, w.by(first["token"].(string)).ok("GET", "/api/v1/tokens", "")["tokens"], 1)
}

// A request that waits would otherwise be given tasks long after its token was revoked.
func TestAFetchThatWaitsEndsWhenItsTokenIsRevoked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.with(access.Admin)
	good, bad := w.with(access.Worker), w.with(access.Worker)
	waits := func(by *world) <-chan struct{} {
		over := make(chan struct{})
		go func() {
			defer close(over)
			by.do("POST", "/api/v1/pull/fetch", `{"worker_id": "w", "types": ["nothing"], "wait": "50s"}`)
		}()
		return over
	}
	first := waits(good) // it began first, and would end first
	second := waits(bad)
	revoke := func(of *world) {
		admin.ok("POST", "/api/v1/tokens/"+of.token[len("msk_"):len("msk_")+16]+"/revoke", "")
	}
	revoke(bad)
	select {
	case <-second:
	case <-first:
		require.Fail(t, "the fetch went on without a token")
	}
	revoke(good)
	<-first
}
