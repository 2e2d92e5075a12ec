package input

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// MaxKeyBytes is the longest key a caller may give.
const MaxKeyBytes = 400

// ParseTaskID takes a task id apart. The tenant is "" for [model.NoTenant].
func ParseTaskID(id string) (tenant, typ, key string, err error) {
	tenant, rest, ok := strings.Cut(id, "/")
	typ, key, ok2 := strings.Cut(rest, "/")
	if !ok || !ok2 || Name("tenant", tenant) != nil || Name("type", typ) != nil || Key(key) != nil {
		return "", "", "", Invalid("id", "is %q; want tenant/type/key, with - for no tenant", safetext.Clip(id, 120))
	}
	if tenant == model.NoTenant {
		tenant = ""
	}
	return tenant, typ, key, nil
}

var keyEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// Random is a random text of at least 128 bits, for ids: lower-case letters and digits.
func Random() string { return strings.ToLower(rand.Text()) }

// NewKey makes a key that sorts by time: 48 bits of milliseconds, then 80 random bits,
// as 26 characters.
func NewKey(now time.Time) string {
	var random [10]byte
	_, _ = rand.Read(random[:]) // never fails, by its contract
	return newKey(now, random)
}

// OrderedKey is [NewKey] for keys of one process that sort by n, too, if they are of the same millisecond. n
// counts from anywhere and may wrap around.
func OrderedKey(now time.Time, n uint32) string {
	var random [10]byte
	_, _ = rand.Read(random[4:])
	binary.BigEndian.PutUint32(random[:4], n)
	return newKey(now, random)
}

// IsKey says whether a text is a key that [NewKey] or its like may have made.
func IsKey(text string) bool {
	b, err := keyEncoding.DecodeString(text)
	return err == nil && len(b) == 16
}

// FirstKey is a key that sorts before all that [NewKey] makes at that millisecond or later, and behind all
// others.
func FirstKey(at time.Time) string {
	if at.UnixMilli() < 0 {
		at = time.UnixMilli(0)
	}
	return newKey(at, [10]byte{})
}

func newKey(now time.Time, random [10]byte) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMilli())<<16)
	copy(b[6:], random[:])
	return keyEncoding.EncodeToString(b[:])
}

// RuleName is what is unique among living periodic rules: tenant and name.
func RuleName(tenant, name string) string {
	if tenant == "" {
		tenant = model.NoTenant
	}
	return tenant + "/" + name
}
