package callback

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// These headers name the task whose end is delivered, percent-encoded, and the number of its life. They are
// not signed.
const (
	headerTask       = "Webhook-Task"
	headerGeneration = "Webhook-Generation"
)

// The signed headers, see the package comment.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
	headerAccessKey = "Webhook-Access-Key"
)

const (
	scheme = "v1,"
	// encoded marks a secret that is base64, as Standard Webhooks writes them.
	encoded = "whsec_"
)

// Key is an access key with its secret.
type Key struct {
	// AccessKey names the secret. In [Verify] "" accepts every name.
	AccessKey string `bson:"ak" json:"ak"`
	// Secret signs: its bytes or, after the prefix whsec_, the bytes that the rest encodes in
	// base64. Documents hold it sealed.
	Secret string `bson:"sk" json:"sk"`
}

// Format implements [fmt.Formatter]: it prints the key without its secret.
func (k Key) Format(s fmt.State, _ rune) {
	text := k.AccessKey + ":***"
	if s.Flag('#') {
		text = "callback.Key(" + text + ")"
	}
	_, _ = s.Write([]byte(text)) // fmt reports its own errors
}

// MarshalJSON writes the key without its secret: JSON is for people and other systems. A key
// that was read back must be given its secret anew.
func (k Key) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{"ak": k.AccessKey, "sk": "***"})
}

func secretBytes(secret string) ([]byte, error) {
	if secret == "" {
		return nil, errors.New("the secret is empty")
	}
	text, isEncoded := strings.CutPrefix(secret, encoded)
	if !isEncoded {
		return []byte(secret), nil
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) == 0 {
		return nil, fmt.Errorf("the secret starts with %s, but the rest is not base64", encoded)
	}
	return b, nil
}

// Sign sets the headers of a callback: its id, the time, and one signature for each key, the
// newest first. Without keys it sets only id and time. Receivers need it in their tests. It fails
// if a secret is empty, or begins with whsec_ and does not go on in base64.
func Sign(h http.Header, id string, at time.Time, body []byte, keys ...Key) error {
	stamp := strconv.FormatInt(at.Unix(), 10)
	h.Set(headerID, id)
	h.Set(headerTimestamp, stamp)
	signatures, names := make([]string, len(keys)), make([]string, len(keys))
	for i, k := range keys {
		mac, err := signature(k.Secret, id, stamp, body)
		if err != nil {
			return fmt.Errorf("signing with the access key %s: %w", k.AccessKey, err)
		}
		signatures[i], names[i] = scheme+base64.StdEncoding.EncodeToString(mac), k.AccessKey
	}
	if len(keys) > 0 {
		h.Set(headerSignature, strings.Join(signatures, " "))
		h.Set(headerAccessKey, strings.Join(names, " "))
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
