package access

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/model"
)

// provider is an identity provider on loopback.
type provider struct {
	t     *testing.T
	url   string
	asked atomic.Int64 // how often for its keys
	now   func() time.Time

	mu     sync.Mutex
	keys   []jose.JSONWebKey
	answer http.HandlerFunc // in the place of the keys; nil = they
}

var rsaKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func newProvider(t *testing.T) *provider {
	p := &provider{t: t}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked.Add(1)
		p.mu.Lock()
		answer, keys := p.answer, p.keys
		p.mu.Unlock()
		if answer != nil {
			answer(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: keys})
	}))
	t.Cleanup(s.Close)
	p.url = s.URL
	p.publish("rsa", rsaKey())
	return p
}

// publish makes the key the only one.
func (p *provider) publish(id string, key crypto.Signer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = []jose.JSONWebKey{{KeyID: id, Key: key.Public(), Use: "sig"}}
}

// does has the provider answer otherwise; nil = with its keys.
func (p *provider) does(answer http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

// claims are those of a right token, with changes; nil takes one out.
func (p *provider) claims(changes map[string]any) map[string]any {
	out := map[string]any{
		"iss": "https://id.example.org", "aud": []string{"other", "mscheduler"}, "sub": "ann", "exp": p.now().Add(time.Hour).Unix(), "iat": p.now().Unix(), "roles": []string{"staff", "oncall"},
	}
	maps.Copy(out, changes)
	maps.DeleteFunc(out, func(_ string, v any) bool { return v == nil })
	return out
}

// signed is a token.
func (p *provider) signed(alg jose.SignatureAlgorithm, id string, key any, claims map[string]any) string {
	p.t.Helper()
	options := (&jose.SignerOptions{}).WithType("JWT")
	if id != "" {
		options = options.WithHeader("kid", id)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, options)
	require.NoError(p.t, err)
	payload, err := json.Marshal(claims)
	require.NoError(p.t, err)
	signature, err := signer.Sign(payload)
	require.NoError(p.t, err)
	text, err := signature.CompactSerialize()
	require.NoError(p.t, err)
	return text
}

// token is a right token, with changed claims.
func (p *provider) token(changes map[string]any) string {
	p.t.Helper()
	return p.signed(jose.RS256, "rsa", rsaKey(), p.claims(changes))
}

// issued is a gate that accepts tokens of a provider.
func issued(t *testing.T, change ...func(*Issuer)) (*gate, *provider) {
	t.Helper()
	p := newProvider(t)
	i := Issuer{URL: "https://id.example.org", JWKS: p.url, Audience: "mscheduler", Roles: map[string]string{"platform": "admin", "oncall": "operator", "everybody": "viewer", "machines": "worker"}}
	for _, f := range change {
		f(&i)
	}
	require.NoError(t, i.Check())
	x := newGate(t, func(c *Config) { c.Issuer = &i })
	require.NoError(t, x.store.FreshClock(t.Context()))
	p.now = x.store.Clock.Now
	return x, p
}

func TestATokenOfTheIssuerAllowsWhatItsClaimsSay(t *testing.T) {
	x, p := issued(t)
	g := x.accepts(p.token(nil))
	require.Equal(t, Grant{Subject: "ann", Role: Operator}, g)
	require.Equal(t, "oidc/ann", g.Who())
	require.True(t, g.Sees("any"))
	require.Equal(t, "Ann", x.accepts(p.token(map[string]any{"preferred_username": "Ann", "email": "a@example.org"})).Name)
	for role, said := range map[Role]any{
		Admin: []any{"everybody", "platform", "oncall", 7, nil}, Operator: "oncall", Viewer: []string{"machines", "everybody"}, Worker: []string{"machines"},
	} {
		require.Equal(t, role, x.accepts(p.token(map[string]any{"roles": said})).Role)
	}
	own, _ := x.create(Wanted{Name: "n", Role: string(Viewer)})
	require.Equal(t, "n", x.accepts(own).Name, "tokens of the database count, too")
	require.EqualValues(t, 1, p.asked.Load(), "the keys are read once")
}

func TestEachKindOfKeyPairSigns(t *testing.T) {
	x, p := issued(t)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	p.keys = append(p.keys, jose.JSONWebKey{KeyID: "ec", Key: ec.Public(), Algorithm: "ES256"}, jose.JSONWebKey{KeyID: "ed", Key: ed.Public()})
	x.accepts(p.signed(jose.PS512, "rsa", rsaKey(), p.claims(nil)))
	x.accepts(p.signed(jose.ES256, "ec", ec, p.claims(nil)))
	x.accepts(p.signed(jose.EdDSA, "ed", ed, p.claims(nil)))
	x.accepts(p.signed(jose.EdDSA, "", ed, p.claims(nil))) // no key is named: each is tried
}

func TestATokenWithoutARoleOrTenantGivesNoAccess(t *testing.T) {
	t.Parallel()
	x, p := issued(t, func(i *Issuer) { i.RoleClaim, i.TenantsClaim = "realm_access.roles", "https://example.org/tenants" })
	said := func(roles, tenants any) string {
		return p.token(map[string]any{"realm_access": map[string]any{"roles": roles}, "https://example.org/tenants": tenants})
	}
	require.Equal(t, []string{"-", "a", "b"}, x.accepts(said("oncall", []any{"b", "a", "a", "-", "no/tenant", "", 7})).Tenants)
	require.Equal(t, []string{"a"}, x.accepts(said("oncall", "a")).Tenants)
	require.Nil(t, x.accepts(said("oncall", []string{"a", "*"})).Tenants)
	var many []string
	for i := range maxTenants + 1 {
		many = append(many, fmt.Sprint(i))
	}
	for range 2 * failuresAllowed { // the sign-in is right: no failure
		x.refuses(ErrNoRights, said("oncall", nil), "192.0.2.1")
	}
	for _, text := range []string{
		said([]string{"staff", "admin"}, "a"), said(nil, "a"), said(map[string]any{"oncall": true}, "a"), said("oncall", []string{}), said("oncall", "no/tenant"), said("oncall", many),
		p.token(map[string]any{"roles": "oncall", "https://example.org/tenants": "a"}), p.token(map[string]any{"realm_access": "oncall"}),
	} {
		x.refuses(ErrNoRights, text, "192.0.2.1")
	}
}

func TestATokenCountsOnlyWithinItsTime(t *testing.T) {
	x, p := issued(t)
	in := func(d time.Duration) int64 { return p.now().Add(d).Unix() }
	text := p.token(map[string]any{"exp": in(time.Minute)})
	x.accepts(text)
	require.True(t, x.store.Clock.Skip(time.Minute+time.Second))
	for range 2 * failuresAllowed { // its holder had signed in
		x.refuses(ErrExpired, text, "192.0.2.1")
	}
	x.refuses(ErrExpired, p.token(map[string]any{"exp": nil}), "192.0.2.1")
	x.refuses(ErrNoToken, p.token(map[string]any{"nbf": in(time.Hour)}), "192.0.2.1")
	x.accepts(p.token(map[string]any{"nbf": in(time.Minute)})) // clocks differ
}

func TestATokenThatIsNotOfTheIssuerOrNotForThisServerIsRefused(t *testing.T) {
	t.Parallel()
	x, p := issued(t)
	x.accepts(p.token(nil))
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	public := x509.MarshalPKCS1PublicKey(&rsaKey().PublicKey)
	parts := strings.Split(p.token(nil), ".")
	encode := base64.RawURLEncoding.EncodeToString
	admin, err := json.Marshal(p.claims(map[string]any{"roles": "platform"}))
	require.NoError(t, err)
	expired, err := json.Marshal(p.claims(map[string]any{"exp": 1}))
	require.NoError(t, err)
	expiredClaims := encode(expired)
	for name, wrong := range map[string]string{
		"audience": p.token(map[string]any{"aud": "other"}), "no audience": p.token(map[string]any{"aud": nil}),
		"issuer": p.token(map[string]any{"iss": "https://id.example.org/"}), "no issuer": p.token(map[string]any{"iss": nil}),
		"no subject": p.token(map[string]any{"sub": nil}), "subject": p.token(map[string]any{"sub": strings.Repeat("x", maxSubject+1)}),
		"NUL in the subject": p.token(map[string]any{"sub": "a\x00b"}), "two lines of a subject": p.token(map[string]any{"sub": "a\nb"}),
		"another's key":           p.signed(jose.RS256, "rsa", other, p.claims(nil)),
		"unknown key":             p.signed(jose.RS256, "new", other, p.claims(nil)),
		"public key as secret":    p.signed(jose.HS256, "rsa", pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: public}), p.claims(nil)),
		"no algorithm":            encode([]byte(`{"alg":"none","kid":"rsa"}`)) + "." + parts[1] + ".",
		"no signature":            parts[0] + "." + parts[1] + ".",
		"claims of another token": parts[0] + "." + encode(admin) + "." + parts[2],
		"another's key, expired":  p.signed(jose.RS256, "rsa", other, p.claims(map[string]any{"exp": 1})),
		"unknown key, expired":    p.signed(jose.RS256, "new", other, p.claims(map[string]any{"exp": 1})),
		"expired, no signature":   parts[0] + "." + expiredClaims + ".",
		"expired claims":          parts[0] + "." + expiredClaims + "." + parts[2],
		"garbage":                 "eyJ.e30.x", "a word": "hunter2", "JSON": `{"payload":"e30"}`, "long": strings.Repeat("a.", 30_000), "NUL": "\x00",
	} {
		t.Run(name, func(t *testing.T) {
			g, err := x.Check(t.Context(), wrong, name)
			require.Equal(t, ErrNoToken, err)
			require.Equal(t, Grant{}, g)
		})
	}
}

