package producer

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/mscheduler/mscheduler/model"
)

// A page token is the last id of a page behind a check sum over it and the filter: for
// another filter, cut off or made up, it is refused instead of skipping tasks silently.
// It is no secret and protects nothing.

const (
	tokenVersion  = 1
	tokenSumBytes = 8
)

func (f *Filter) token(lastID string) string {
	raw := append([]byte{tokenVersion}, f.tokenSum(lastID)...)
	return base64.RawURLEncoding.EncodeToString(append(raw, lastID...))
}

// after is the id behind which the page begins.
func (f *Filter) after(token string) (string, error) {
	if token == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) <= 1+tokenSumBytes || raw[0] != tokenVersion {
		return "", model.Invalid("page_token", "is not one that a page had")
	}
	sum, id := raw[1:1+tokenSumBytes], string(raw[1+tokenSumBytes:])
	if !bytes.Equal(sum, f.tokenSum(id)) {
		return "", model.Invalid("page_token", "is not one that a page of this filter had")
	}
	return id, nil
}

func (f *Filter) tokenSum(lastID string) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %q %d %d %q",
		f.Tenant, f.Type, f.Statuses, f.Category, f.Creator, f.WorkerID,
		f.After.UnixMilli(), f.Before.UnixMilli(), lastID))
	return sum[:tokenSumBytes]
}
