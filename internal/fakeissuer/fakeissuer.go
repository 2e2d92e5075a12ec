// Package fakeissuer is an identity provider for tests: a key pair, its public key as a JSON Web Key Set, and
// tokens that it has signed. internal/access tests the checks of tokens; other packages need only right ones.
package fakeissuer

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"time"
)

// What every token has, unless its claims say otherwise.
const (
	URL      = "https://id.example.org"
	Audience = "mscheduler"
	Subject  = "ann"
)

// Issuer is an identity provider.
type Issuer struct{ key ed25519.PrivateKey }

// New makes one with a new key.
func New() (*Issuer, error) {
	_, key, err := ed25519.GenerateKey(nil)
	return &Issuer{key}, err
}

// KeySet is its public key.
func (i *Issuer) KeySet() []byte {
	public, _ := i.key.Public().(ed25519.PublicKey)
	return fmt.Appendf(nil, `{"keys": [{"kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": "k", "x": %q}]}`, base64.RawURLEncoding.EncodeToString(public))
}

// Token is one that is valid for an hour, with the claims.
func (i *Issuer) Token(claims map[string]any) (string, error) {
	all := map[string]any{"iss": URL, "aud": Audience, "sub": Subject, "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	payload, err := json.Marshal(all)
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"EdDSA","kid":"k"}`)) + "." + encode(payload)
	return text + "." + encode(ed25519.Sign(i.key, []byte(text))), nil
}
