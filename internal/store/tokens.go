package store

import (
	"context"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/codec"
)

// ErrUnknownToken is returned for the id of a token that has no document.
var ErrUnknownToken = missing("no such token")

// tokenKept is how long the document of a token stays when the token is revoked or has expired: an
// audit can still name it.
const tokenKept = 90 * 24 * time.Hour

// tokenUseGrain is how exactly last_used_at is kept.
const tokenUseGrain = time.Minute

// Tokens is the collection tokens. Its callers make sure that the clock is fresh, see
// [Store.FreshClock].
type Tokens struct{ *core }

// Token is one document of tokens. Times are the database's.
//
// A release that adds a field which narrows what a token may do must raise the schema's min_reader:
// older ones leave unknown fields out, and would let the token do more.
type Token struct {
	ID   string `bson:"_id"` // public
	Name string `bson:"name"`
	Hash []byte `bson:"hash"` // SHA-256 of the secret
	Role string `bson:"role"`
	// Tenants are those that it may see; nil = all. An empty list in a document is none.
	Tenants    []string  `bson:"tenants,omitempty"`
	CreatedAt  time.Time `bson:"created_at"`
	CreatedBy  string    `bson:"created_by"`
	ExpiresAt  time.Time `bson:"expires_at,omitempty"` // zero = never
	LastUsedAt time.Time `bson:"last_used_at,omitempty"`
	RevokedAt  time.Time `bson:"revoked_at,omitempty"`
	DeleteAt   time.Time `bson:"delete_at,omitempty"`
}

// TokenPlace is where a page of tokens ends: behind the token of that id, which was created then. Zero = at the
// beginning of the list, and as the place of a next page: there is none.
type TokenPlace struct {
	At time.Time // zero = the document does not say
	ID string
}

// Expired reports whether the token's time is over.
func (t *Token) Expired(now time.Time) bool {
	return !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt)
}

// Insert stores a new token, and sets when it was created and when its document goes. Index: _id.
func (s *Tokens) Insert(ctx context.Context, t *Token) error {
	t.CreatedAt = s.Clock.Now()
	if !t.ExpiresAt.IsZero() {
		t.DeleteAt = t.ExpiresAt.Add(tokenKept)
	}
	_, err := s.tokens.InsertOne(ctx, t)
	return explain(err, "storing the token "+t.Name)
}

// ByIDs reads tokens. Those that are not there are left out, and so are those that this release cannot
// read, of which the log tells. Index: _id.
func (s *Tokens) ByIDs(ctx context.Context, ids []string) (map[string]*Token, error) {
	found := map[string]*Token{}
	err := decodeEach(ctx, s.tokens, "reading tokens", bson.D{d("_id", in(ids))}, options.Find(),
		func(t *Token) { found[t.ID] = t }, func(doc bson.Raw, err error) { s.complain(s.tokens, doc, err) })
	return found, err
}

// List reads a page of tokens, the oldest first, behind a place. unread are those of the page that this release
// cannot read. next is the place behind which the next page begins. Index: created.
func (s *Tokens) List(ctx context.Context, after TokenPlace, limit int) (page []*Token, unread []Unreadable, next TokenPlace, err error) {
	span := Span{Oldest: true, At: after.At, ID: after.ID, Limit: limit + 1} // one more tells whether there is a next page
	query := span.where("created_at", bson.D{})
	if after.At.IsZero() && after.ID != "" { // behind one that somebody wrote by hand; those with a time follow
		query = bson.D{d("$or", bson.A{
			bson.D{d("created_at", nil), d("_id", bson.D{d("$gt", after.ID)})}, bson.D{d("created_at", bson.D{d("$gte", bson.DateTime(math.MinInt64))})},
		})}
	}
	n, last := 0, TokenPlace{}
	err = readEach(ctx, s.tokens, "listing tokens", query, span.options("created_at", indexCreated), func(doc bson.Raw) bool {
		if n == limit {
			next = last
			return false
		}
		n++
		last = TokenPlace{}
		last.ID, _ = doc.Lookup("_id").StringValueOK()
		last.At, _ = doc.Lookup("created_at").TimeOK()
		t := new(Token)
		if err := codec.Decode(doc, t); err != nil {
			unread = append(unread, s.complain(s.tokens, doc, err))
		} else {
			page = append(page, t)
		}
		return true
	})
	return page, unread, next, err
}

// Exist reports whether there is a token, be it revoked or expired. Index: _id.
func (s *Tokens) Exist(ctx context.Context) (bool, error) {
	return finds(ctx, s.tokens, "looking for tokens", bson.D{d("_id", bson.D{d("$gt", "")})}, options.FindOne())
}

// Revoke revokes a token for good and returns its document, or [ErrUnknownToken]. One that is revoked
// already stays as it is. Index: _id.
func (s *Tokens) Revoke(ctx context.Context, id string) (*Token, error) {
	doing := "revoking the token " + id
	now := s.Clock.Now()
	_, err := s.tokens.UpdateOne(ctx, bson.D{d("_id", id), d("revoked_at", absent)},
		bson.D{d("$set", bson.D{d("revoked_at", now), d("delete_at", now.Add(tokenKept))})})
	if err != nil {
		return nil, explain(err, doing)
	}
	return readKnown[Token](ctx, s.tokens, doing, bson.D{d("_id", id)}, ErrUnknownToken, id)
}

// Used notes that the tokens were used now. A token of which that was noted less than a minute ago, by
// any process, is left alone. Index: _id.
func (s *Tokens) Used(ctx context.Context, ids []string) error {
	noted := bson.D{d("$gt", s.Clock.Now().Add(-tokenUseGrain))}
	_, err := s.tokens.UpdateMany(ctx, bson.D{d("_id", in(ids)), d("last_used_at", bson.D{d("$not", noted)})},
		bson.D{d("$currentDate", bson.D{d("last_used_at", true)})})
	return explain(err, "noting the use of tokens")
}
