package rest

import (
	"context"
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
)

// place is where a page ends: at a time and an id. Lists are sorted by both, so the next page begins there
// whatever has become of what was there.
type place struct {
	at time.Time
	id string
}

// token is the place as a page_token; at the zero time the id alone is the place, and without an id all that
// have the time lie before it.
func (p place) token() string {
	return base64.RawURLEncoding.EncodeToString([]byte(view.Time(p.at) + " " + p.id))
}

// after is the page_token of what follows an id in a list that is sorted by ids; "" = nothing does.
func after(id string) string {
	if id == "" {
		return ""
	}
	return place{id: id}.token()
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
	if p.id = id; err != nil || !there || p == (place{}) || !safetext.IsText(id) {
		return place{}, input.Invalid("page_token", "is %q; want next of the page before", token)
	}
	return p, nil
}

// sparse describes lists whose pages are bounded by what the server looks at.
const sparse = "A page may have fewer than limit entries and still have a next one."

// spanOf is the span of a list that a page reads.
func spanOf(p Page, oldest bool) (store.Span, error) {
	from, err := placeOf(p.Token)
	return store.Span{Oldest: oldest, At: from.at, ID: from.id, Limit: p.Limit}, err
}

// spanned reads a page of a list of spans, no farther than to the bound, and tells the token of the next page;
// "" = it is the last one.
func spanned[T any](ctx context.Context, span store.Span, bound func(context.Context, store.Span) (time.Time, error),
	read func(context.Context, store.Span) ([]T, error), at func(T) place,
) (page []T, next string, err error) {
	if span.Until, err = bound(ctx, span); err != nil {
		return nil, "", err
	}
	if page, err = read(ctx, span); err != nil {
		return nil, "", err
	}
	if len(page) == span.Limit {
		last := at(page[len(page)-1])
		rest := span
		rest.At, rest.ID, rest.Limit = last.at, last.id, 1
		more, err := read(ctx, rest)
		if err != nil || len(more) > 0 {
			return page, last.token(), err
		}
	}
	if !span.Until.IsZero() {
		next = place{at: span.Until}.token()
	}
	return page, next, nil
}

// unreadable is a document that a later release, or a person, has written so that this release cannot read it.
type unreadable struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}

// listed are documents that cannot be read, sorted by id.
func listed(unread store.Unread) (out []unreadable) {
	for _, id := range slices.Sorted(maps.Keys(unread)) {
		out = append(out, unreadable{id, unread[id].Error()})
	}
	return out
}

// readable reads so many documents of a span that can be read, if there are, and adds the others to unread. It
// reads on in larger pieces while documents that cannot be read take their places.
func readable[T any](span store.Span, kind string, unread store.Unread, read func(store.Span) ([]T, []store.Unreadable, error)) ([]T, error) {
	for limit := span.Limit; ; span.Limit = min(10*span.Limit, 1000) {
		docs, broken, err := read(span)
		if err != nil {
			return nil, err
		}
		unread.Note(kind, broken)
		if len(docs) >= limit || len(docs)+len(broken) < span.Limit || span.Limit == 1000 {
			return docs[:min(limit, len(docs))], nil
		}
	}
}

// begun reads a page of the things of a tenant whose names begin so: sorted by id, so the page begins behind one. Of what
// it reads, the page has what is wanted, and so may be short.
func begun[T any](tenant, field, token, kind string, limit int, unread store.Unread, read func(after string, limit int) ([]T, []store.Unreadable, error), id func(T) string, wanted func(T) bool) (page []T, next string, err error) {
	if tenant == "" {
		return nil, "", input.Invalid("query."+field, "requires tenant; - for what has none")
	}
	from, err := placeOf(token)
	if err == nil && !from.at.IsZero() {
		err = input.Invalid("page_token", "is %q; want next of the page before", token)
	}
	if err != nil {
		return nil, "", err
	}
	page, broken, next, err := store.NamedPage(from.id, limit, read, id)
	unread.Note(kind, broken)
	return slices.DeleteFunc(page, func(x T) bool { return !wanted(x) }), after(next), err
}
