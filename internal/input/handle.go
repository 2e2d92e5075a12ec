package input

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/mscheduler/mscheduler/model"
)

// Handle names one execution to the outside: who has it may end or ping that
// execution and no other. It contains the task id, so every write finds its shard.
type Handle struct {
	TaskID     string
	Generation int64
	ExecID     string
}

// HandleOf names an execution of the task.
func HandleOf(t *model.Task, execID string) Handle {
	return Handle{TaskID: t.ID, Generation: t.Generation, ExecID: execID}
}

// String encodes the handle so that it fits an URL.
func (h Handle) String() string {
	var plain, encoded [256]byte // mostly enough, and then on the stack
	return string(base64.RawURLEncoding.AppendEncode(encoded[:0], h.appendID(plain[:0])))
}

// ExecutionID names the execution uniquely for ever: task id, generation and what is shown of the
// exec_id. Other systems get it, so nobody can make the handle of it.
func (h Handle) ExecutionID() string {
	h.ExecID = ShownExecID(h.ExecID)
	var id [256]byte
	return string(h.appendID(id[:0]))
}

func (h Handle) appendID(dst []byte) []byte {
	dst = append(append(dst, h.TaskID...), '@')
	dst = append(strconv.AppendInt(dst, h.Generation, 10), '@')
	return append(dst, h.ExecID...)
}

// ParseHandle reads what [Handle.String] wrote.
func ParseHandle(s string) (Handle, error) {
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return Handle{}, Invalid("handle", "is not an execution handle")
	}
	// From the right: a key may contain an @.
	rest, exec, ok := cutLast(string(raw), "@")
	id, gen, ok2 := cutLast(rest, "@")
	generation, err := strconv.ParseInt(gen, 10, 64)
	if !ok || !ok2 || err != nil || exec == "" {
		return Handle{}, Invalid("handle", "is not an execution handle")
	}
	if _, _, _, err := ParseTaskID(id); err != nil {
		return Handle{}, Invalid("handle", "is not an execution handle")
	}
	h := Handle{TaskID: id, Generation: generation, ExecID: exec}
	if h.String() != s { // base64 and numbers have several spellings; a handle has one
		return Handle{}, Invalid("handle", "is not an execution handle")
	}
	return h, nil
}

// ShownExecID returns what is shown of an exec_id: the same text for the same id, and not the way back.
// Whoever knows the id itself can make the handle, which is the token that completes the execution. Tasks
// claimed in one batch share it, so it is hidden after the end of an execution, too. "" = there is none.
func ShownExecID(execID string) string {
	if execID == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(execID))
	return hex.EncodeToString(sum[:8])
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
