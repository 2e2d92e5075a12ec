package secret

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/callback"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/model"
)

var (
	firstKey  = strings.Repeat("a1", keyBytes)
	secondKey = base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))
)

func box(t *testing.T, text string) *Box {
	t.Helper()
	b, err := Parse("secret_key", text)
	require.NoError(t, err)
	return b
}

func TestASealedSecretOpensAndIsNotToBeRead(t *testing.T) {
	b := box(t, firstKey)
	sealed, err := b.Seal("hunter2", "ak")
	require.NoError(t, err)
	require.True(t, Sealed(sealed))
	require.NotContains(t, sealed, "hunter2")
	plain, err := b.Open(sealed, "ak")
	require.NoError(t, err)
	require.Equal(t, "hunter2", plain)
	again, err := b.Seal("hunter2", "ak")
	require.NoError(t, err)
	require.NotEqual(t, sealed, again, "equal secrets must not be seen to be equal")
}

func TestASecretBelongsToItsAccessKey(t *testing.T) {
	sealed, err := box(t, firstKey).Seal("hunter2", "ak")
	require.NoError(t, err)
	_, err = box(t, firstKey).Open(sealed, "another")
	require.ErrorIs(t, err, ErrBroken)
}

func TestKeysRotate(t *testing.T) {
	old := box(t, firstKey)
	sealed, err := old.Seal("hunter2", "ak")
	require.NoError(t, err)
	both := box(t, secondKey+", "+firstKey)
	plain, err := both.Open(sealed, "ak")
	require.NoError(t, err)
	require.Equal(t, "hunter2", plain)
	resealed, err := both.Seal(plain, "ak")
	require.NoError(t, err)
	_, err = old.Open(resealed, "ak")
	require.ErrorIs(t, err, ErrUnknownKey, "the first key seals")
	_, err = box(t, secondKey).Open(resealed, "ak")
	require.NoError(t, err)
}

func TestKeysAreReadInEverySpelling(t *testing.T) {
	raw := []byte("\xff\xfe-a key of thirty-two bytes!!!!!")[:keyBytes]
	sealed, err := box(t, hex.EncodeToString(raw)).Seal("s", "")
	require.NoError(t, err)
	for _, text := range []string{
		strings.ToUpper(hex.EncodeToString(raw)), base64.StdEncoding.EncodeToString(raw),
		base64.RawURLEncoding.EncodeToString(raw), " " + base64.URLEncoding.EncodeToString(raw) + "\n",
	} {
		_, err := box(t, text).Open(sealed, "")
		require.NoError(t, err)
	}
	require.Nil(t, box(t, " "))
}

func TestABadKeyIsNamedAndNotRepeated(t *testing.T) {
	for _, text := range []string{"letmein", firstKey + "00", firstKey + ",", "," + firstKey, firstKey + ",letmein"} {
		_, err := Parse("secret_key", text)
		require.ErrorIs(t, err, model.ErrInvalid, text)
		require.ErrorContains(t, err, "secret_key")
		require.NotContains(t, err.Error(), "letmein")
	}
}

func TestDamagedTextsDoNotOpen(t *testing.T) {
	b := box(t, firstKey)
	sealed, err := b.Seal("hunter2", "ak")
	require.NoError(t, err)
	for i := len(sealed) - 1; i >= 0; i -= 3 {
		_, err := b.Open(sealed[:i], "ak")
		require.Error(t, err, sealed[:i])
	}
	_, err = b.Open("hunter2", "ak")
	require.ErrorIs(t, err, ErrBroken)
	var none *Box
	_, err = none.Open(sealed, "ak")
	require.ErrorIs(t, err, ErrNoKey)
	require.ErrorContains(t, err, "key id "+b.keys[0].id, "an operator looks for this key")
	_, err = none.Open("hunter2", "ak")
	require.ErrorIs(t, err, ErrBroken, "no key opens it")
}

func signedCallback(keys ...callback.Key) *model.Callback {
	return &model.Callback{
		Success:  &model.CallbackTarget{URL: "https://example.org/"},
		Security: &model.CallbackSecurity{Type: model.SecurityAKSK, Keys: keys},
	}
}

