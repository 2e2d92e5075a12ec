package callback

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
)

// Why a request is refused.
var (
	errHeaders   = errors.New("a callback header is missing or malformed")
	errSignature = errors.New("no known key signed the callback")
	errTime      = errors.New("the callback was signed too long ago, or in the future")
	errTooLarge  = errors.New("the callback body is too large")
)

const (
	defaultWindow    = 5 * time.Minute
	defaultBodyLimit = 8 << 20 // the largest arguments and result, as JSON with every character escaped
	// maxSignatures bounds the work that a forged header can cause.
	maxSignatures = 16
)

// Delivery is a callback with a valid signature.
type Delivery struct {
	// ID names the delivered end of one life of one task, or one event of a flow. Every repetition
	// has the same ID.
	ID string
	// At is when the sender signed this request, in whole seconds.
	At time.Time
	// Key is the key that signed it, as passed to [Verify].
	Key Key
	// Task is the id of the task as the sender gives it, unsigned; "" if it is missing, as for flows.
	Task string
	// Generation is the number of the task's life as the sender gives it, unsigned; 0 if it is missing, as
	// for flows. A retry or a new send of an ended task begins a life with a higher number. Callbacks of two
	// lives can arrive in either order, so drop one whose number is lower than one that you have handled.
	Generation int64
	// Body is the body as it was signed: the JSON of a [Body].
	Body []byte
}

// Body is the JSON body of a callback about a task, a flow or a plan.
type Body struct {
	// Ext holds the task's arguments, which seed 000 names ext, with *** for credentials. For the HTTP
	// target of a periodic rule it is the ext of the rule.
	Ext json.RawMessage `json:"ext"`
	// Result is the result of a success.
	Result json.RawMessage `json:"result,omitempty"`
	// TaskID and ErrorInfo are the task and its last error. Both are empty for a success.
	TaskID    string `json:"task_id,omitempty"`
	ErrorInfo string `json:"error_info,omitempty"`
	// Status is Pending if a person must decide what follows the failure, otherwise empty.
	Status string `json:"status,omitempty"`
	// FlowID and Node are set for a flow. Then Status is PENDING if a person must resolve the node,
	// or FINISH if the flow is over; the node is its last one. Ext is that of the flow.
	FlowID string `json:"flow_id,omitempty"`
	Node   string `json:"node,omitempty"`
	// PlanID, RequestID and Step are set for a plan. Then Status is ERROR if the plan must be reset, or
	// FINISH if it is over, and ErrorInfo says why; Ext is empty.
	PlanID    string `json:"plan_id,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	Step      int64  `json:"step,omitempty"`
}

// Verifier checks callbacks like [Verify], with bounds of its own. It is safe for concurrent use.
type Verifier struct {
	// Keys are the known keys: during a change of keys the old one and the new one.
	Keys []Key
	// Window is how far the time of signing may be from now, in both directions.
	// Defaults to 5 minutes.
	Window time.Duration
	// BodyLimit is how many bytes a body may have. Defaults to 8 MiB.
	BodyLimit int64
	// Now returns the receiver's time. Defaults to the machine's clock.
	Now func() time.Time
}

// Verify reads the request's body and checks that one of the keys signed it, at most five minutes
// ago. It consumes the body: take it from the Delivery. [Status] turns an error into the answer.
//
// Within these five minutes anybody who has seen a callback can repeat it; remember the ids to
// notice that.
func Verify(r *http.Request, keys ...Key) (*Delivery, error) { return Verifier{Keys: keys}.Verify(r) }

// Verify is the function [Verify] with the verifier's bounds.
func (v Verifier) Verify(r *http.Request) (*Delivery, error) {
	id, stamp := r.Header.Get(headerID), r.Header.Get(headerTimestamp)
	if id == "" || strings.Contains(id, ".") { // a dot would let id and time change places
		return nil, fmt.Errorf("%w: %s is %q", errHeaders, headerID, cut(id))
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is %q; want seconds since 1970", errHeaders, headerTimestamp, cut(stamp))
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
	generation, err := strconv.ParseInt(r.Header.Get(headerGeneration), 10, 64)
	if err != nil { // it is not there, or not from the sender
		generation = 0
	}
	return &Delivery{ID: id, At: at, Key: key, Task: unescaped(r.Header.Get(headerTask)), Generation: generation, Body: body}, nil
}

func (v Verifier) inTime(at time.Time) error {
	window, now := v.Window, v.Now
	if window <= 0 {
		window = defaultWindow
	}
	if now == nil {
		now = clock.System().Now
	}
	if age := now().Sub(at); age > window || age < -window {
		return fmt.Errorf("%w: %v ago; at most %v in either direction is allowed", errTime, age.Round(time.Second), window)
	}
	return nil
}

func (v Verifier) body(r *http.Request) ([]byte, error) {
	limit := v.BodyLimit
	if limit <= 0 {
		limit = defaultBodyLimit
	}
	if r.Body == nil {
		return nil, nil
	}
	limit = min(limit, math.MaxInt64-1)
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the body of a callback: %w", err)
	case int64(len(body)) > limit:
		return nil, fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)
	default:
		return body, nil
	}
}

// signer returns the key that signed.
func (v Verifier) signer(h http.Header, id, stamp string, body []byte) (Key, error) {
	var given [][]byte
	for _, s := range strings.Fields(h.Get(headerSignature)) {
		text, ours := strings.CutPrefix(s, scheme)
		mac, err := base64.StdEncoding.DecodeString(text)
		if ours && err == nil && len(given) < maxSignatures { // others are of other schemes
			given = append(given, mac)
		}
	}
	if len(given) == 0 {
		return Key{}, fmt.Errorf("%w: %s has no %s signature", errHeaders, headerSignature, strings.TrimSuffix(scheme, ","))
	}
	names := strings.Fields(h.Get(headerAccessKey))
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
	return Key{}, errSignature
}

// Status is the HTTP status of the answer to a request for which Verify returned err: 200 for nil,
// 401 for a bad signature or time, 413 for a body that is too large, 400 for anything else.
func Status(err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, errSignature), errors.Is(err, errTime):
		return http.StatusUnauthorized
	case errors.Is(err, errTooLarge):
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

// unescaped decodes a percent-encoded text; any other text stays as it is.
func unescaped(s string) string {
	if t, err := url.PathUnescape(s); err == nil {
		return t
	}
	return s
}
