package admin

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"

	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/store"
)

// A page token is the place of the last life of a page behind a check sum over it and the
// filter: for another filter, cut off or made up, it is refused instead of skipping tasks
// silently. It is no secret and protects nothing.

const (
	tokenVersion  = 2
	tokenSumBytes = 8
)

func (f *Filter) token(last store.Place) string {
	raw := append([]byte{tokenVersion}, f.tokenSum(last)...)
	raw = append(strconv.AppendInt(raw, last.Generation, 10), '@')
	return base64.RawURLEncoding.EncodeToString(append(raw, last.ID...))
}

// after is the place behind which the page begins.
func (f *Filter) after(token string) (store.Place, error) {
	var at store.Place
	if token == "" {
		return at, nil
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) <= 1+tokenSumBytes || raw[0] != tokenVersion {
		return at, input.Invalid("page_token", "was not returned by Find")
	}
	generation, id, _ := bytes.Cut(raw[1+tokenSumBytes:], []byte("@"))
	at.ID = string(id)
	at.Generation, err = strconv.ParseInt(string(generation), 10, 64)
	if err != nil || f.token(at) != token { // by the check sum, and numbers have several spellings
		return store.Place{}, input.Invalid("page_token", "was not returned by Find for this filter")
	}
	return at, nil
}

func (f *Filter) tokenSum(last store.Place) []byte {
	text := fmt.Appendf(nil, "%q %q %q %q %q %q %d %d %d %d %q",
		f.Tenant, f.Type, f.Statuses, f.Category, f.Creator, f.WorkerID,
		f.After.UnixMilli(), f.Before.UnixMilli(), f.where(), last.Generation, last.ID)
	if f.Descending {
		text = append(text, " descending"...)
	}
	if f.Error != "" || len(f.Args) > 0 {
		text = fmt.Appendf(text, " %q %q", f.Error, f.Args)
	}
	if f.Key != "" {
		text = fmt.Appendf(text, " key %q", f.Key)
	}
	sum := sha256.Sum256(text)
	return sum[:tokenSumBytes]
}
