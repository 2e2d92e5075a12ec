package periodic

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/calendar"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/secret"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/tasktypes"
	"github.com/mscheduler/mscheduler/model"
)

// Errors that callers branch on (errors.Is).
var (
	ErrNotFound = store.ErrNoRule     // no living rule of that id
	ErrExists   = store.ErrRuleExists // a living rule of the tenant has that name
	// ErrChanged is returned for an edit that names another version than the stored one.
	ErrChanged = errors.New("the rule was changed meanwhile")
)

// Config of a Periodic. Only Database is needed.
type Config struct {
	// Database is the caller's and is never closed here.
	Database *mongo.Database
	// Prefix of the collections' names. Defaults to "".
	Prefix string
	// EngineID names this process among the engines. Defaults to an automatic one.
	EngineID string
	// SecretKey seals the keys that the calls of HTTP targets and the callbacks of rules are
	// signed with: 32 bytes as hex or base64; several, separated by commas: the first seals,
	// all open. Defaults to none: a rule with such keys is refused.
	SecretKey string
	// Clock is for tests. Defaults to the machine's.
	Clock clock.Clock
	// Logger gets what an operator should know. Defaults to the zero Logger, which is silent.
	Logger zerolog.Logger
}

// Periodic manages periodic rules, and is an engine while [Periodic.Run] runs. It is safe
// for concurrent use.
type Periodic struct {
	store   *store.Store
	id      string
	types   *tasktypes.Cache
	secrets *secret.Box // nil = none
	log     zerolog.Logger

	mu         sync.Mutex
	calls      map[calendarKey]*calendar.Schedule // parsed rules
	complained map[string]time.Duration           // about which rules, and when
	rank       rank
	queued     time.Duration // when a decision last left a run waiting, by the monotonic clock
}

