package store

import (
	"context"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
)

// DefaultAudit is for how long an entry of the audit stays unless somebody said otherwise.
const DefaultAudit = 90 * 24 * time.Hour

// auditID names the document of control with the retention of the audit.
const auditID = "audit"

// AuditOutcome is what became of a change.
type AuditOutcome string

// The outcomes of changes.
const (
	AuditUnknown AuditOutcome = "unknown" // it began; its end is not written yet, or was never
	AuditOK      AuditOutcome = "ok"
	AuditRefused AuditOutcome = "refused" // nothing was changed: the caller is told why
	AuditFailed  AuditOutcome = "failed"  // an error cut it off: it may be done, in part
)

// AuditOutcomes are all of them.
var AuditOutcomes = []AuditOutcome{AuditUnknown, AuditOK, AuditRefused, AuditFailed}

// Audit is the collection audit. Its callers make sure that the clock is fresh, see [Store.FreshClock].
type Audit struct {
	*core
	count atomic.Uint32 // of the entries that this process has written
}

// AuditEntry is one document of audit: one change that somebody asked for. Times are the database's. What
// is JSON has no secrets in it.
type AuditEntry struct {
	ID        string       `bson:"_id"` // sorts by time
	At        time.Time    `bson:"at"`
	Who       string       `bson:"who"`            // token/ID, oidc/SUBJECT, os/USER@HOST, or anybody
	Name      string       `bson:"name,omitempty"` // of the token, for people
	From      string       `bson:"from"`           // the address, or host and process
	Door      string       `bson:"door"`           // api or cli
	Operation string       `bson:"operation"`      // operationId of the API, or the command
	Kind      string       `bson:"kind,omitempty"`
	Resource  string       `bson:"resource,omitempty"` // id of the thing that it is about; "" = several, or none
	Tenant    string       `bson:"tenant,omitempty"`   // of the resource; "" = several, or none
	Request   string       `bson:"request,omitempty"`  // JSON: what the caller said
	Before    string       `bson:"before,omitempty"`   // JSON: what of the resource has changed, as it was
	After     string       `bson:"after,omitempty"`    // JSON: and as it became
	Count     int64        `bson:"count,omitempty"`    // of things, where it is about several
	Outcome   AuditOutcome `bson:"outcome"`
	Status    int          `bson:"status,omitempty"` // of HTTP, or the exit code
	Reason    string       `bson:"reason,omitempty"`
	EndedAt   time.Time    `bson:"ended_at,omitempty"`
	DeleteAt  time.Time    `bson:"delete_at,omitempty"`
}

// Insert stores new entries, and sets their ids, times and outcomes where they have none. Index: _id.
func (s *Audit) Insert(ctx context.Context, entries []*AuditEntry) error {
	keep := s.keptFor(ctx, auditID, DefaultAudit)
	now := s.Clock.Now()
	for _, e := range entries {
		e.ID, e.At = input.OrderedKey(now, s.count.Add(1)), now
		if e.Outcome == "" {
			e.Outcome = AuditUnknown
		} else {
			e.EndedAt = now
		}
		if keep > 0 {
			e.DeleteAt = now.Add(keep)
		}
	}
	_, err := insertNew(ctx, s.core, s.audit, "writing audit record", entries)
	return err
}

// End writes what became of changes. Index: _id.
func (s *Audit) End(ctx context.Context, entries []*AuditEntry) error {
	now := s.Clock.Now()
	_, err := bulk(ctx, s.core, s.audit, "completing audit record", entries, func(e **AuditEntry) change {
		set, unset := bson.D{d("outcome", (*e).Outcome), d("ended_at", now)}, bson.D{}
		for _, f := range []bson.E{
			d("kind", (*e).Kind), d("resource", (*e).Resource), d("tenant", (*e).Tenant), d("before", (*e).Before), d("after", (*e).After), d("reason", (*e).Reason),
		} {
			setOrUnset(&set, &unset, f.Value != "", f.Key, f.Value)
		}
		setOrUnset(&set, &unset, (*e).Count != 0, "count", (*e).Count)
		setOrUnset(&set, &unset, (*e).Status != 0, "status", (*e).Status)
		return change{id: (*e).ID, update: bson.D{d("$set", set), d("$unset", unset)}, undone: isNot("ended_at", now)}
	})
	return err
}

