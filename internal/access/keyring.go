package access

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/groupcommit"
	"github.com/mscheduler/mscheduler/internal/httpcall"
)

const (
	// keysFresh is how old keys of a URL get before they are read again. Those of a file are read again after
	// [Window]. So are both at a token whose key is unknown.
	keysFresh = 5 * time.Minute
	// keysStale times as old as that, they no longer count until they are read, unless that fails.
	keysStale = 2
	// keysKept is how long keys count while their issuer does not answer.
	keysKept = 24 * time.Hour

	keysTimeout  = 5 * time.Second // of one read
	maxKeysBytes = 1 << 20
	maxKeys      = 100
	keyWaits     = 1000 // checks that wait for one read
)

// keyring holds the public keys of an issuer. It reads them when a check needs them, one read at a time and at
// most one each [Window], however many tokens with unknown keys arrive.
//
// The library's own set of remote keys is not used: it keeps keys that the issuer has withdrawn, reads answers
// of any size, and asks the issuer for each unknown key.
type keyring struct {
	from     string
	caller   *httpcall.Caller // nil = a file
	fresh    time.Duration
	clock    clock.Clock
	log      zerolog.Logger
	reads    *groupcommit.Queue[chan<- struct{}]
	callTime time.Duration // of one read

	mu    sync.Mutex
	keys  []jose.JSONWebKey
	at    clock.Instant // before the last read that succeeded
	tried clock.Instant // before the last read
	err   error         // of the last read
	asked bool          // a check asked for a read that has not ended
}

func newKeyring(from string, remote bool, c clock.Clock, now func() time.Time, log zerolog.Logger) *keyring {
	k := &keyring{from: from, fresh: Window, clock: c, log: log, callTime: keysTimeout}
	if remote {
		k.fresh = keysFresh
		k.caller = httpcall.New(httpcall.Reach{AllowLinkLocal: true, Proxy: http.ProxyFromEnvironment}, nil, now) // the operator names the host
	}
	k.reads = groupcommit.New(keyWaits, k.answer)
	return k
}

// of returns the keys with which a token may be signed; none = the issuer has no such key. Keys that should be
// read again count, and are read meanwhile. So in a process that checks tokens all the time, nobody whose key is
// known waits for the issuer. It waits only if it is patient, for an unknown key and for those that nobody asked
// for lately, which the issuer may have withdrawn.
func (k *keyring) of(ctx context.Context, h jose.Header, patient bool) ([]crypto.PublicKey, error) {
	keys, due, stale, failing := k.known(h)
	switch {
	case len(keys) > 0 && !due, len(keys) == 0 && !patient:
		return keys, nil
	case len(keys) > 0 && (!stale || failing || !patient):
		if k.begins() {
			_ = k.reads.Put(context.WithoutCancel(ctx), make(chan struct{})) // nobody closes the queue
		}
		return keys, nil
	}
	k.begins()
	done := make(chan struct{})
	if err := k.reads.Put(ctx, done); err != nil {
		k.ended() // perhaps nobody else asked; if somebody did, one more may
		return nil, err
	}
	select {
	case <-done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if keys, _, _, failing = k.known(h); len(keys) == 0 && failing {
		return nil, ErrNoKeys
	}
	return keys, nil
}

// known are the keys for a token that the process has, whether they should be read again, whether they should
// have been for long, and whether that failed the last time.
func (k *keyring) known(h jose.Header) (keys []crypto.PublicKey, due, stale, failing bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	failing = k.err != nil
	if k.at == (clock.Instant{}) || k.at.Since(k.clock) >= keysKept {
		return nil, true, true, failing
	}
	age := k.at.Since(k.clock)
	for _, key := range k.keys {
		if (h.KeyID == "" || h.KeyID == key.KeyID) && (key.Algorithm == "" || key.Algorithm == h.Algorithm) {
			keys = append(keys, key.Key)
		}
	}
	return keys, age >= k.fresh && k.tried.Since(k.clock) >= Window, age >= keysStale*k.fresh, failing
}

// begins says, when a check asks for a read, whether it is the first.
func (k *keyring) begins() (first bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	first, k.asked = !k.asked, true
	return first
}

// ended lets the next check ask for a read.
func (k *keyring) ended() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = false
}

// answer reads the keys for a batch of checks, unless that was tried just now.
func (k *keyring) answer(batch []chan<- struct{}) {
	k.mu.Lock()
	due := k.tried == (clock.Instant{}) || k.tried.Since(k.clock) >= Window
	k.mu.Unlock()
	if due {
		at := clock.Read(k.clock)
		keys, err := k.read()
		k.mu.Lock()
		if k.tried, k.err = at, err; err == nil {
			k.keys, k.at = keys, at
		}
		k.mu.Unlock()
		if err != nil {
			k.log.Warn().Err(err).Msg("could not read the keys of the issuer; known ones count for a day")
		}
	}
	k.ended() // before anybody hears of it
	for _, done := range batch {
		close(done)
	}
}

func (k *keyring) read() ([]jose.JSONWebKey, error) {
	if k.caller == nil {
		info, err := os.Stat(k.from)
		switch {
		case err != nil:
			return nil, err
		case !info.Mode().IsRegular() || info.Size() > maxKeysBytes:
			return nil, fmt.Errorf("%s is no file of at most %d bytes", k.from, maxKeysBytes)
		}
		data, err := os.ReadFile(k.from)
		if err != nil {
			return nil, err
		}
		return parseKeys(data)
	}
	defer k.caller.Close() // the next call is minutes away
	ctx, cancel := context.WithTimeout(context.Background(), 2*k.callTime)
	defer cancel()
	none := 0
	a, err := k.caller.Do(ctx, httpcall.Call{Method: http.MethodGet, URL: k.from, Field: "issuer.jwks", Timeout: k.callTime, Keep: maxKeysBytes, Redirects: &none})
	switch {
	case err != nil:
		return nil, err
	case a.Truncated:
		return nil, fmt.Errorf("the answer has more than %d bytes", maxKeysBytes)
	}
	return parseKeys([]byte(a.Body))
}

// parseKeys reads a JSON Web Key Set. Keys of other kinds and for other uses are left out, as RFC 7517 has it.
func parseKeys(data []byte) (keys []jose.JSONWebKey, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("the keys are no JSON Web Key Set: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("the set has %d keys; at most %d are allowed", len(set.Keys), maxKeys)
	}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) != nil || key.Use != "" && key.Use != "sig" {
			continue
		}
		key = key.Public() // of a pair, only what verifies; nothing of a shared secret
		switch key.Key.(type) {
		case *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey:
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("the set has no public key for signatures")
	}
	return keys, nil
}

// isLoopback says whether a host is this machine.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
