package model

import (
	"errors"
	"time"
)

// TaskType is one document of the collection task_types (seed 000: task_metadata): what
// holds for all tasks of a type, unless the task says otherwise. A zero field says nothing.
type TaskType struct {
	Code        string `bson:"_id"`                   // the type's name, as tasks carry it
	Name        string `bson:"name,omitempty"`        // for people
	Category    string `bson:"category,omitempty"`    // of tasks that say none; workers may serve a whole category
	Description string `bson:"description,omitempty"` // for people

	// Options of its tasks: retry, timeouts, need_manual, callback, retention. Those that
	// belong to one task (workers, limit_key, expires_at) are refused.
	Options Options `bson:"options,omitempty"`
	// ClaimBy is the label by which restricted workers find their tasks without reading
	// through everybody else's; "" = none.
	ClaimBy ClaimBy `bson:"claim_by,omitempty"`
	// MaxRunning is how many executions are open at once, over all workers; 0 = no limit.
	MaxRunning int `bson:"max_running,omitempty"`
	// RateLimit is how many executions begin in a time, over all workers; nil = no limit.
	RateLimit *RateLimit `bson:"rate_limit,omitempty"`
	// KeyLimit limits the tasks of each limit_key of the type; nil = one at a time.
	KeyLimit *KeyLimit `bson:"key_limit,omitempty"`

	Version   int64     `bson:"version"` // rises with every change; a change names the one it saw
	CreatedAt time.Time `bson:"created_at"`
	UpdatedAt time.Time `bson:"updated_at"`
}

// RateLimit lets Count executions begin in every span of Per.
type RateLimit struct {
	Count int           `bson:"count"`  // 1 to 100,000
	Per   time.Duration `bson:"per_ms"` // 100 ms to a day
}

// KeyLimit is what holds for the tasks of one limit_key.
type KeyLimit struct {
	MaxRunning int        `bson:"max_running,omitempty"` // 0 = one, or no limit where there is a rate
	RateLimit  *RateLimit `bson:"rate_limit,omitempty"`
}

// ClaimBy names a label of tasks.
type ClaimBy string

// The labels that a type may be claimed by.
const (
	ClaimByTenant   ClaimBy = "tenant"
	ClaimByCreator  ClaimBy = "creator"
	ClaimByCategory ClaimBy = "category"
)

// Bounds of the limits.
const (
	MaxMaxRunning = 100_000
	maxRateCount  = 100_000
	minRatePer    = 100 * time.Millisecond
	maxRatePer    = 24 * time.Hour
)

// Validate finds everything that is wrong with the type.
func (t *TaskType) Validate() error {
	v := validator{errs: []error{ValidName("type", t.Code)}}
	for field, s := range map[string]string{"name": t.Name, "category": t.Category} {
		if err := ValidLabel(field, s); err != nil {
			v.errs = append(v.errs, err)
		}
	}
	if len(t.Description) > maxTextBytes || !validText(t.Description) {
		v.add("description", "must be at most %d bytes of valid UTF-8 without a NUL byte", maxTextBytes)
	}
	v.errs = append(v.errs, t.Options.ValidateShared("options"), t.Options.ValidFor(t.Code))
	switch t.ClaimBy {
	case "", ClaimByTenant, ClaimByCreator, ClaimByCategory:
	default:
		v.add("claim_by", "is %q; want tenant, creator or category", clip(string(t.ClaimBy), 40))
	}
	v.within("max_running", t.MaxRunning, MaxMaxRunning)
	v.rate("rate_limit", t.RateLimit)
	if t.KeyLimit != nil {
		v.within("key_limit.max_running", t.KeyLimit.MaxRunning, MaxMaxRunning)
		v.rate("key_limit.rate_limit", t.KeyLimit.RateLimit)
	}
	return errors.Join(v.errs...)
}

// ValidateShared is [Options.Validate] for options that a type or a handler says to all its
// tasks: it refuses those that belong to one task.
func (o *Options) ValidateShared(field string) error {
	if o.ConcurrentWorkerCount != 0 || len(o.SpecificWorkerIDs) > 0 || o.LimitKey != "" || !o.ExpiresAt.IsZero() || o.ClaimBy != "" {
		return Invalid(field, "cannot set workers, concurrent_workers, limit_key, expires_at or claim_by: they belong to a task")
	}
	return o.Validate()
}

func (v *validator) rate(field string, r *RateLimit) {
	if r == nil {
		return
	}
	if r.Count < 1 || r.Count > maxRateCount {
		v.add(field+".count", "is %d; want 1 to %d", r.Count, maxRateCount)
	}
	if r.Per < minRatePer || r.Per > maxRatePer {
		v.add(field+".per", "is %v; want %v to %v", r.Per, minRatePer, maxRatePer)
	}
}