func TestWrongTokensOfTheIssuerAreFailedSignIns(t *testing.T) {
	t.Parallel()
	x, p := issued(t)
	right := p.token(nil)
	x.accepts(right)
	for range failuresAllowed {
		x.refuses(ErrNoToken, "eyJ.e30.x", "192.0.2.1:1")
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	asked := p.asked.Load()
	x.hand.forward(Window / 2) // not enough to be forgiven one
	for _, wrong := range []string{"eyJ.e30.x", unknown(), p.signed(jose.RS256, "new", other, p.claims(nil))} {
		_, err := x.Check(t.Context(), wrong, "192.0.2.1:2")
		var many *TooManyError
		require.ErrorAs(t, err, &many)
	}
	require.Equal(t, asked, p.asked.Load(), "it makes the server ask for no keys")
	x.accepts(right) // of which the process knows the key; see TestWhoseTokenIsRight...
}

func TestTheIssuerChangesItsKey(t *testing.T) {
	x, p := issued(t)
	old := p.token(nil)
	x.accepts(old)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	next := p.signed(jose.ES256, "next", key, p.claims(nil))
	x.refuses(ErrNoToken, next, "192.0.2.1")
	x.hand.forward(Window) // the keys are asked for at most so often
	x.refuses(ErrNoToken, next, "192.0.2.1")
	asked := p.asked.Load()
	require.EqualValues(t, 2, asked)
	p.publish("next", key)
	for range 5 {
		x.refuses(ErrNoToken, next, "192.0.2.1")
	}
	require.Equal(t, asked, p.asked.Load())
	x.hand.forward(Window)
	x.accepts(next)
	x.refuses(ErrNoToken, old, "192.0.2.1")
	require.Equal(t, asked+1, p.asked.Load())

	p.publish("rsa", rsaKey()) // it withdraws the other one
	x.accepts(next)
	x.hand.forward(keysFresh)
	x.accepts(next) // and has the keys read meanwhile
	require.NoError(t, x.issuer.keys.reads.Wait(t.Context()))
	x.refuses(ErrNoToken, next, "192.0.2.1")
	x.accepts(old)
	p.publish("next", key)
	x.hand.forward(keysStale * keysFresh)
	x.refuses(ErrNoToken, old, "192.0.2.1") // nobody asked for so long that it waits
	x.accepts(next)
}

// The request is over as soon as the issuer is asked, which then never answers.
func TestNobodyWhoseKeyIsKnownWaitsWhileItIsReadAgain(t *testing.T) {
	x, p := issued(t)
	text := p.token(nil)
	x.accepts(text)
	ctx, cancel := context.WithCancelCause(t.Context())
	asked, over := make(chan struct{}, 10), make(chan struct{})
	t.Cleanup(func() { close(over) })
	p.does(func(_ http.ResponseWriter, r *http.Request) {
		cancel(errors.New("it waits"))
		asked <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-over:
		}
	})
	x.hand.forward(keysStale*keysFresh - 1)
	_, err := x.Check(ctx, text, "192.0.2.1")
	require.NoError(t, err)
	<-asked
	x.accepts(text)
}

