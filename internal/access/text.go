package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"strings"

	"github.com/mscheduler/mscheduler/internal/input"
)

// The text of a token is msk_ID_SECRET. The prefix lets scanners of repositories and logs find tokens.
// Letters that are easily taken for digits (i, l, o) and u are not used.
const (
	prefix   = "msk_"
	alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

	idBytes     = 10 // 80 bits: no two tokens ever have the same id
	secretBytes = 20 // 160 bits
	// Both are multiples of five bytes, so each text has one spelling only.
	idChars     = idBytes * 8 / 5
	secretChars = secretBytes * 8 / 5
)

var encoding = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)

// random is a text of so many random bytes.
func random(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails, by its contract
	return encoding.EncodeToString(b)
}

// Split takes the text of a token apart. ok is false if it is not a token's text.
func Split(text string) (id, secret string, ok bool) {
	rest, marked := strings.CutPrefix(text, prefix)
	id, secret, parted := strings.Cut(rest, "_")
	if !marked || !parted || !spelled(id, idChars) || !spelled(secret, secretChars) {
		return "", "", false
	}
	return id, secret, true
}

// ParseID reads the id of a token, or takes it from a token's text. The error does not repeat the text,
// which may contain a secret.
func ParseID(field, text string) (string, error) {
	if id, _, ok := Split(text); ok {
		return id, nil
	}
	if !spelled(text, idChars) {
		return "", input.Invalid(field, "is not that of a token; want 16 of 0-9 a-z without i, l, o and u")
	}
	return text, nil
}

// spelled reports whether the text has that many characters, all of the alphabet. The decoder would
// also let line breaks through.
func spelled(s string, chars int) bool { return len(s) == chars && strings.Trim(s, alphabet) == "" }

// hash is what is stored of a secret. A slow hash protects passwords, which can be guessed. A secret of
// 160 random bits cannot be, so SHA-256 is enough, and a check costs a microsecond.
func hash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// matches compares in constant time. A stored hash of another length never matches.
func matches(stored, given []byte) bool {
	return len(stored) == sha256.Size && subtle.ConstantTimeCompare(stored, given) == 1
}
