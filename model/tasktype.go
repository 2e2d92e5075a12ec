package model

import (
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