// While the issuer does not answer, whoever has a token with a known key goes on, and nobody else is told that
// the token is wrong.
func TestTheIssuerIsAway(t *testing.T) {
	t.Parallel()
	x, p := issued(t)
	text := p.token(nil)
	for name, answer := range map[string]http.HandlerFunc{
		"an error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"too much": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, maxKeysBytes+1)) },
		"no keys":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"keys": []}`)) },
		"a page":   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`<html>`)) },
		"only a secret": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"keys": [{"kty": "oct", "kid": "rsa", "k": "c2VjcmV0"}, {"kty": "new"}]}`))
		},
		"elsewhere": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/keys", http.StatusFound) },
		"cut off":   func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		p.does(answer)
		x.hand.forward(keysKept) // whatever was known
		for range 2 * failuresAllowed {
			g, err := x.Check(t.Context(), text, "192.0.2.1")
			require.ErrorIs(t, err, ErrNoKeys, name)
			require.Equal(t, Grant{}, g)
		}
		require.Contains(t, x.log.String(), "could not read the keys of the issuer")
	}
	p.does(nil)
	x.hand.forward(Window)
	x.accepts(text)
	p.does(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	x.hand.forward(keysKept - 1)
	x.accepts(text)
	x.hand.forward(1)
	_, err := x.Check(t.Context(), text, "192.0.2.1")
	require.ErrorIs(t, err, ErrNoKeys, "after a day nobody knows whether the key is still right")
}