func TestACallbackIsSealedBeforeItIsStored(t *testing.T) {
	b := box(t, firstKey)
	c := signedCallback(callback.Key{AccessKey: "new", Secret: "one"}, callback.Key{AccessKey: "old", Secret: "two"})
	sealed, err := b.SealCallback("callback", c)
	require.NoError(t, err)
	require.Equal(t, "one", c.Security.Keys[0].Secret, "the caller's own is left alone")
	require.NoError(t, input.Callback(sealed))
	again, err := b.SealCallback("callback", sealed)
	require.NoError(t, err)
	require.Equal(t, sealed, again, "what is sealed stays so")
	keys, err := b.OpenKeys(sealed.Security.Keys)
	require.NoError(t, err)
	require.Equal(t, []callback.Key{{AccessKey: "new", Secret: "one"}, {AccessKey: "old", Secret: "two"}}, keys)
}

func TestTheLongestSecretFitsSealed(t *testing.T) {
	b := box(t, firstKey)
	sealed, err := b.SealCallback("callback", signedCallback(callback.Key{AccessKey: "ak", Secret: strings.Repeat("s", maxBytes)}))
	require.NoError(t, err)
	require.NoError(t, input.Callback(sealed))
}

func TestSecretsThatCannotBeKeptAreRefusedByTheirField(t *testing.T) {
	var none *Box
	foreign, err := box(t, secondKey).Seal("s", "ak")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		box    *Box
		secret string
		says   string
	}{
		"no key":          {none, "hunter2", "no secret key is set"},
		"not shown":       {box(t, firstKey), "***", "give the secret itself"},
		"another's":       {box(t, firstKey), foreign, "does not have"},
		"too long":        {box(t, firstKey), strings.Repeat("s", maxBytes+1), "at most 500"},
		"promises base64": {box(t, firstKey), "whsec_!", "not base64"},
	} {
		_, err := c.box.SealCallback("options.callback", signedCallback(callback.Key{AccessKey: "ak", Secret: c.secret}))
		require.ErrorIs(t, err, model.ErrInvalid, name)
		require.ErrorContains(t, err, "options.callback.security.keys[0].sk", name)
		require.ErrorContains(t, err, c.says, name)
		require.NotContains(t, err.Error(), "hunter2")
	}
	unsigned, err := none.SealCallback("callback", &model.Callback{Success: &model.CallbackTarget{URL: "https://example.org/"}})
	require.NoError(t, err, "without secrets no key is needed")
	require.NotNil(t, unsigned)
}

func TestNothingShowsASecret(t *testing.T) {
	c := signedCallback(callback.Key{AccessKey: "ak", Secret: "hunter2"})
	for _, text := range []string{fmt.Sprintf("%v %+v %#v", c, *c, c.Security.Keys), fmt.Sprint(c.Security), c.String()} {
		require.NotContains(t, text, "hunter2")
	}
	data, err := bson.Marshal(bson.D{{Key: "options", Value: bson.D{{Key: "callback", Value: c}}}, {Key: "applied", Value: bson.D{{Key: "callback", Value: c}}}, {Key: "args", Value: "untouched"},
		{Key: "worker_states", Value: bson.A{bson.D{{Key: "options", Value: bson.D{{Key: "callback", Value: c}}}}}}})
	require.NoError(t, err)
	var doc bson.D
	require.NoError(t, bson.Unmarshal(data, &doc))
	Hide(doc)
	text := fmt.Sprint(doc)
	require.NotContains(t, text, "hunter2")
	require.Contains(t, text, "ak")
	require.Equal(t, 3, strings.Count(text, "***"))
	require.Contains(t, text, "untouched")
}

