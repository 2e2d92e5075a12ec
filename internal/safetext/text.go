package safetext

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Clip shortens s to at most n bytes at a rune boundary and says what it left out. What
// is not UTF-8, which BSON's strings are, is replaced.
func Clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	cut := n
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%s… (%d bytes more)", s[:cut], len(s)-cut)
}

// IsText reports whether s is valid UTF-8 without a NUL byte.
func IsText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}

// MaxNameBytes is the greatest length of a name.
const MaxNameBytes = 100

// IsName says whether s is 1 to 100 of [a-zA-Z0-9._-].
func IsName(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= MaxNameBytes
}
