package rest

import (
	"encoding/base64"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/internal/view"
)

// place is where a page ends: at a time and an id. Lists are sorted by both, so the next page begins there
// whatever has become of what was there.
type place struct {
	at time.Time
	id string
}

// token is the place as a page_token; at the zero time the id alone is the place.
func (p place) token() string {
	return base64.RawURLEncoding.EncodeToString([]byte(view.Time(p.at) + " " + p.id))
}

// placeOf reads a page_token; the zero place = from the beginning.
func placeOf(token string) (p place, err error) {
	if token == "" {
		return p, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	at, id, there := strings.Cut(string(text), " ")
	if err == nil && at != "" {
		p.at, err = time.Parse(clock.Format, at)
	}
	if p.id = id; err != nil || !there || id == "" || !safetext.IsText(id) {
		return place{}, input.Invalid("page_token", "is %q; want next of the page before", token)
	}
	return p, nil
}

// paged reads a page after a place, nil = from the beginning, and tells after which place the next page
// begins; nil = it is the last one.
func paged[T any](limit int, after *T, read func(after *T, limit int) ([]*T, error)) (page []*T, next *T, err error) {
	if page, err = read(after, limit); err != nil || len(page) < limit {
		return page, nil, err
	}
	more, err := read(page[limit-1], 1)
	if len(more) > 0 {
		next = page[limit-1]
	}
	return page, next, err
}