func TestNoDocumentOfARuleShowsASecret(t *testing.T) {
	b := box(t, firstKey)
	sealed, err := b.Seal("hunter2", "ak")
	require.NoError(t, err)
	key := bson.D{{Key: "ak", Value: "ak"}, {Key: "sk", Value: sealed}}
	task := bson.D{
		{Key: "type", Value: "mscheduler.http"},
		{Key: "args", Value: bson.D{{Key: "url", Value: "http://h"}, {Key: "keys", Value: bson.A{key}}}},
		{Key: "options", Value: bson.D{{Key: "callback", Value: signedCallback(callback.Key{AccessKey: "ak", Secret: "plain"})}}},
	}
	data, err := bson.Marshal(bson.D{{Key: "task", Value: task}, {Key: "planned", Value: bson.A{bson.D{{Key: "id", Value: "1.0"}, {Key: "task", Value: task}}}}})
	require.NoError(t, err)
	var doc bson.D
	require.NoError(t, bson.Unmarshal(data, &doc))
	Hide(doc)
	text := fmt.Sprint(doc)
	require.Equal(t, 4, strings.Count(text, "***"), text)
	require.NotContains(t, text, "mss1.")
	require.NotContains(t, text, "plain")

	args, err := bson.Marshal(task)
	require.NoError(t, err)
	require.NotContains(t, HideArgs("mscheduler.http", bson.Raw(args).Lookup("args")).String(), "mss1.")
	require.Contains(t, HideArgs("mscheduler.http", bson.Raw(args).Lookup("args")).String(), "http://h")
	own := bson.D{{Key: "keys", Value: bson.A{bson.D{{Key: "sk", Value: "a caller's own"}}}}}
	data, err = bson.Marshal(own)
	require.NoError(t, err)
	raw := bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: data}
	require.Equal(t, raw, HideArgs("http", raw), "arguments that only look like it stay what they are")
}

func TestSecretsThatAreNotShownAreKeptByTheirAccessKey(t *testing.T) {
	stored := signedCallback(callback.Key{AccessKey: "old", Secret: "mss1.old"}, callback.Key{AccessKey: "gone", Secret: "mss1.gone"})
	given := signedCallback(callback.Key{AccessKey: "new", Secret: "one"}, callback.Key{AccessKey: "old", Secret: "***"}, callback.Key{AccessKey: "unknown", Secret: "***"})
	var none *Box
	kept := none.Keep(given, stored)
	var secrets []string
	for _, k := range kept.Security.Keys {
		secrets = append(secrets, k.Secret)
	}
	require.Equal(t, []string{"one", "mss1.old", "***"}, secrets)
	require.Equal(t, "***", given.Security.Keys[1].Secret, "the caller's own is left alone")
	require.Equal(t, stored, none.Keep(stored, nil))
	require.Nil(t, none.Keep(nil, stored))
	require.True(t, Hidden(HideCallback(stored)))
	require.Equal(t, "mss1.old", stored.Security.Keys[0].Secret)
	require.Nil(t, HideCallback(nil))
}

func TestAddressesAreHiddenKeptAndNotStoredWithTheirPartsMissing(t *testing.T) {
	at := func(success, failure string) *model.Callback {
		return &model.Callback{Success: &model.CallbackTarget{URL: success, Method: "PUT"}, Error: &model.CallbackTarget{URL: failure}}
	}
	stored := at("https://h/done?token=hunter2", "https://h/failed")
	shown := HideCallback(stored)
	require.Equal(t, at("https://h/done?token=***", "https://h/failed"), shown)
	require.True(t, Hidden(shown))
	require.False(t, Hidden(stored))
	var none *Box
	require.Equal(t, stored, none.Keep(shown, stored), "who changes it need not know the token")
	for _, c := range []*model.Callback{
		shown, // nothing is stored that it could be
		none.Keep(at("https://evil/?token=***", "https://h"), stored),
		none.Keep(at("https://h", "https://h/done?token=***"), stored),
	} {
		_, err := none.SealCallback("callback", c)
		require.ErrorIs(t, err, model.ErrInvalid)
		require.ErrorContains(t, err, ".url has *** for a part that is not shown")
	}
	_, err := none.SealCallback("callback", stored)
	require.NoError(t, err)

	data, err := bson.Marshal(bson.D{{Key: "options", Value: bson.D{{Key: "callback", Value: stored}}}, {Key: "task", Value: bson.D{{Key: "applied", Value: bson.D{{Key: "callback", Value: stored}}}}}})
	require.NoError(t, err)
	var doc bson.D
	require.NoError(t, bson.Unmarshal(data, &doc))
	Hide(doc)
	require.NotContains(t, fmt.Sprint(doc), "hunter2")
	require.Equal(t, 2, strings.Count(fmt.Sprint(doc), "https://h/done?token=***"))
}

