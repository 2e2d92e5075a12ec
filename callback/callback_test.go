package callback_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/callback"
)

var (
	now     = time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	oldKey  = callback.Key{AccessKey: "shop", Secret: "the old secret"}
	newKey  = callback.Key{AccessKey: "shop-2026", Secret: "the new secret"}
	foreign = callback.Key{AccessKey: "shop", Secret: "somebody else's"}
	body    = []byte(`{"ext":{"order":17},"result":42}`)
)

// signed is a request as the sender makes it.
func signed(t *testing.T, at time.Time, keys ...callback.Key) *http.Request {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/hook", bytes.NewReader(body))
	require.NoError(t, callback.Sign(r.Header, "8f14e45f", at, body, keys...))
	r.Header.Set(callback.HeaderTask, "-/order/a%20b")
	return r
}

func verify(r *http.Request, keys ...callback.Key) (*callback.Delivery, error) {
	return callback.Verifier{Keys: keys, Now: func() time.Time { return now }}.Verify(r)
}

func TestWhatWasSignedIsTaken(t *testing.T) {
	d, err := verify(signed(t, now, newKey), newKey)
	require.NoError(t, err)
	require.Equal(t, &callback.Delivery{ID: "8f14e45f", At: now, Key: newKey, Task: "-/order/a b", Body: body}, d)
}

