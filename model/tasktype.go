package model

import (
	"time"
)

// TaskType is one document of the collection task_types (seed 000: task_metadata). It
// configures all tasks of a type; options of a task override it. A zero field is not set.
type TaskType struct {
	Code        string `bson:"_id"`                   // the type's name, as tasks carry it
	Name        string `bson:"name,omitempty"`        // for people
	Category    string `bson:"category,omitempty"`    // of tasks without one of their own; workers may handle a whole category
	Description string `bson:"description,omitempty"` // for people

	// Options of its tasks: retry, timeouts, need_manual, callback, retention. Options that
	// belong to one task (workers, limit_key, expires_at) are refused.
	Options Options `bson:"options,omitempty"`
	// ClaimBy is the label by which restricted workers find their tasks without scanning tasks
	// with other labels; "" = none.
	ClaimBy ClaimBy `bson:"claim_by,omitempty"`
	// MaxRunning limits the concurrent executions on all workers together; 0 = no limit.
	MaxRunning int `bson:"max_running,omitempty"`
	// RateLimit limits the rate at which executions begin on all workers together; nil = no
	// limit.
	RateLimit *RateLimit `bson:"rate_limit,omitempty"`
	// KeyLimit limits the tasks of each limit_key of the type; nil = one task at a time.
	KeyLimit *KeyLimit `bson:"key_limit,omitempty"`

	Version   int64     `bson:"version"` // increases with every change; a change names the version that it read
	CreatedAt time.Time `bson:"created_at"`
	UpdatedAt time.Time `bson:"updated_at"`
}

// RateLimit permits Count executions to begin in every interval of length Per.
type RateLimit struct {
	Count int           `bson:"count"`  // 1 to 100,000
	Per   time.Duration `bson:"per_ms"` // 100 ms to a day
}

// KeyLimit limits the tasks of one limit_key.
type KeyLimit struct {
	MaxRunning int        `bson:"max_running,omitempty"` // 0 = one, or no limit if RateLimit is set
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
