package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/groupcommit"
	"github.com/mscheduler/mscheduler/internal/store"
)

// Window is how long after a revocation a process may still accept the token.
const Window = 5 * time.Second

// perBatch is how many tokens one read or write names, and usesQueued how many uses wait to be written.
const (
	perBatch   = 1000
	usesQueued = 10_000
)

var (
	// ErrNoToken is returned for a token that is malformed, unknown or revoked, and for a wrong secret:
	// the error does not tell which.
	ErrNoToken = errors.New("the token is not valid")
	// ErrExpired is returned for a token that was valid until its expiry. Only who has its secret gets it.
	ErrExpired = errors.New("the token has expired")
)

// TooManyError is returned to an address with too many failed sign-ins.
type TooManyError struct {
	RetryAfter time.Duration // when it may try again
}

func (e *TooManyError) Error() string {
	return fmt.Sprintf("too many failed sign-ins from this address; retry in %s", e.RetryAfter.Round(time.Second))
}

// Config of a [Guard].
type Config struct {
	Store  *store.Store
	Issuer *Issuer // whose tokens are accepted, too, and whose Check was nil; nil = none
	Log    zerolog.Logger
}

// Guard checks tokens for one process. It is safe for concurrent use. It has no goroutine while nobody
// uses it.
//
// It remembers a token for [Window] after the read, and an id without a valid token as long. The
// process reads tokens one batch at a time, however many checks wait: a flood of tokens that do not
// exist costs the database at most one small read after the other.
type Guard struct {
	store    *store.Store
	log      zerolog.Logger
	clock    clock.Clock
	failures *limiter
	reads    *groupcommit.Queue[*question]
	uses     *groupcommit.Queue[string]
	noted    clock.Seldom  // whose use was noted within the last minute
	issuer   *issuer       // nil = none
	callTime time.Duration // of a read, and of a write of uses

	mu sync.Mutex
	// known and missing are apart, so that ids which somebody made up never displace tokens.
	known   map[string]view
	missing map[string]clock.Instant // ids without a valid token, and when they were read
	any     bool                     // there is a token
	anyAt   clock.Instant            // when that was read
}

// view is a token as it was read.
type view struct {
	token *store.Token
	at    clock.Instant // before the read
}

// question asks what the token of an id is.
type question struct {
	id     string
	answer chan<- answer // has room
}

// answer to a question; the token is nil for an id without a valid one.
type answer struct {
	token *store.Token
	err   error
}

// New makes a guard. It does no I/O.
func New(c Config) *Guard {
	g := &Guard{
		store: c.Store, log: c.Log, clock: c.Store.Local(), failures: newLimiter(c.Store.Local()),
		known: map[string]view{}, missing: map[string]clock.Instant{}, callTime: Window,
	}
	g.reads = groupcommit.New(perBatch, g.answer)
	g.uses = groupcommit.New(usesQueued, g.note)
	if c.Issuer != nil {
		g.issuer = newIssuer(*c.Issuer, g.clock, g.store.Clock.Now, c.Log)
	}
	return g
}

// Check returns what the token allows. from is the address that sent it, as "ip" or "ip:port", for the
// limiter of failed sign-ins.
//
// The errors are [ErrNoToken], [ErrExpired], [ErrNoRights], [ErrNoKeys], a [*TooManyError], the cause of ctx if
// that ends first, and those of the database; the last ones say nothing about the token.
//
// The limiter keeps wrong tokens from the database. It never refuses a right token that the process has
// seen: behind one address there may be many clients, and one of them with an old token must not lock
// the others out. A secret of 160 bits needs no limiter against guesses.
func (g *Guard) Check(ctx context.Context, text, from string) (Grant, error) {
	if text == "" { // nobody tried to sign in
		return Grant{}, ErrNoToken
	}
	from = address(from)
	if g.issuer != nil && !strings.HasPrefix(text, prefix) {
		return g.checkIssued(ctx, text, from)
	}
	id, secret, ok := Split(text)
	given := hash(secret)
	token, fresh := g.recall(id)
	if token == nil || !matches(token.Hash, given) {
		if wait := g.failures.wait(from); wait > 0 {
			return Grant{}, &TooManyError{RetryAfter: wait}
		}
	}
	if ok && !fresh {
		var err error
		if token, err = g.read(ctx, id); err != nil {
			return Grant{}, fmt.Errorf("checking a token: %w", err)
		}
	}
	switch {
	case token == nil || !matches(token.Hash, given):
		g.failures.failed(from)
		return Grant{}, ErrNoToken
	case token.Expired(g.store.Clock.Now()):
		return Grant{}, ErrExpired
	}
	g.used(ctx, id)
	return Grant{Token: token.ID, Name: token.Name, Role: Role(token.Role), Tenants: slices.Clone(token.Tenants)}, nil
}

