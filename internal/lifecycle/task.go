package lifecycle

// Bounds of what a task document may gather.
const (
	maxReasonBytes = 4 << 10 // of a fail_reason or error_info
)
