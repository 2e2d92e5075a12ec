package input

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Args checks encoded arguments: a well-formed BSON value of at most
// [MaxArgsBytes]. [codec.EncodeValue] makes such a value; this is for those that came
// another way.
func Args(v bson.RawValue) error {
	switch {
	case v.Type == 0 && len(v.Value) == 0:
		return nil
	case len(v.Value) > MaxArgsBytes:
		return Invalid("args", "has %d bytes as BSON; at most %d are allowed", len(v.Value), MaxArgsBytes)
	case v.Validate() != nil:
		return Invalid("args", "is not a well-formed BSON value: %v", v.Validate())
	default:
		return nil
	}
}

// Priority checks a priority; nil is the default.
func Priority(p *int) error {
	if p != nil && (*p < 0 || *p > MaxPriority) {
		return Invalid("priority", "is %d; want 0 to %d, %d runs first", *p, MaxPriority, MaxPriority)
	}
	return nil
}

// Start checks a start time; zero means now.
func Start(at time.Time) error {
	if !at.IsZero() && (at.Year() < 1970 || at.After(latestTime)) {
		return Invalid("start_time", "is %v; want a time between 1970 and 9999", at)
	}
	return nil
}

// Bounds of what a task document may gather.
const (
	MaxBadStates = 10      // executions that ended badly and are still listed
	MaxTextBytes = 4 << 10 // of a remark, a progress message
)

// Size limits of the values a task carries, in bytes of their BSON form.
const (
	MaxArgsBytes       = 256 << 10
	MaxResultBytes     = 1 << 20
	MaxCheckpointBytes = 1 << 20
)