// checkIssued is Check for a token of the issuer. An address with too many failures has a right one accepted,
// too, if the process knows its key.
func (g *Guard) checkIssued(ctx context.Context, text, from string) (Grant, error) {
	if err := g.store.FreshClock(ctx); err != nil { // by which expiries are judged
		return Grant{}, fmt.Errorf("checking a token: %w", err)
	}
	wait := g.failures.wait(from)
	grant, err := g.issuer.check(ctx, text, wait <= 0)
	if !errors.Is(err, ErrNoToken) {
		return grant, err
	}
	if wait > 0 {
		return Grant{}, &TooManyError{RetryAfter: wait}
	}
	g.failures.failed(from)
	return Grant{}, err
}

// Any reports whether there is a token, be it revoked or expired: whether this deployment uses them. A
// process learns of the first token within [Window], and does not forget it.
func (g *Guard) Any(ctx context.Context) (bool, error) {
	g.mu.Lock()
	exist, fresh := g.any, g.anyAt != (clock.Instant{}) && g.anyAt.Since(g.clock) < Window
	g.mu.Unlock()
	if exist || fresh {
		return exist, nil
	}
	at := clock.Read(g.clock)
	exist, err := g.store.Tokens.Exist(ctx)
	if err != nil {
		return false, fmt.Errorf("checking whether there are tokens: %w", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.any, g.anyAt = g.any || exist, at
	return g.any, nil
}

// recall is what the process knows of an id; nil = no valid token. Only what is fresh counts.
func (g *Guard) recall(id string) (token *store.Token, fresh bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v, known := g.known[id]; known {
		return v.token, v.at.Since(g.clock) < Window
	}
	at, missing := g.missing[id]
	return nil, missing && at.Since(g.clock) < Window
}

// read reads the token of an id, together with those of other checks; nil = no valid token.
func (g *Guard) read(ctx context.Context, id string) (*store.Token, error) {
	answers := make(chan answer, 1)
	if err := g.reads.Put(ctx, &question{id: id, answer: answers}); err != nil {
		return nil, err
	}
	select {
	case a := <-answers:
		return a.token, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// answer answers a batch of questions with one read of what is not known by now.
func (g *Guard) answer(batch []*question) {
	tokens := map[string]*store.Token{}
	var ids []string // to be read
	for _, q := range batch {
		if _, asked := tokens[q.id]; asked {
			continue
		}
		token, fresh := g.recall(q.id)
		tokens[q.id] = token
		if !fresh {
			ids = append(ids, q.id)
		}
	}
	err := g.refresh(ids, tokens)
	for _, q := range batch {
		q.answer <- answer{tokens[q.id], err}
	}
}

// refresh reads tokens into the map, nil for an id without a valid one, and remembers them. It takes no
// longer than the window: what it has read is no older then.
func (g *Guard) refresh(ids []string, into map[string]*store.Token) error {
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.callTime) // the checks that wait share it
	defer cancel()
	if err := g.store.FreshClock(ctx); err != nil { // by which expiries are judged
		return err
	}
	at := clock.Read(g.clock)
	found, err := g.store.Tokens.ByIDs(ctx, ids)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, id := range ids {
		token := found[id]
		if token == nil || !token.RevokedAt.IsZero() {
			into[id] = nil
			delete(g.known, id)
			put(g.missing, id, at)
			continue
		}
		into[id] = token
		put(g.known, id, view{token, at})
	}
	return nil
}

// used notes the use of a token, at most once a minute, and does not wait for the write. Beyond a backlog
// of so many, uses are not noted.
func (g *Guard) used(ctx context.Context, id string) {
	if g.uses.Len() < usesQueued/2 && g.noted.Again(id, g.clock) {
		_ = g.uses.Put(context.WithoutCancel(ctx), id) // nobody closes it
	}
}

// Wait returns when all uses so far are written, or with the cause of ctx: for a graceful stop.
func (g *Guard) Wait(ctx context.Context) error {
	if g.issuer != nil {
		if err := g.issuer.keys.reads.Wait(ctx); err != nil {
			return err
		}
	}
	return g.uses.Wait(ctx)
}

// note writes a batch of uses. Who asks when a token was last used may get the time before.
func (g *Guard) note(ids []string) {
	ctx, cancel := context.WithTimeout(context.Background(), g.callTime)
	defer cancel()
	err := g.store.FreshClock(ctx)
	if err == nil {
		err = g.store.Tokens.Used(ctx, ids)
	}
	if err != nil {
		g.log.Warn().Err(err).Int("tokens", len(ids)).Msg("could not write when tokens were last used; their next use is written")
	}
}
