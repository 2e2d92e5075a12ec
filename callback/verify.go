package callback

import (
	"crypto/hmac"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// Why a request was refused; the errors of [Verify] wrap one of them.
var (
	ErrHeaders   = errors.New("a header of the callback is missing or malformed")
	ErrSignature = errors.New("no signature of the callback is by a known key")
	ErrTime      = errors.New("the callback was signed too long ago, or in the future")
	ErrTooLarge  = errors.New("the body of the callback is too large")
)

// Defaults of a [Verifier].
const (
	DefaultWindow    = 5 * time.Minute
	DefaultBodyLimit = 8 << 20 // the largest arguments and result, as JSON with every character escaped
)

// maxSignatures bounds the work that a forged header can cause.
const maxSignatures = 16

// Delivery is a callback whose signature was checked.
type Delivery struct {
	// ID names what is delivered: the end of one life of one task. Every repetition has
	// the same one.
	ID string
	// At is when this try was signed, in whole seconds.
	At time.Time
	// Key is the one that signed it, as it was given to [Verify].
	Key Key
	// Task is the id of the task as the sender says; it is not signed. "" = not said.
	Task string
	// Body as it was signed: a JSON object.
	Body []byte
}

// Verifier checks callbacks with other bounds than [Verify] has. Zero fields are the
// defaults; it is safe for concurrent use.
type Verifier struct {
	// Keys that are known: during a change of keys the old one and the new one.
	Keys []Key
	// Window is how far the time of signing may be from now, in both directions.
	// Defaults to 5 minutes.
	Window time.Duration
	// BodyLimit is how many bytes a body may have. Defaults to 8 MiB.
	BodyLimit int64
	// Now is the receiver's time. Defaults to the machine's clock.
	Now func() time.Time
}

// Verify reads the request's body and checks that it was signed, by one of the keys, at
// most five minutes ago. The body is used up: take it from the Delivery. The error is one
// of the Err variables (errors.Is), or that of reading the body; [Status] is the answer.
//
// Who has seen a callback can send it once more for as long as the window is; remember
// the ids to notice that.
func Verify(r *http.Request, keys ...Key) (*Delivery, error) { return Verifier{Keys: keys}.Verify(r) }

// Verify is the function [Verify] with the verifier's bounds.
func (v Verifier) Verify(r *http.Request) (*Delivery, error) {
	id, stamp := r.Header.Get(HeaderID), r.Header.Get(HeaderTimestamp)
	if id == "" || strings.Contains(id, ".") { // a dot would let id and time change places
		return nil, fmt.Errorf("%w: %s is %q", ErrHeaders, HeaderID, cut(id))
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is %q; want seconds since 1970", ErrHeaders, HeaderTimestamp, cut(stamp))
	}
	at := time.Unix(seconds, 0).UTC()
	if err := v.inTime(at); err != nil {
		return nil, err
	}
	body, err := v.body(r)
	if err != nil {
		return nil, err
	}
	key, err := v.signer(r.Header, id, stamp, body)
	if err != nil {
		return nil, err
	}
	return &Delivery{ID: id, At: at, Key: key, Task: unescaped(r.Header.Get(HeaderTask)), Body: body}, nil
}

func (v Verifier) inTime(at time.Time) error {
	window, now := v.Window, v.Now
	if window <= 0 {
		window = DefaultWindow
	}
	if now == nil {
		now = clock.System().Now
	}
	if age := now().Sub(at); age > window || age < -window {
		return fmt.Errorf("%w: %v ago; at most %v either way are taken", ErrTime, age.Round(time.Second), window)
	}
	return nil
}

func (v Verifier) body(r *http.Request) ([]byte, error) {
	limit := v.BodyLimit
	if limit <= 0 {
		limit = DefaultBodyLimit
	}
	if r.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the body of a callback: %w", err)
	case int64(len(body)) > limit:
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	default:
		return body, nil
	}
}

// signer finds the key that signed.
func (v Verifier) signer(h http.Header, id, stamp string, body []byte) (Key, error) {
	var given [][]byte
	for _, s := range strings.Fields(h.Get(HeaderSignature)) {
		text, ours := strings.CutPrefix(s, scheme)
		mac, err := base64.StdEncoding.DecodeString(text)
		if ours && err == nil && len(given) < maxSignatures { // others are of other schemes
			given = append(given, mac)
		}
	}
	if len(given) == 0 {
		return Key{}, fmt.Errorf("%w: %s has no %s signature", ErrHeaders, HeaderSignature, strings.TrimSuffix(scheme, ","))
	}
	names := strings.Fields(h.Get(HeaderAccessKey))
	for _, k := range v.Keys {
		if k.AccessKey != "" && !slices.Contains(names, k.AccessKey) {
			continue
		}
		want, err := signature(k.Secret, id, stamp, body)
		if err != nil {
			return Key{}, fmt.Errorf("checking with the access key %s: %w", k.AccessKey, err)
		}
		for _, mac := range given {
			if hmac.Equal(mac, want) {
				return k, nil
			}
		}
	}
	return Key{}, ErrSignature
}

// Status is the answer that fits an error of Verify: 401 for a signature, 413 for a body
// that is too large, 400 for everything else; 200 for nil.
func Status(err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, ErrSignature), errors.Is(err, ErrTime):
		return http.StatusUnauthorized
	case errors.Is(err, ErrTooLarge):
		return http.StatusRequestEntityTooLarge
	default:
		return http.StatusBadRequest
	}
}

func cut(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

// unescaped is the text again; what nobody escaped stays as it is.
func unescaped(s string) string {
	if t, err := url.PathUnescape(s); err == nil {
		return t
	}
	return s
}