// The example of the specification of Standard Webhooks, as its libraries test it.
func TestSignatureIsThatOfStandardWebhooks(t *testing.T) {
	h := http.Header{}
	key := callback.Key{AccessKey: "any", Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
	require.NoError(t, callback.Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`), key))
	require.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", h.Get("webhook-signature"))
	require.Equal(t, "1614265330", h.Get("webhook-timestamp"))
}

func TestKeysCanBeChangedOneSideAfterTheOther(t *testing.T) {
	for name, c := range map[string]struct{ sender, receiver []callback.Key }{
		"before":                     {[]callback.Key{oldKey}, []callback.Key{oldKey}},
		"the receiver knows both":    {[]callback.Key{oldKey}, []callback.Key{newKey, oldKey}},
		"the sender signs with both": {[]callback.Key{newKey, oldKey}, []callback.Key{newKey, oldKey}},
		"the receiver forgot one":    {[]callback.Key{newKey, oldKey}, []callback.Key{newKey}},
		"the receiver is the last":   {[]callback.Key{newKey, oldKey}, []callback.Key{oldKey}},
		"after":                      {[]callback.Key{newKey}, []callback.Key{newKey}},
		"a secret without a name":    {[]callback.Key{newKey}, []callback.Key{{Secret: newKey.Secret}}},
	} {
		_, err := verify(signed(t, now, c.sender...), c.receiver...)
		require.NoError(t, err, name)
	}
}

func TestForgeriesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*http.Request)
		keys   []callback.Key
		want   error
		status int
	}{
		"another secret":   {nil, []callback.Key{foreign}, callback.ErrSignature, 401},
		"another name":     {nil, []callback.Key{{AccessKey: "other", Secret: newKey.Secret}}, callback.ErrSignature, 401},
		"no key at all":    {nil, nil, callback.ErrSignature, 401},
		"another body":     {func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(`{"result":43}`)) }, []callback.Key{newKey}, callback.ErrSignature, 401},
		"another id":       {func(r *http.Request) { r.Header.Set(callback.HeaderID, "other") }, []callback.Key{newKey}, callback.ErrSignature, 401},
		"another time":     {func(r *http.Request) { r.Header.Set(callback.HeaderTimestamp, fmt.Sprint(now.Unix()+1)) }, []callback.Key{newKey}, callback.ErrSignature, 401},
		"a shifted dot":    {func(r *http.Request) { r.Header.Set(callback.HeaderID, "8f14e45f.1") }, []callback.Key{newKey}, callback.ErrHeaders, 400},
		"no id":            {func(r *http.Request) { r.Header.Del(callback.HeaderID) }, []callback.Key{newKey}, callback.ErrHeaders, 400},
		"no time":          {func(r *http.Request) { r.Header.Del(callback.HeaderTimestamp) }, []callback.Key{newKey}, callback.ErrHeaders, 400},
		"no signature":     {func(r *http.Request) { r.Header.Del(callback.HeaderSignature) }, []callback.Key{newKey}, callback.ErrHeaders, 400},
		"another scheme":   {func(r *http.Request) { r.Header.Set(callback.HeaderSignature, "v1a,AAAA") }, []callback.Key{newKey}, callback.ErrHeaders, 400},
		"an empty one":     {func(r *http.Request) { r.Header.Set(callback.HeaderSignature, "v1,") }, []callback.Key{newKey}, callback.ErrSignature, 401},
		"a name more":      {func(r *http.Request) { r.Header.Set(callback.HeaderAccessKey, "shop shop-2026") }, []callback.Key{oldKey}, callback.ErrSignature, 401},
		"the name removed": {func(r *http.Request) { r.Header.Del(callback.HeaderAccessKey) }, []callback.Key{newKey}, callback.ErrSignature, 401},
	} {
		r := signed(t, now, newKey)
		if c.change != nil {
			c.change(r)
		}
		_, err := verify(r, c.keys...)
		require.ErrorIs(t, err, c.want, name)
		require.Equal(t, c.status, callback.Status(err), name)
	}
}

func TestAnEmptySecretVerifiesNothing(t *testing.T) {
	_, err := verify(signed(t, now, newKey), callback.Key{})
	require.ErrorContains(t, err, "the secret is empty")
}

func TestReplaysAreRefusedInBothDirections(t *testing.T) {
	for age, want := range map[time.Duration]error{
		5 * time.Minute: nil, 5*time.Minute + time.Second: callback.ErrTime,
		-5 * time.Minute: nil, -5*time.Minute - time.Second: callback.ErrTime,
		1 << 62: callback.ErrTime,
	} {
		_, err := verify(signed(t, now.Add(-age), newKey), newKey)
		require.ErrorIs(t, err, want, "signed %v ago", age)
	}
	narrow := callback.Verifier{Keys: []callback.Key{newKey}, Window: time.Second, Now: func() time.Time { return now }}
	_, err := narrow.Verify(signed(t, now.Add(-2*time.Second), newKey))
	require.ErrorIs(t, err, callback.ErrTime)
	_, err = callback.Verify(signed(t, time.Now(), newKey), newKey)
	require.NoError(t, err, "by default the machine's clock")
}

func TestBodyIsReadToItsLimit(t *testing.T) {
	v := callback.Verifier{Keys: []callback.Key{newKey}, Now: func() time.Time { return now }, BodyLimit: int64(len(body))}
	_, err := v.Verify(signed(t, now, newKey))
	require.NoError(t, err)
	v.BodyLimit--
	_, err = v.Verify(signed(t, now, newKey))
	require.ErrorIs(t, err, callback.ErrTooLarge)
	require.Equal(t, 413, callback.Status(err))
}

func TestKeysArePrintedWithoutTheirSecrets(t *testing.T) {
	require.Equal(t, "shop:*** [shop:***] callback.Key(shop:***)", fmt.Sprintf("%v %v %#v", oldKey, []callback.Key{oldKey}, oldKey))
}

func TestSecretsThatPromiseBase64MustBe(t *testing.T) {
	require.NoError(t, callback.CheckSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
	require.Error(t, callback.CheckSecret("whsec_not base64!"))
	require.Error(t, callback.CheckSecret("whsec_"))
	require.NoError(t, callback.CheckSecret("any other text"))
}

func FuzzVerifyTakesNothingUnsigned(f *testing.F) {
	f.Add("8f14e45f", "1769850000", "v1,AAAA", "shop", []byte(`{}`))
	f.Add("", "-1", "v1, v1,= v2,x", " ", []byte{})
	f.Fuzz(func(t *testing.T, id, stamp, signature, access string, body []byte) {
		r := &http.Request{Header: http.Header{
			callback.HeaderID: {id}, callback.HeaderTimestamp: {stamp},
			callback.HeaderSignature: {signature}, callback.HeaderAccessKey: {access},
		}, Body: io.NopCloser(bytes.NewReader(body))}
		_, err := verify(r, newKey, callback.Key{Secret: oldKey.Secret})
		require.Error(t, err)
		require.NotEqual(t, http.StatusOK, callback.Status(err))
	})
}