// AuditFilter selects entries. Zero fields select all.
type AuditFilter struct {
	Who, Operation, Kind, Resource, Tenant string
	Outcome                                AuditOutcome
	After, Before                          time.Time // at After or later, before Before
}

// auditLook is how many entries one page reads at most to find those that it lists.
const auditLook = 2000

// List reads a page of entries, the newest first, behind the id; "" = from the newest. It reads through
// one index and leaves out what the other conditions exclude, at most [auditLook] entries in all: a page may
// have fewer entries than its limit, or none, and still have a next one. next is the id behind which that
// begins; "" = this is the last page. Indexes: resource, who, operation, tenant, _id.
func (s *Audit) List(ctx context.Context, f AuditFilter, after string, limit int) (page []*AuditEntry, next string, err error) {
	query, hint := bson.D{}, "_id_"
	for _, by := range []struct{ index, value string }{
		{indexResource, f.Resource}, {indexWho, f.Who}, {indexOperation, f.Operation}, {indexTenant, f.Tenant},
	} {
		if by.value != "" {
			query, hint = bson.D{d(by.index, by.value)}, by.index
			break
		}
	}
	if times := f.times(after); len(times) > 0 {
		query = append(query, d("_id", times))
	}
	seen, last := 0, ""
	o := options.Find().SetSort(bson.D{d("_id", -1)}).SetHint(hint).SetLimit(auditLook + 1)
	if f.only() {
		o.SetLimit(int64(limit) + 1)
	}
	err = readEach(ctx, s.audit, "reading the audit", query, o, func(doc bson.Raw) bool {
		if len(page) == limit || seen == auditLook {
			next = last
			return false
		}
		seen++
		last, _ = doc.Lookup("_id").StringValueOK()
		e := new(AuditEntry)
		if err := codec.Decode(doc, e); err != nil {
			s.complain(s.audit, doc, err)
		} else if f.selects(e) {
			page = append(page, e)
		}
		return true
	})
	return page, next, err
}

// times is the range of ids that the filter selects behind an id.
func (f *AuditFilter) times(after string) (ids bson.D) {
	if !f.After.IsZero() {
		ids = append(ids, d("$gte", input.FirstKey(f.After)))
	}
	if before := f.Before; !before.IsZero() && (after == "" || input.FirstKey(before) < after) {
		after = input.FirstKey(before)
	}
	if after != "" {
		ids = append(ids, d("$lt", after))
	}
	return ids
}

// only says whether an index selects exactly what the filter does.
func (f *AuditFilter) only() bool {
	conditions := 0
	for _, value := range []string{f.Who, f.Operation, f.Kind, f.Resource, f.Tenant, string(f.Outcome)} {
		if value != "" {
			conditions++
		}
	}
	return conditions == 0 || conditions == 1 && f.Kind == "" && f.Outcome == ""
}

func (f *AuditFilter) selects(e *AuditEntry) bool {
	for _, c := range [][2]string{
		{f.Who, e.Who}, {f.Operation, e.Operation}, {f.Kind, e.Kind}, {f.Resource, e.Resource}, {f.Tenant, e.Tenant}, {string(f.Outcome), string(e.Outcome)},
	} {
		if c[0] != "" && c[0] != c[1] {
			return false
		}
	}
	return true
}

// Retention is how long entries stay; 0 = for ever. Index: _id.
func (s *Audit) Retention(ctx context.Context) (time.Duration, error) {
	return s.retention(ctx, auditID, DefaultAudit)
}

// SetRetention says how long entries that are written from now on stay: a minute to 100 years, or 0 = for
// ever. Other processes learn of it within a minute. Index: _id.
func (s *Audit) SetRetention(ctx context.Context, keep time.Duration) error {
	if keep != 0 && (keep < time.Minute || keep > 100*365*24*time.Hour) {
		return input.Invalid("retention", "is %v; want a minute to 100 years, or 0 for ever", keep)
	}
	return s.setRetention(ctx, auditID, keep)
}
