package input

import (
	"math"
	"strings"
	"unicode"

	"github.com/mscheduler/mscheduler/internal/safetext"
)

// Name checks the name of a type or a tenant: 1 to 100 of [a-zA-Z0-9._-]. The
// missing slash is what keeps task ids unambiguous. field names the input in the error.
func Name(field, name string) error {
	if safetext.IsName(name) {
		return nil
	}
	if name == "" {
		return Invalid(field, "is empty; want 1 to 100 of a-z A-Z 0-9 . _ -")
	}
	return Invalid(field, "is %q; want 1 to 100 of a-z A-Z 0-9 . _ -", safetext.Clip(name, 120))
}

// ownTypes begin the names of types whose tasks mscheduler sends itself.
const ownTypes = "mscheduler."

// OwnType reports whether mscheduler itself sends the tasks of a type, such as deliveries of callbacks.
// Their arguments name things of any tenant, so nobody else sends them.
func OwnType(name string) bool { return strings.HasPrefix(name, ownTypes) }

// NodeType is the type of the tasks of nodes that no worker runs: their flows decide about them.
const NodeType = ownTypes + "node"

// UserType checks the name of a type of which somebody wants tasks: as [Name] does, and that it is not one
// of mscheduler's own.
func UserType(field, name string) error {
	if OwnType(name) {
		return Invalid(field, "is %q; the types that begin with %s do the work of mscheduler itself", safetext.Clip(name, 120), ownTypes)
	}
	return Name(field, name)
}

// Key checks an idempotency key: 1 to 400 bytes of valid UTF-8, no NUL.
func Key(key string) error {
	switch {
	case key == "":
		return Invalid("key", "is empty")
	case len(key) > MaxKeyBytes:
		return Invalid("key", "has %d bytes; at most %d are allowed", len(key), MaxKeyBytes)
	case !safetext.IsText(key):
		return Invalid("key", "must be valid UTF-8 without a NUL byte")
	default:
		return nil
	}
}

// InAddress refuses what would name a new thing and cannot be a part of an address: clients and servers take the
// parts . and .. out of the path of a URL. A thing that has such a name already keeps it.
func InAddress(field, name string) error {
	if name == "." || name == ".." {
		return Invalid(field, "is %q; . and .. cannot be a part of an address", name)
	}
	return nil
}

// WorkerID checks a worker's id: 1 to 200 bytes of text, not starting with one of
// the characters that audiences use for something else.
func WorkerID(field, id string) error {
	switch {
	case id == "":
		return Invalid(field, "is empty")
	case len(id) > 200:
		return Invalid(field, "has %d bytes; at most 200 are allowed", len(id))
	case id[0] == '*' || id[0] == '#':
		return Invalid(field, "is %q; it must not start with * or #", id)
	case len(id) > 1 && id[1] == ':':
		return Invalid(field, "is %q; its second character must not be a colon, which marks other audiences", id)
	default:
		return Text(field, id)
	}
}

// EngineID is the checked id of an engine among the workers; "" = a random one. It names no kind,
// since the engines of a process may be one.
func EngineID(id string) (string, error) {
	if id == "" {
		return "engine-" + Random()[:12], nil
	}
	return id, WorkerID("engine_id", id)
}

// Label checks a short text that tasks are filtered by: at most 200 bytes.
func Label(field, s string) error {
	switch {
	case len(s) > 200:
		return Invalid(field, "has %d bytes; at most 200 are allowed", len(s))
	default:
		return Text(field, s)
	}
}

// Note checks the reason that a person gives for a change, which may be empty.
func Note(note string) error {
	switch {
	case len(note) > MaxTextBytes:
		return Invalid("note", "has %d bytes; at most %d are allowed", len(note), MaxTextBytes)
	default:
		return Text("note", note)
	}
}

// Text checks a remark or reason; what is too long is cut, not refused.
func Text(field, s string) error {
	if !safetext.IsText(s) {
		return Invalid(field, "must be valid UTF-8 without a NUL byte")
	}
	return nil
}

// Progress checks what a handler says of its progress.
func Progress(percent float64, message string) error {
	switch {
	case math.IsNaN(percent) || percent < 0 || percent > 100:
		return Invalid("percent", "is %v; want 0 to 100", percent)
	case len(message) > MaxTextBytes:
		return Invalid("message", "has %d bytes; at most %d are allowed", len(message), MaxTextBytes)
	default:
		return Text("message", message)
	}
}

// Line checks a name that people are shown: text in one line, without what a terminal
// takes for more than that, such as escapes, line breaks and changes of direction.
func Line(field, s string) error {
	for _, r := range s {
		if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			return Invalid(field, "is %q; it must not have control characters, such as line breaks", s)
		}
	}
	return nil
}

// SystemDatabase reports whether MongoDB keeps its own data in a database of the name.
func SystemDatabase(name string) bool { return name == "admin" || name == "local" || name == "config" }