// A host that takes connections and says nothing costs each check at most the limit of one call.
func TestAnIssuerThatIsSilentHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	x, p := issued(t)
	text := p.token(nil)
	x.accepts(text)
	x.issuer.keys.callTime = keysTimeout
	asked := make(chan struct{}, 10)
	over := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(over) }))
	p.does(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-over:
		}
	})
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	x.hand.forward(keysFresh)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the client has gone")
	done := make(chan error, 1)
	go func() {
		_, err := x.Check(ctx, p.signed(jose.RS256, "new", other, p.claims(nil)), "192.0.2.1")
		done <- err
	}()
	<-asked
	cancel(gone)
	require.ErrorIs(t, <-done, gone, "it does not wait longer than its request")
	_, err = x.Check(t.Context(), p.signed(jose.RS256, "new", other, p.claims(nil)), "192.0.2.1")
	require.ErrorIs(t, err, ErrNoKeys, "the call has a limit of its own")
	x.hand.forward(Window)
	x.accepts(text) // while another read goes on, for which it does not wait
	<-asked
	x.accepts(text)
}

func TestKeysOfAFileAreReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jwks.json")
	write := func(data string) { require.NoError(t, os.WriteFile(path, []byte(data), 0o600)) }
	write("{")
	x, p := issued(t, func(i *Issuer) { i.JWKS = path })
	text := p.token(nil)
	x.refuses(ErrNoKeys, text, "192.0.2.1")
	pair, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{KeyID: "rsa", Key: rsaKey()}}}) // as one has it from a tool
	require.NoError(t, err)
	write(string(pair))
	x.hand.forward(Window)
	x.accepts(text)
	write(`{"keys": "none"}`)
	x.hand.forward(Window)
	x.accepts(text) // the old ones count while the new ones cannot be read
	require.NoError(t, x.issuer.keys.reads.Wait(t.Context()))
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	next, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{KeyID: "next", Key: other.Public()}}})
	require.NoError(t, err)
	write(string(next))
	x.hand.forward(Window)
	x.accepts(p.signed(jose.ES256, "next", other, p.claims(nil)))
	x.refuses(ErrNoToken, text, "192.0.2.1")
	require.Zero(t, p.asked.Load())
}

func TestAnIssuerIsCheckedBeforeItIsUsed(t *testing.T) {
	right := Issuer{URL: "https://id.example.org", JWKS: "keys.json", Audience: "a", Roles: map[string]string{"x": "viewer"}}
	require.NoError(t, right.Check())
	for _, url := range []string{"https://id.example.org/keys", "http://127.0.0.1:1/keys", "http://[::1]/keys", "http://localhost/keys"} {
		i := right
		i.JWKS = url
		require.NoError(t, i.Check(), url)
	}
	for field, change := range map[string]func(*Issuer){
		"issuer.url": func(i *Issuer) { i.URL = "" }, "issuer.audience": func(i *Issuer) { i.Audience = "" },
		"issuer.jwks is required": func(i *Issuer) { i.JWKS = "" }, `issuer.jwks is "http://id.example.org`: func(i *Issuer) { i.JWKS = "http://id.example.org/keys" },
		`issuer.jwks is "https://"`: func(i *Issuer) { i.JWKS = "https://" },
		"issuer.roles has 0 values": func(i *Issuer) { i.Roles = nil }, `issuer.roles is "king"`: func(i *Issuer) { i.Roles = map[string]string{"x": "king"} },
		"issuer.roles maps an empty": func(i *Issuer) { i.Roles = map[string]string{"": "viewer"} },
	} {
		i := right
		change(&i)
		err := i.Check()
		require.ErrorIs(t, err, model.ErrInvalid, field)
		require.ErrorContains(t, err, field)
	}
}
