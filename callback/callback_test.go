package callback

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	now     = time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	oldKey  = Key{AccessKey: "shop", Secret: "the old secret"}
	newKey  = Key{AccessKey: "shop-2026", Secret: "the new secret"}
	foreign = Key{AccessKey: "shop", Secret: "somebody else's"}
	body    = []byte(`{"ext":{"order":17},"result":42}`)
)

// signed is a request as the sender makes it.
func signed(t *testing.T, at time.Time, keys ...Key) *http.Request {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/hook", bytes.NewReader(body))
	require.NoError(t, Sign(r.Header, "8f14e45f", at, body, keys...))
	r.Header.Set(headerTask, "-/order/a%20b")
	r.Header.Set(headerGeneration, "2")
	return r
}

func verify(r *http.Request, keys ...Key) (*Delivery, error) {
	return Verifier{Keys: keys, Now: func() time.Time { return now }}.Verify(r)
}

func TestWhatWasSignedIsTaken(t *testing.T) {
	d, err := verify(signed(t, now, newKey), newKey)
	require.NoError(t, err)
	require.Equal(t, &Delivery{ID: "8f14e45f", At: now, Key: newKey, Task: "-/order/a b", Generation: 2, Body: body}, d)
}

// The example of the specification of Standard Webhooks, as its libraries test it.
func TestSignatureIsThatOfStandardWebhooks(t *testing.T) {
	h := http.Header{}
	key := Key{AccessKey: "any", Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
	require.NoError(t, Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`), key))
	require.Equal(t, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", h.Get("webhook-signature"))
	require.Equal(t, "1614265330", h.Get("webhook-timestamp"))
}

func TestKeysCanBeChangedOneSideAfterTheOther(t *testing.T) {
	for name, c := range map[string]struct{ sender, receiver []Key }{
		"before":                     {[]Key{oldKey}, []Key{oldKey}},
		"the receiver knows both":    {[]Key{oldKey}, []Key{newKey, oldKey}},
		"the sender signs with both": {[]Key{newKey, oldKey}, []Key{newKey, oldKey}},
		"the receiver forgot one":    {[]Key{newKey, oldKey}, []Key{newKey}},
		"the receiver is the last":   {[]Key{newKey, oldKey}, []Key{oldKey}},
		"after":                      {[]Key{newKey}, []Key{newKey}},
		"a secret without a name":    {[]Key{newKey}, []Key{{Secret: newKey.Secret}}},
	} {
		_, err := verify(signed(t, now, c.sender...), c.receiver...)
		require.NoError(t, err, name)
	}
}

func TestForgeriesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*http.Request)
		keys   []Key
		want   error
		status int
	}{
		"another secret":   {nil, []Key{foreign}, errSignature, 401},
		"another name":     {nil, []Key{{AccessKey: "other", Secret: newKey.Secret}}, errSignature, 401},
		"no key at all":    {nil, nil, errSignature, 401},
		"another body":     {func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(`{"result":43}`)) }, []Key{newKey}, errSignature, 401},
		"another id":       {func(r *http.Request) { r.Header.Set(headerID, "other") }, []Key{newKey}, errSignature, 401},
		"another time":     {func(r *http.Request) { r.Header.Set(headerTimestamp, fmt.Sprint(now.Unix()+1)) }, []Key{newKey}, errSignature, 401},
		"a shifted dot":    {func(r *http.Request) { r.Header.Set(headerID, "8f14e45f.1") }, []Key{newKey}, errHeaders, 400},
		"no id":            {func(r *http.Request) { r.Header.Del(headerID) }, []Key{newKey}, errHeaders, 400},
		"no time":          {func(r *http.Request) { r.Header.Del(headerTimestamp) }, []Key{newKey}, errHeaders, 400},
		"no signature":     {func(r *http.Request) { r.Header.Del(headerSignature) }, []Key{newKey}, errHeaders, 400},
		"another scheme":   {func(r *http.Request) { r.Header.Set(headerSignature, "v1a,AAAA") }, []Key{newKey}, errHeaders, 400},
		"an empty one":     {func(r *http.Request) { r.Header.Set(headerSignature, "v1,") }, []Key{newKey}, errSignature, 401},
		"a name more":      {func(r *http.Request) { r.Header.Set(headerAccessKey, "shop shop-2026") }, []Key{oldKey}, errSignature, 401},
		"the name removed": {func(r *http.Request) { r.Header.Del(headerAccessKey) }, []Key{newKey}, errSignature, 401},
	} {
		r := signed(t, now, newKey)
		if c.change != nil {
			c.change(r)
		}
		_, err := verify(r, c.keys...)
		require.ErrorIs(t, err, c.want, name)
		require.Equal(t, c.status, Status(err), name)
	}
}

func TestAnEmptySecretVerifiesNothing(t *testing.T) {
	_, err := verify(signed(t, now, newKey), Key{})
	require.ErrorContains(t, err, "the secret is empty")
}

func TestReplaysAreRefusedInBothDirections(t *testing.T) {
	for age, want := range map[time.Duration]error{
		5 * time.Minute: nil, 5*time.Minute + time.Second: errTime,
		-5 * time.Minute: nil, -5*time.Minute - time.Second: errTime,
		1 << 62: errTime,
	} {
		_, err := verify(signed(t, now.Add(-age), newKey), newKey)
		require.ErrorIs(t, err, want, "signed %v ago", age)
	}
	narrow := Verifier{Keys: []Key{newKey}, Window: time.Second, Now: func() time.Time { return now }}
	_, err := narrow.Verify(signed(t, now.Add(-2*time.Second), newKey))
	require.ErrorIs(t, err, errTime)
	_, err = Verify(signed(t, time.Now(), newKey), newKey)
	require.NoError(t, err, "by default the machine's clock")
}

func TestBodyIsReadToItsLimit(t *testing.T) {
	v := Verifier{Keys: []Key{newKey}, Now: func() time.Time { return now }, BodyLimit: int64(len(body))}
	_, err := v.Verify(signed(t, now, newKey))
	require.NoError(t, err)
	v.BodyLimit--
	_, err = v.Verify(signed(t, now, newKey))
	require.ErrorIs(t, err, errTooLarge)
	require.Equal(t, 413, Status(err))
	v.BodyLimit = math.MaxInt64
	d, err := v.Verify(signed(t, now, newKey))
	require.NoError(t, err)
	require.Len(t, d.Body, len(body))
}

func TestKeysArePrintedWithoutTheirSecrets(t *testing.T) {
	require.Equal(t, "shop:*** [shop:***] callback.Key(shop:***)", fmt.Sprintf("%v %v %#v", oldKey, []Key{oldKey}, oldKey))
}

func TestSecretsThatPromiseBase64MustBe(t *testing.T) {
	for secret, good := range map[string]bool{
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": true, "whsec_not base64!": false, "whsec_": false, "any other text": true,
	} {
		require.Equal(t, good, Sign(http.Header{}, "id", now, nil, Key{Secret: secret}) == nil, secret)
	}
}

func FuzzVerifyTakesNothingUnsigned(f *testing.F) {
	f.Add("8f14e45f", "1769850000", "v1,AAAA", "shop", []byte(`{}`))
	f.Add("", "-1", "v1, v1,= v2,x", " ", []byte{})
	f.Fuzz(func(t *testing.T, id, stamp, signature, access string, body []byte) {
		r := &http.Request{Header: http.Header{
			headerID: {id}, headerTimestamp: {stamp},
			headerSignature: {signature}, headerAccessKey: {access},
		}, Body: io.NopCloser(bytes.NewReader(body))}
		_, err := verify(r, newKey, Key{Secret: oldKey.Secret})
		require.Error(t, err)
		require.NotEqual(t, http.StatusOK, Status(err))
	})
}
