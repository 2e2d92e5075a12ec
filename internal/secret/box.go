package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
)

// Why a secret cannot be opened.
var (
	ErrNoKey      = errors.New("no secret key is set (SecretKey in the Config, or MSCHEDULER_SECRET_KEY for the binary)")
	ErrUnknownKey = errors.New("the secret was sealed with a key that this process does not have")
	ErrBroken     = errors.New("the sealed secret is damaged or belongs to another access key")
)

var errNotShown = errors.New("is " + safetext.Hidden + ", the mask of a hidden secret; give the secret itself")

// version begins every sealed text.
const version = "mss1."

const keyBytes = 32

// Box seals and opens secrets. nil is a box without a key, which does neither.
type Box struct{ keys []sealKey } // the first seals, all open

type sealKey struct {
	id   string
	aead cipher.AEAD
}

// Parse makes a box of keys: each 32 bytes as hex or base64, several separated by commas.
// The first seals, all open. "" is no box: nil. field names the text in errors, which
// never repeat it.
func Parse(field, text string) (*Box, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	b := &Box{}
	for i, one := range strings.Split(text, ",") {
		raw := decodeKey(strings.TrimSpace(one))
		if len(raw) != keyBytes {
			return nil, input.Invalid(field, "is not %d bytes in hex or base64 (key %d)", keyBytes, i+1)
		}
		block, err := aes.NewCipher(raw)
		if err != nil {
			return nil, fmt.Errorf("making a cipher: %w", err)
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, fmt.Errorf("making a cipher: %w", err)
		}
		sum := sha256.Sum256(append([]byte("mscheduler secret key "), raw...))
		b.keys = append(b.keys, sealKey{id: hex.EncodeToString(sum[:4]), aead: aead})
	}
	return b, nil
}

func decodeKey(text string) []byte {
	if raw, err := hex.DecodeString(text); err == nil && len(raw) == keyBytes {
		return raw
	}
	text = strings.TrimRight(text, "=")
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if raw, err := enc.DecodeString(text); err == nil && len(raw) == keyBytes {
			return raw
		}
	}
	return nil
}

// Sealed says whether the text looks like one that [Box.Seal] made.
func Sealed(text string) bool { return strings.HasPrefix(text, version) }

// Seal makes a secret unreadable, bound to what it belongs to. [ErrNoKey] without a key.
func (b *Box) Seal(plain, bound string) (string, error) {
	if b == nil {
		return "", ErrNoKey
	}
	k := b.keys[0]
	nonce := make([]byte, k.aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails, by its contract
	sealed := k.aead.Seal(nonce, nonce, []byte(plain), []byte(bound))
	return version + k.id + "." + base64.RawURLEncoding.EncodeToString(sealed), nil
}

// reseal is [Box.Seal] for a value that may be sealed already, and then must open.
func (b *Box) reseal(value, bound string) (string, error) {
	switch {
	case value == safetext.Hidden:
		return "", errNotShown
	case Sealed(value):
		_, err := b.Open(value, bound)
		return value, err
	default:
		return b.Seal(value, bound)
	}
}

// kept returns the stored text of a secret that is [safetext.Hidden] or is given as it is stored, and
// otherwise the given one. A secret that the first key has not sealed is not as it would be stored. A
// box without a key compares only what is stored in the clear.
func (b *Box) kept(given, stored, bound string) string {
	if given == safetext.Hidden {
		return stored
	}
	if b == nil || !strings.HasPrefix(stored, version+b.keys[0].id+".") {
		return given
	}
	if plain, err := b.Open(stored, bound); err != nil || plain != given {
		return given
	}
	return stored
}

// Open gives the secret back: [ErrNoKey], [ErrUnknownKey] or [ErrBroken] when it cannot.
func (b *Box) Open(sealed, bound string) (string, error) {
	id, text, ok := strings.Cut(strings.TrimPrefix(sealed, version), ".")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if !Sealed(sealed) || !ok || err != nil {
		return "", ErrBroken
	}
	if b == nil {
		return "", fmt.Errorf("%w%s%s", ErrNoKey, keyID, id)
	}
	for _, k := range b.keys {
		if k.id != id {
			continue
		}
		if len(raw) < k.aead.NonceSize() {
			return "", ErrBroken
		}
		plain, err := k.aead.Open(nil, raw[:k.aead.NonceSize()], raw[k.aead.NonceSize():], []byte(bound))
		if err != nil {
			return "", ErrBroken
		}
		return string(plain), nil
	}
	return "", fmt.Errorf("%w%s%s", ErrUnknownKey, keyID, id)
}

// keyID is what precedes the id of the key in errors about a key that is missing.
const keyID = ": key id "

// MissingKey returns the id of the key that a process lacked, by the text of its error; "" = the error has another reason.
func MissingKey(text string) string {
	_, id, _ := strings.Cut(text, keyID)
	return id
}
