package rest_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/access"
	"github.com/mscheduler/mscheduler/internal/fakeissuer"
	"github.com/mscheduler/mscheduler/internal/rest"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// issued is a world that accepts tokens of an identity provider whose keys are in a file.
func issued(t *testing.T) (w *world, token func(claims map[string]any) string) {
	t.Helper()
	i, err := fakeissuer.New()
	require.NoError(t, err)
	keys := filepath.Join(t.TempDir(), "keys.json")
	require.NoError(t, os.WriteFile(keys, i.KeySet(), 0o600))
	w = newWorld(t, func(c *rest.Config) {
		c.NoTokens = false
		c.Issuer = &access.Issuer{URL: fakeissuer.URL, JWKS: keys, Audience: fakeissuer.Audience, Roles: map[string]string{"root": "admin", "staff": "viewer"}, TenantsClaim: "tenants"}
	})
	return w, func(claims map[string]any) string {
		text, err := i.Token(claims)
		require.NoError(t, err)
		return text
	}
}

// by is the world with that token.
func (w *world) by(token string) *world {
	out := *w
	out.token = token
	return &out
}

func TestSomebodyOfTheIdentityProviderUsesTheAPI(t *testing.T) {
	w, token := issued(t)
	w.fails(http.StatusUnauthorized, "GET", "/api/v1/tasks", "")
	root := w.by(token(map[string]any{"roles": "root", "tenants": "*", "email": "ann@example.org"}))
	root.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k", "tenant": "mine"}`)
	root.ok("POST", "/api/v1/tasks", `{"type": "mail", "key": "k", "tenant": "other"}`)
	entry := root.audit("?who=oidc/ann&tenant=mine")[0]
	require.Equal(t, "ann@example.org", at(entry, "name"))

	mine := w.by(token(map[string]any{"roles": []string{"staff"}, "tenants": []string{"mine"}}))
	require.EqualValues(t, 1, mine.ok("GET", "/api/v1/tasks/count", "")["count"])
	mine.fails(http.StatusNotFound, "GET", "/api/v1/tasks/other/mail/k", "")
	mine.fails(http.StatusForbidden, "POST", "/api/v1/tasks", `{"type": "mail"}`)

	nobody := w.by(token(map[string]any{"roles": "guest", "tenants": "*"}))
	require.Contains(t, nobody.fails(http.StatusForbidden, "GET", "/api/v1/tasks", "")[""], "its claim roles names no role")
	late := w.by(token(map[string]any{"roles": "root", "exp": 1}))
	require.Contains(t, late.fails(http.StatusUnauthorized, "GET", "/api/v1/tasks", "")[""], "expired")
	forged := w.by(token(map[string]any{"roles": "root", "aud": "other"})).do("GET", "/api/v1/tasks", "")
	require.Equal(t, http.StatusUnauthorized, forged.status)
	require.Equal(t, `Bearer error="invalid_token"`, forged.header.Get("WWW-Authenticate"))
	w.with(access.Viewer).ok("GET", "/api/v1/tasks", "") // tokens of the database count, too
}

// Two people with the same Idempotency-Key do not get each other's answers.
func TestRepeatedRequestsAreThoseOfOneSubject(t *testing.T) {
	w, token := issued(t)
	said := map[string]any{"roles": "root", "tenants": "*"}
	ann := w.by(token(said)).as("Idempotency-Key", "k")
	said["sub"] = "ben"
	ben := w.by(token(said)).as("Idempotency-Key", "k")
	const body = `{"type": "mail"}`
	require.Equal(t, true, ann.ok("POST", "/api/v1/tasks", body)["created"])
	require.Equal(t, true, ann.ok("POST", "/api/v1/tasks", body)["created"], "the first answer")
	require.Equal(t, false, ben.ok("POST", "/api/v1/tasks", body)["created"], "an answer of his own")
}

// A later token of the same person may be for other tenants: it gets no answer about those of the first one.
func TestAFirstAnswerIsForATokenOfTheSameTenants(t *testing.T) {
	t.Parallel()
	w, token := issued(t)
	with := func(tenants any) *world {
		return w.by(token(map[string]any{"roles": "root", "tenants": tenants})).as("Idempotency-Key", "k")
	}
	const body = `{"type": "mail"}`
	require.Equal(t, "acme/mail/k", with("acme").ok("POST", "/api/v1/tasks", body)["id"])
	require.Equal(t, "globex/mail/k", with("globex").ok("POST", "/api/v1/tasks", body)["id"])
	require.Equal(t, "-/mail/k", with("*").ok("POST", "/api/v1/tasks", body)["id"])

	const named = `{"type": "mail", "tenant": "acme", "key": "own"}`
	first := with([]string{"acme", "globex"}).ok("POST", "/api/v1/tasks", named)
	require.Equal(t, true, first["created"])
	require.Equal(t, first, with([]string{"globex", "acme"}).ok("POST", "/api/v1/tasks", named), "the same tenants")
	require.Equal(t, false, with([]string{"acme", "initech"}).ok("POST", "/api/v1/tasks", named)["created"], "an answer of its own")
	with([]string{"globex", "initech"}).fails(http.StatusForbidden, "POST", "/api/v1/tasks", named)
}

func TestWhileTheKeysCannotBeReadNobodyIsToldThatATokenIsWrong(t *testing.T) {
	i, err := fakeissuer.New()
	require.NoError(t, err)
	text, err := i.Token(map[string]any{"roles": "root"})
	require.NoError(t, err)
	w := newWorld(t, func(c *rest.Config) {
		c.NoTokens = false
		c.Issuer = &access.Issuer{URL: fakeissuer.URL, JWKS: "nowhere.json", Audience: fakeissuer.Audience, Roles: map[string]string{"root": "admin"}}
	}).by(text)
	a := w.do("GET", "/api/v1/tasks", "")
	require.Equal(t, http.StatusServiceUnavailable, a.status, a.text)
	require.Equal(t, "5", a.header.Get("Retry-After"))
}

func TestAServerWithAnIssuerIsNeverOpen(t *testing.T) {
	right := access.Issuer{URL: fakeissuer.URL, JWKS: "keys.json", Audience: "a", Roles: map[string]string{"root": "admin"}}
	_, err := rest.New(rest.Config{Database: testdb.New(t), NoTokens: true, Issuer: &right})
	require.ErrorIs(t, err, model.ErrInvalid)
	require.ErrorContains(t, err, "no_tokens")
	right.Audience = ""
	_, err = rest.New(rest.Config{Database: testdb.New(t), Issuer: &right})
	require.ErrorContains(t, err, "issuer.audience is required")
}

func TestAnAddressWithManyWrongTokensIsToldWhenToComeAgain(t *testing.T) {
	w, _ := issued(t)
	mine := w.with(access.Viewer)
	mine.ok("GET", "/api/v1/tasks", "")
	for _, wrong := range []string{"msk_x_y", "eyJ.e30.x"} {
		for range 10 {
			require.Equal(t, http.StatusUnauthorized, w.by(wrong).do("GET", "/api/v1/tasks", "").status)
		}
	}
	require.Eventually(t, func() bool { // where the machine is slow, one is forgiven meanwhile
		a := w.by("msk_x_y").do("GET", "/api/v1/tasks", "")
		if a.status == http.StatusUnauthorized {
			return false
		}
		require.Equal(t, http.StatusTooManyRequests, a.status, a.text)
		require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
		require.Regexp(t, `^[1-7]$`, a.header.Get("Retry-After"), "seconds")
		return true
	}, testdb.Patience, time.Millisecond)
	mine.ok("GET", "/api/v1/tasks", "") // whoever has a right token is not held up
}
