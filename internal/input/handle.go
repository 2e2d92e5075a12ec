package input

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/mscheduler/mscheduler/model"
)

// Handle names one execution to the outside: who has it may end or ping that
// execution and no other. It contains the task id, so every write finds its shard.
//
// Tasks claimed in one batch share their exec_id. So a handle has a proof in its place, from which nobody
// can make the handle of another task or life.
type Handle struct {
	TaskID     string
	Generation int64
	proof      string
}

// proofBytes is the length of a proof before it is written as hex.
const proofBytes = 16

// HandleOf names an execution of the task.
func HandleOf(t *model.Task, execID string) Handle {
	h := Handle{TaskID: t.ID, Generation: t.Generation}
	h.proof = h.proofBy(execID)
	return h
}

// Execution finds the execution that the handle names; index -1 when there is none in this life of the task.
func (h Handle) Execution(t *model.Task) (int, *model.WorkerState) {
	if t.ID != h.TaskID || t.Generation != h.Generation {
		return -1, nil
	}
	for i := range t.WorkerStates {
		if w := &t.WorkerStates[i]; subtle.ConstantTimeCompare([]byte(h.proof), []byte(h.proofBy(w.ExecID))) == 1 {
			return i, w
		}
	}
	return -1, nil
}

// proofBy is the proof of an execution of the task and life that the handle names: half of a hash that begins with
// its exec_id, which is random. From half of one nobody can go on to the hash of more, so an HMAC would add nothing,
// and it takes twice as long, for each execution.
func (h Handle) proofBy(execID string) string {
	var plain [256]byte
	sum := sha256.Sum256(appendID(append(append(plain[:0], execID...), "\x00mscheduler handle\x00"...), h.TaskID, h.Generation, ""))
	return hex.EncodeToString(sum[:proofBytes])
}

// String encodes the handle so that it fits an URL.
func (h Handle) String() string {
	var plain, encoded [256]byte // mostly enough, and then on the stack
	return string(base64.RawURLEncoding.AppendEncode(encoded[:0], appendID(plain[:0], h.TaskID, h.Generation, h.proof)))
}

// ExecutionID names an execution uniquely for ever: task id, generation and what is shown of the
// exec_id. Other systems get it, so nobody can make the handle of it.
func ExecutionID(t *model.Task, execID string) string {
	var id [256]byte
	return string(appendID(id[:0], t.ID, t.Generation, ShownExecID(execID)))
}

func appendID(dst []byte, taskID string, generation int64, execution string) []byte {
	dst = append(append(dst, taskID...), '@')
	dst = append(strconv.AppendInt(dst, generation, 10), '@')
	return append(dst, execution...)
}

// ParseHandle reads what [Handle.String] wrote.
func ParseHandle(s string) (Handle, error) {
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return Handle{}, Invalid("handle", "is not an execution handle")
	}
	// From the right: a key may contain an @.
	rest, proof, ok := cutLast(string(raw), "@")
	id, gen, ok2 := cutLast(rest, "@")
	generation, err := strconv.ParseInt(gen, 10, 64)
	if !ok || !ok2 || err != nil || len(proof) != hex.EncodedLen(proofBytes) {
		return Handle{}, Invalid("handle", "is not an execution handle")
	}
	if _, _, _, err := ParseTaskID(id); err != nil {
		return Handle{}, Invalid("handle", "is not an execution handle")
	}
	h := Handle{TaskID: id, Generation: generation, proof: proof}
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
