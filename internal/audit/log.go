package audit

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/mscheduler/mscheduler/internal/bulk"
	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/groupcommit"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/model"
)

const (
	// perBatch is how many entries one write has.
	perBatch = 500
	// maxText is how many bytes a reason, or where a change came from, has at most.
	maxText = 500
	// readyTime bounds the setup of an empty database, by its first change.
	readyTime = time.Minute
)

// Config of a [Log].
type Config struct {
	Store   *store.Store
	Log     zerolog.Logger
	Timeout time.Duration // of a write, which all changes that wait for it share; defaults to 5 s
}

// Log writes the audit of one process. Changes at the same time share writes. It is safe for concurrent use.
type Log struct {
	Config
	begins  *groupcommit.Queue[*opening]
	ends    *groupcommit.Queue[*store.AuditEntry]
	refused clock.Seldom
}

// opening is an entry that is to be stored before its change.
type opening struct {
	entry  *store.AuditEntry
	stored chan<- error // has room
}

// New makes a log. It does no I/O.
func New(c Config) *Log {
	l := &Log{Config: c}
	if l.Timeout <= 0 {
		l.Timeout = 5 * time.Second
	}
	l.begins = groupcommit.New(perBatch, l.open)
	l.ends = groupcommit.New(perBatch, l.end)
	return l
}

// Begin stores the entry of a change that is about to be made. After an error the change must not be made.
// An entry with an outcome is of a change that has ended already.
func (l *Log) Begin(ctx context.Context, e *store.AuditEntry) error {
	clip(e)
	l.share(ctx, e)
	stored := make(chan error, 1)
	if err := l.begins.Put(ctx, &opening{e, stored}); err != nil {
		return err
	}
	select {
	case err := <-stored:
		return err
	case <-ctx.Done(): // the entry may be stored, of a change that nobody makes: it stays unknown
		return context.Cause(ctx)
	}
}

func (l *Log) open(batch []*opening) {
	err := l.insert(batch)
	for _, o := range batch {
		o.stored <- err
	}
}

func (l *Log) insert(batch []*opening) error {
	entries := make([]*store.AuditEntry, len(batch))
	for i, o := range batch {
		entries[i] = o.entry
	}
	within := func(limit time.Duration, do func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return do(ctx)
	}
	err := within(l.Timeout, func(ctx context.Context) error {
		_, err := l.Store.Topology(ctx) // where the database is away, nobody waits for its setup
		return err
	})
	if err == nil {
		err = within(readyTime, l.Store.Ready)
	}
	if err != nil {
		return err
	}
	return within(l.Timeout, func(ctx context.Context) error {
		if err := l.Store.FreshClock(ctx); err != nil {
			return err
		}
		return l.Store.Audit.Insert(ctx, entries)
	})
}

// End notes what became of a change. It does not wait for the write.
func (l *Log) End(ctx context.Context, e *store.AuditEntry) {
	clip(e)
	l.share(ctx, e)
	_ = l.ends.Put(context.WithoutCancel(ctx), e) // nobody closes it
}

func (l *Log) end(batch []*store.AuditEntry) {
	ctx, cancel := context.WithTimeout(context.Background(), l.Timeout)
	defer cancel()
	err := l.Store.FreshClock(ctx)
	if err == nil {
		err = l.Store.Audit.End(ctx, batch)
	}
	if err != nil {
		l.Log.Warn().Err(err).Int("entries", len(batch)).Str("first", batch[0].ID).Msg("could not write outcomes to the audit; their entries stay unknown")
	}
}

// Refused records a change that the caller may not make, at most once a minute for each caller and
// operation: who repeats it must not fill the database. It does not wait for the write.
func (l *Log) Refused(ctx context.Context, e *store.AuditEntry) {
	if !l.refused.Again(e.Who+" "+e.Operation, l.Store.Local()) {
		return
	}
	e.Outcome = store.AuditRefused
	clip(e)
	_ = l.begins.Put(context.WithoutCancel(ctx), &opening{e, make(chan error, 1)})
}

// Wait returns when all that was noted so far is written, or with the cause of ctx: for a graceful stop.
func (l *Log) Wait(ctx context.Context) error {
	if err := l.begins.Wait(ctx); err != nil {
		return err
	}
	return l.ends.Wait(ctx)
}

// share removes the tenant from an entry about a bulk job over all tenants, also if the job cannot be read: the job has
// the id of a thing without a tenant, and is hidden from tokens for those.
func (l *Log) share(ctx context.Context, e *store.AuditEntry) {
	id := e.Resource
	if e.Kind == Bulk {
		tenant, key, _ := strings.Cut(e.Resource, "/")
		id = tenant + "/" + bulk.TaskType + "/" + key
	} else if e.Kind != Task {
		return
	}
	if e.Tenant != model.NoTenant || !strings.HasPrefix(id, model.TaskID("", bulk.TaskType, "")) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.Timeout)
	defer cancel()
	raw, err := l.Store.History.LifeRaw(ctx, id, 0)
	if !errors.Is(err, store.ErrNotFound) && (err != nil || bulk.OfAllTenants(raw)) {
		e.Tenant = ""
	}
}

func clip(e *store.AuditEntry) {
	for _, text := range []*string{&e.Reason, &e.From, &e.Who, &e.Name, &e.Resource} {
		*text = safetext.Clip(*text, maxText)
	}
}