func TestHiddenCredentialsOfArgumentsAreKeptWhereNobodyElseGetsThem(t *testing.T) {
	value := func(v any) (out bson.RawValue) {
		if v == nil {
			return out
		}
		data, err := bson.Marshal(v)
		require.NoError(t, err)
		return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: data}
	}
	args := func(url, endpoint any, credential string) bson.RawValue {
		doc := bson.D{{Key: "headers", Value: bson.D{{Key: "cookie", Value: credential}}}}
		for name, v := range map[string]any{"url": url, "endpoint": endpoint} {
			if v != nil {
				doc = append(doc, bson.E{Key: name, Value: v})
			}
		}
		return value(doc)
	}
	for _, c := range []struct{ given, stored, want bson.RawValue }{
		{args("http://h/b", nil, "***"), args("http://H:80/a", nil, "old"), args("http://h/b", nil, "old")},
		{args("http://h/b", nil, "new"), args("http://h/a", nil, "old"), args("http://h/b", nil, "new")},
		{args(nil, "h", "***"), args(nil, "h", "old"), args(nil, "h", "old")},
		{value(nil), args(nil, "h", "old"), value(nil)},
	} {
		kept, err := KeepArgs("http", c.given, c.stored)
		require.NoError(t, err)
		require.Equal(t, c.want.String(), kept.String())
	}
	for _, c := range []struct {
		given, stored bson.RawValue
		says          string
	}{
		{args("http://other/", nil, "***"), args("http://h/", nil, "old"), `args.headers.cookie is "***": give the secret itself for a new host`},
		{args("http://h:x/", nil, "***"), args("http://h:x/", nil, "old"), "for a new host"},
		{args(nil, "other", "***"), args(nil, "h", "old"), "for other arguments"},
		{args("http://h", "h", "***"), args(nil, "h", "old"), "for other arguments"},
		{args("http://h", nil, "***"), value(nil), "args.headers.cookie is ***, the mask of a hidden secret"},
	} {
		_, err := KeepArgs("http", c.given, c.stored)
		require.ErrorIs(t, err, model.ErrInvalid)
		require.ErrorContains(t, err, c.says)
	}
}

func TestTheHeaderHostIsAPartOfWhereCredentialsGo(t *testing.T) {
	args := func(url, credential string, hosts ...string) bson.RawValue {
		headers := bson.D{{Key: "Cookie", Value: credential}}
		for i, host := range hosts {
			headers = append(headers, bson.E{Key: []string{"Host", "host"}[i], Value: host})
		}
		doc := bson.D{{Key: "headers", Value: headers}}
		if url != "" {
			doc = append(doc, bson.E{Key: "url", Value: url})
		}
		data, err := bson.Marshal(doc)
		require.NoError(t, err)
		return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: data}
	}
	for _, c := range []struct {
		url         string
		given, were []string
		same        bool
	}{
		{"http://h/", []string{"a"}, []string{"A"}, true},
		{"http://h/", []string{"h"}, nil, true},
		{"http://h/", []string{"H:80"}, nil, true},
		{"http://[::1]/", []string{"[::1]:80"}, nil, true},
		{"http://h:81/", []string{"h:81"}, nil, true},
		{"http://h/", []string{""}, nil, true},
		{"", []string{"a"}, []string{"a"}, true},
		{"http://h:81/", []string{"h"}, nil, false},
		{"http://h/", []string{"evil"}, nil, false},
		{"http://h/", []string{"evil"}, []string{"a"}, false},
		{"http://h/", []string{"a", "evil"}, []string{"a"}, false},
		{"http://h/", []string{"evil", "a"}, []string{"a"}, false},
		{"http://h/", nil, []string{"a"}, false},
		{"http://h/", []string{"h@evil"}, nil, false},
		{"http://h/", []string{"h/evil"}, nil, false},
		{"", []string{"evil"}, []string{"a"}, false},
		{"", []string{"evil"}, nil, false},
	} {
		_, err := KeepArgs("http", args(c.url, "***", c.given...), args(c.url, "old", c.were...))
		if c.same {
			require.NoError(t, err, c)
		} else {
			require.ErrorContains(t, err, "give the secret itself for a new host", c)
		}
	}
}
