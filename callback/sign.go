package callback

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of a callback.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
	HeaderAccessKey = "Webhook-Access-Key"
	HeaderTask      = "Webhook-Task"
)

const (
	scheme = "v1,"
	// encoded marks a secret that is base64, as Standard Webhooks writes them.
	encoded = "whsec_"
)

// Key is an access key with the secret that goes with it.
type Key struct {
	// AccessKey names the secret. In [Verify] "" stands for whatever the sender calls it.
	AccessKey string
	// Secret signs: its bytes, or, where it begins with whsec_, what the rest is in base64.
	Secret string
}

// String is the key without its secret, so that it can be printed.
func (k Key) String() string { return k.AccessKey + ":***" }

// GoString is [Key.String], for %#v.
func (k Key) GoString() string { return "callback.Key(" + k.String() + ")" }

// CheckSecret says what is wrong with a secret; nil = nothing.
func CheckSecret(secret string) error {
	_, err := secretBytes(secret)
	return err
}

func secretBytes(secret string) ([]byte, error) {
	text, is := strings.CutPrefix(secret, encoded)
	switch {
	case secret == "":
		return nil, fmt.Errorf("the secret is empty")
	case !is:
		return []byte(secret), nil
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) == 0 {
		return nil, fmt.Errorf("the secret begins with %s, but the rest is not base64", encoded)
	}
	return b, nil
}

// Sign sets the headers of a callback: its id, the time, and a signature by each key, the
// newest first. Without keys it sets id and time alone. Senders use it, and receivers in
// their tests. The errors are those of [CheckSecret].
func Sign(h http.Header, id string, at time.Time, body []byte, keys ...Key) error {
	stamp := strconv.FormatInt(at.Unix(), 10)
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, stamp)
	signatures, names := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		mac, err := signature(k.Secret, id, stamp, body)
		if err != nil {
			return fmt.Errorf("signing with the access key %s: %w", k.AccessKey, err)
		}
		signatures[i], names[i] = scheme+base64.StdEncoding.EncodeToString(mac), k.AccessKey
	}
	if len(keys) > 0 {
		h.Set(HeaderSignature, strings.Join(signatures, " "))
		h.Set(HeaderAccessKey, strings.Join(names, " "))
	}
	return nil
}

func signature(secret, id, stamp string, body []byte) ([]byte, error) {
	key, err := secretBytes(secret)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "."))
	mac.Write(body)
	return mac.Sum(nil), nil
}