// New makes a Periodic and checks its configuration. It does no I/O.
func New(cfg Config) (*Periodic, error) {
	st, err := store.Open(store.Config{Database: cfg.Database, Prefix: cfg.Prefix, Clock: cfg.Clock, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	id := cfg.EngineID
	if id == "" {
		id = "periodic-" + randomHex(6)
	} else if err := model.ValidWorkerID("engine_id", id); err != nil {
		return nil, err
	}
	box, err := secret.Parse("secret_key", cfg.SecretKey)
	if err != nil {
		return nil, err
	}
	return &Periodic{store: st, types: tasktypes.New(st), id: id, secrets: box, log: cfg.Logger.With().Str("engine_id", id).Logger(), calls: map[calendarKey]*calendar.Schedule{}, complained: map[string]time.Duration{}}, nil
}

func randomHex(n int) string { return hex.EncodeToString(randomBytes(n)) }

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails, by its contract
	return b
}

// calendarKey is what a parsed rule depends on.
type calendarKey struct {
	cron, zone, gap, fold string
	start                 int64
}

// calendarOf parses the rule's times, once.
func (p *Periodic) calendarOf(r *model.Rule) (*calendar.Schedule, error) {
	start := r.StartAt
	if start.IsZero() {
		start = r.CreatedAt
	}
	k := calendarKey{cron: r.Cron, zone: r.Timezone, start: start.Unix()}
	if r.DST != nil {
		k.gap, k.fold = r.DST.Gap, r.DST.Fold
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.calls[k]; c != nil {
		return c, nil
	}
	c, err := timesOf(r)
	if err != nil {
		return nil, err
	}
	if len(p.calls) > 200_000 { // of rules that are long gone
		clear(p.calls)
	}
	p.calls[k] = c
	return c, nil
}

// never stands for the times of a rule that this release cannot read: there are none.
var never = func() *calendar.Schedule {
	c, err := calendar.Parse(calendar.Spec{Cron: "@every 24h", Start: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)})
	if err != nil {
		panic(err) // a constant
	}
	return c
}()

// withTimes makes a decision that needs the times of the rule.
func (p *Periodic) withTimes(rule func(*model.Rule, *calendar.Schedule, time.Time) (*model.Rule, error)) func(*model.Rule, *calendar.Schedule, time.Time) (*model.Rule, error) {
	return func(r *model.Rule, cal *calendar.Schedule, now time.Time) (*model.Rule, error) {
		if cal == never {
			_, err := p.calendarOf(r)
			return nil, err
		}
		return rule(r, cal, now)
	}
}

// ready makes sure that the schema fits and that the database's clock is known.
func (p *Periodic) ready(ctx context.Context) error {
	if err := p.store.Ready(ctx); err != nil {
		return err
	}
	return p.store.FreshClock(ctx)
}

// maxTries is how often a decision is made anew when somebody else decided in between.
const maxTries = 50

// change reads a rule, decides and writes that, again until nobody interferes, and carries
// out what was decided. rule returns nil when nothing is to change.
func (p *Periodic) change(ctx context.Context, doing, id string, rule func(r *model.Rule, cal *calendar.Schedule, now time.Time) (*model.Rule, error)) (*model.Rule, error) {
	return p.changeAny(ctx, doing, id, func(r *model.Rule, cal *calendar.Schedule, now time.Time) (*model.Rule, error) {
		if !r.DeletedAt.IsZero() {
			return nil, fmt.Errorf("%w: it was deleted", ErrNotFound)
		}
		return rule(r, cal, now)
	})
}

// changeAny is [Periodic.change] of a rule that may have been deleted.
func (p *Periodic) changeAny(ctx context.Context, doing, id string, rule func(r *model.Rule, cal *calendar.Schedule, now time.Time) (*model.Rule, error)) (*model.Rule, error) {
	if err := p.ready(ctx); err != nil {
		return nil, fmt.Errorf("%s rule %s: %w", doing, id, err)
	}
	for range maxTries {
		began := clock.Read(p.store.Local())
		before, err := p.store.Rule(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("%s a rule: %w", doing, err)
		}
		cal, err := p.calendarOf(before)
		if err != nil {
			cal = never // it can be mended, disabled and deleted all the same
		}
		after, err := rule(before, cal, p.store.Clock.Now())
		if err != nil {
			return nil, fmt.Errorf("%s rule %s: %w", doing, before.Name, err)
		}
		if after == nil {
			return before, nil
		}
		applied, refused, err := p.decidePortion(ctx, began, []store.RuleWrite{{Before: before, After: after}})
		if err == nil {
			err = refused[0]
		}
		if err != nil {
			return nil, fmt.Errorf("%s rule %s: %w", doing, before.Name, err)
		}
		if applied[0] {
			return after, nil
		}
	}
	return nil, fmt.Errorf("%s rule %s: somebody else changed it %d times in between", doing, id, maxTries)
}

// frozen: a process that stood still for so long between reading a rule and carrying out
// what it decided reads the rule again.
const frozen = time.Minute

// unlessFrozen returns the rules, or, where this process stood still since they were about to
// be read, what they are now: what it is about to do may have been done, and be over, long
// ago, so only what is still planned counts.
func (p *Periodic) unlessFrozen(ctx context.Context, began clock.Instant, rules []*model.Rule) ([]*model.Rule, error) {
	if began.Since(p.store.Local()) <= frozen {
		return rules, nil
	}
	ids := make([]string, len(rules))
	for i, r := range rules {
		ids[i] = r.ID
	}
	found, err := p.store.RulesByIDs(ctx, ids)
	var current []*model.Rule
	for _, r := range found {
		if r != nil {
			current = append(current, r)
		}
	}
	return current, err
}

// decideAll writes decisions and carries out those that were applied, portion by portion.
// What cannot be carried out now stays planned, for whoever looks next. One that the server
// refuses concerns its own rule alone. began is when the rules were about to be read.
func (p *Periodic) decideAll(ctx context.Context, began clock.Instant, writes []store.RuleWrite) (applied []bool, refused map[int]error, err error) {
	parts := portions(writes, func(w store.RuleWrite) *model.Rule { return w.After })
	is := make([][]bool, len(parts))
	not := make([]map[int]error, len(parts))
	errs := make([]error, len(parts))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(atOnce, len(parts)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(parts); i = int(next.Add(1)) - 1 {
				if is[i], not[i], errs[i] = p.decidePortion(ctx, began, parts[i]); errs[i] != nil {
					next.Store(int64(len(parts))) // the others are decided when somebody looks again
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	refused = map[int]error{}
	for part, whys := range not {
		for i, why := range whys {
			refused[len(applied)+i] = why
			p.complain(parts[part][i].After.ID, why)
		}
		applied = append(applied, is[part]...)
	}
	return applied, refused, nil
}

// atOnce is how many portions go out at the same time: one is encoded while the server
// works on another.
const atOnce = 2

func (p *Periodic) decidePortion(ctx context.Context, began clock.Instant, writes []store.RuleWrite) (applied []bool, refused map[int]error, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := p.types.Fresh(ctx, tasktypes.MaxAge); err != nil {
		return nil, nil, err
	}
	for _, w := range writes {
		w.After.Decision = randomHex(8)
		complete(w, p.types.Get)
	}
	if applied, refused, err = p.store.WriteRules(ctx, writes); err != nil {
		return nil, nil, err
	}
	var decided []*model.Rule
	for i, w := range writes {
		if applied[i] {
			decided = append(decided, w.After)
		}
	}
	p.noteQueues(decided)
	if decided, err = p.unlessFrozen(ctx, began, decided); err != nil {
		return applied, refused, nil // it stays planned, for whoever looks next
	}
	if _, err := p.carryOut(ctx, decided); err != nil {
		p.log.Warn().Err(err).Msg("what was decided about rules is carried out later")
	}
	return applied, refused, nil
}
