package form

import (
	"github.com/mscheduler/mscheduler/model"
)

// Type has the settings of a task type: what holds for all tasks of it.
type Type struct {
	Code        string `json:"code,omitzero"`
	Name        string `json:"name,omitzero"`
	Category    string `json:"category,omitzero"`
	Description string `json:"description,omitzero"`
	Version     int64  `json:"version,omitzero"` // of the stored type; 0 = any
	Paused      *bool  `json:"paused,omitzero"`

	Options

	ClaimBy    string     `json:"claim_by,omitzero"`
	MaxRunning int        `json:"max_running,omitzero"`
	RateLimit  *RateLimit `json:"rate_limit,omitzero"`
	KeyLimit   *KeyLimit  `json:"key_limit,omitzero"`
}

// RateLimit lets Count executions begin in every span of Per.
type RateLimit struct {
	Count int       `json:"count,omitzero"`
	Per   *Duration `json:"per,omitzero" unit:"1s"`
}

// KeyLimit is what holds for the tasks of one limit_key.
type KeyLimit struct {
	MaxRunning int        `json:"max_running,omitzero"`
	RateLimit  *RateLimit `json:"rate_limit,omitzero"`
}

// Model is the type that the form says.
func (t *Type) Model() (out model.TaskType, err error) {
	convert(&out, t)
	out.Options, err = t.Options.Model(noZone, noNow)
	return out, err
}

// TypeOf is a type as a file says it, without its secrets.
func TypeOf(t *model.TaskType, paused bool) *Type {
	out := &Type{}
	convert(out, t)
	out.Options = *OptionsOf(&t.Options)
	if paused {
		out.Paused = &paused
	}
	return out
}
