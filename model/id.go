package model

import (
	"cmp"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// NoTenant stands in a task id where no tenant was given.
const NoTenant = "-"

// MaxKeyBytes is the longest key a caller may give.
const MaxKeyBytes = 400

const maxNameBytes = 100

// isName says whether s is 1 to 100 of [a-zA-Z0-9._-].
func isName(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= maxNameBytes
}

// ValidName checks the name of a type or a tenant: 1 to 100 of [a-zA-Z0-9._-]. The
// missing slash is what keeps task ids unambiguous. field names the input in the error.
func ValidName(field, name string) error {
	if isName(name) {
		return nil
	}
	if name == "" {
		return Invalid(field, "is empty; want 1 to 100 of a-z A-Z 0-9 . _ -")
	}
	return Invalid(field, "is %q; want 1 to 100 of a-z A-Z 0-9 . _ -", clip(name, 120))
}

// ValidKey checks an idempotency key: 1 to 400 bytes of valid UTF-8, no NUL.
func ValidKey(key string) error {
	switch {
	case key == "":
		return Invalid("key", "is empty")
	case len(key) > MaxKeyBytes:
		return Invalid("key", "has %d bytes; at most %d are allowed", len(key), MaxKeyBytes)
	case !validText(key):
		return Invalid("key", "must be valid UTF-8 without a NUL byte")
	default:
		return nil
	}
}

// TaskID makes the primary key tenant/type/key. An empty tenant becomes [NoTenant].
// The parts are taken as they are: check them first.
func TaskID(tenant, typ, key string) string {
	if tenant == "" {
		tenant = NoTenant
	}
	return tenant + "/" + typ + "/" + key
}

// ParseTaskID takes a task id apart. The tenant is "" for [NoTenant].
func ParseTaskID(id string) (tenant, typ, key string, err error) {
	tenant, rest, ok := strings.Cut(id, "/")
	typ, key, ok2 := strings.Cut(rest, "/")
	if !ok || !ok2 || ValidName("tenant", tenant) != nil || ValidName("type", typ) != nil || ValidKey(key) != nil {
		return "", "", "", Invalid("id", "is %q; want tenant/type/key, with - for no tenant", clip(id, 120))
	}
	if tenant == NoTenant {
		tenant = ""
	}
	return tenant, typ, key, nil
}

var keyEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// NewKey makes a key that sorts by time: 48 bits of milliseconds, then 80 random bits,
// as 26 characters.
func NewKey(now time.Time, random [10]byte) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMilli())<<16)
	copy(b[6:], random[:])
	return keyEncoding.EncodeToString(b[:])
}

// Handle names one execution to the outside: who has it may end or ping that
// execution and no other. It contains the task id, so every write finds its shard.
type Handle struct {
	TaskID     string
	Generation int64
	ExecID     string
}

// String encodes the handle so that it fits an URL.
func (h Handle) String() string {
	var plain, encoded [256]byte // mostly enough, and then on the stack
	return string(base64.RawURLEncoding.AppendEncode(encoded[:0], h.appendID(plain[:0])))
}

// ExecutionID names the execution uniquely for ever: task id, generation and exec id.
func (h Handle) ExecutionID() string {
	var id [256]byte
	return string(h.appendID(id[:0]))
}

func (h Handle) appendID(dst []byte) []byte {
	dst = append(append(dst, h.TaskID...), '@')
	dst = append(strconv.AppendInt(dst, h.Generation, 10), '@')
	return append(dst, h.ExecID...)
}

// ParseHandle reads what [Handle.String] wrote.
func ParseHandle(s string) (Handle, error) {
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return Handle{}, Invalid("handle", "is not an execution handle")
	}
	// From the right: a key may contain an @.
	rest, exec, ok := cutLast(string(raw), "@")
	id, gen, ok2 := cutLast(rest, "@")
	generation, err := strconv.ParseInt(gen, 10, 64)
	if !ok || !ok2 || err != nil || exec == "" {
		return Handle{}, Invalid("handle", "is not an execution handle")
	}
	if _, _, _, err := ParseTaskID(id); err != nil {
		return Handle{}, Invalid("handle", "is not an execution handle")
	}
	h := Handle{TaskID: id, Generation: generation, ExecID: exec}
	if h.String() != s { // base64 and numbers have several spellings; a handle has one
		return Handle{}, Invalid("handle", "is not an execution handle")
	}
	return h, nil
}

// Token is a fencing token for outside systems: of two executions of one task the
// later has the greater token. A system that remembers the greatest token it has
// seen for a task can refuse a late writer.
type Token struct {
	Generation int64 `json:"generation"`
	Rev        int64 `json:"rev"`
}

// Compare orders tokens: negative when t is older than u.
func (t Token) Compare(u Token) int {
	return cmp.Or(cmp.Compare(t.Generation, u.Generation), cmp.Compare(t.Rev, u.Rev))
}

// String is the token in a form whose order as text is the order of the tokens.
func (t Token) String() string { return fmt.Sprintf("%016x-%08x", t.Generation, t.Rev) }

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
