package store

import (
	"context"
	"math"
	"regexp"
	"strings"
	"unicode"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Tasks by the beginning of their keys. An id is tenant/type/key, so such tasks lie together only within a tenant and
// a type. Where one of these is not given, a list jumps in the index on ids from one pair of a tenant and a type to the
// next, and reads of each the keys that begin so. An index on keys would cost every send.

// mostPairs is how many pairs of a tenant and a type a page looks at. Each takes two short reads, and more if the filter
// has other conditions.
const mostPairs = 100

const (
	beforePair = "/" // follows the names of a pair in all of its ids
	behindPair = "0" // the character after it: all ids of the pair lie before
	behindAll  = "{" // lies behind all characters of names
)

// keyed reports whether a list jumps from pair to pair.
func (f Filter) keyed() bool { return f.Key != "" && (f.Tenant == "" || f.Type == "") }

// ids is the range of the ids of a tenant, a type and a beginning of keys, as far as they are given; the tenant is.
func (f Filter) ids() (from, to string) {
	of := f.Tenant
	switch {
	case f.Type == "":
	case f.Key == "":
		of += "/" + f.Type
	default:
		from = of + "/" + f.Type + "/" + f.Key
		return from, from + string(unicode.MaxRune)
	}
	return of + beforePair, of + behindPair
}

// keyPattern is what the ids of a filter that is keyed look like.
func (f Filter) keyPattern() bson.Regex {
	part := func(name string) string {
		if name == "" {
			return "[^/]+"
		}
		return regexp.QuoteMeta(name)
	}
	return bson.Regex{Pattern: "^" + part(f.Tenant) + "/" + part(f.Type) + "/" + regexp.QuoteMeta(f.Key)}
}

// jump is [listing.read] for a filter that is keyed. The server looks at no more than [mostPairs] then, nor in all of
// them together at more lives than a page examines. It needs the index on ids.
func (l listing) jump(ctx context.Context, f Filter, e Extent) (docs []bson.Raw, end *lifeKey, err error) {
	left, at, bytes := e.Examine, f.AfterID, 0
	for pairs := 0; ; pairs++ {
		if e.Examine > 0 && (pairs == mostPairs || left <= 0) {
			return docs, f.behind(at), nil
		}
		pair, there, err := l.pair(ctx, f, at)
		if err != nil || !there {
			return docs, nil, err
		}
		found, end, err := l.read(ctx, pair, Extent{Limit: e.Limit - len(docs), Examine: left, names: e.names})
		if docs = append(docs, found...); err != nil || end != nil {
			return docs, end, err
		}
		for _, doc := range found {
			bytes += len(doc)
		}
		if bytes >= pageBytes {
			return docs, new(keyOf(docs[len(docs)-1])), nil
		}
		if e.Examine > 0 && !pair.indexed(l.own) {
			n, err := l.coll.CountDocuments(ctx, pair.rangeBy(l.id), options.Count().SetHint(l.index).SetLimit(int64(left)))
			if err != nil {
				return nil, nil, explain(err, l.doing)
			}
			left -= int(n)
		}
		at = pair.Tenant
		if f.Type == "" {
			at += "/" + pair.Type
		}
		if f.Descending {
			at += beforePair
		} else {
			at += behindPair
		}
	}
}

// pair finds the first pair of a tenant and a type in the list that has an id at a place or behind it. It looks at one
// key of the index.
func (l listing) pair(ctx context.Context, f Filter, at string) (of Filter, there bool, err error) {
	from, to := "", behindAll
	if f.Tenant != "" {
		within := f
		within.Type = ""
		from, to = within.ids()
	}
	switch {
	case !f.Descending:
		from = max(from, at)
	case at != "":
		to = min(to, at)
	}
	row, there, err := readOne[bson.Raw](ctx, l.coll, l.doing, bson.D{d(l.id, bson.D{d("$gte", from), d("$lte", to)})},
		options.FindOne().SetSort(l.sort).SetHint(l.index).SetProjection(bson.D{d(l.id, 1)}))
	id, _ := row.Lookup(l.id).StringValueOK()
	parts := strings.SplitN(id, "/", 3)
	if err != nil || !there || len(parts) < 3 {
		return f, false, err
	}
	of = f
	if of.Tenant = parts[0]; of.Type == "" {
		of.Type = parts[1]
	}
	return of, true, nil
}

// behind is the key of a place between pairs.
func (f Filter) behind(at string) *lifeKey {
	if f.Descending {
		return &lifeKey{at, math.MinInt64}
	}
	return &lifeKey{at, math.MaxInt64}
}
