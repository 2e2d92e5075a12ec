package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/xoptions"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Write is one decision: the task as it was read, and as it shall be. It is carried
// out if the task's generation and rev are still those that were read.
type Write struct {
	Before, After *model.Task
	// Lapsed names the execution over whose lapsed lease the task is taken: it must be
	// open and lapsed at the time At. Taking work from somebody is worth its own check.
	Lapsed string
	At     time.Time
}

// Written is what became of a [Write].
type Written struct {
	Applied bool
	// Current is the task as it was read after a write that was not applied, for a new
	// decision, without its arguments and the values of its steps; nil when it is gone, and not set when Applied.
	Current *model.Task
	// Held: it was not written, as far as is known, because somebody else holds the
	// document, such as an open transaction. The same again is safe. It is set with Unread, too.
	Held bool
	// Unread: the document is there, and this release cannot read it, so nobody knows whether it was
	// written. Current is nil.
	Unread bool
	// Refused is why the server does not carry out this one, and would not the same again:
	// the document would become too large, say. nil = it was not refused, or was applied.
	Refused error
	// Unanswered: the call has met an error, and nothing is known of this one.
	Unanswered bool
}

// Writes carries out a batch in one update command and, only where that did not match everything, one
// read. An error may be that of one of several commands. The writes known to be done are Applied, the
// others Unanswered. With class Ambiguous some of these may be done. Tasks that somebody else holds
// are not written; search bounds how long the others are looked for that shared a command with such a
// task. 0 leaves that to the caller: all of those count as held.
func (s *Tasks) Writes(ctx context.Context, writes []Write, search time.Duration) ([]Written, error) {
	if len(writes) == 0 {
		return nil, nil
	}
	x, err := s.execute(ctx, group(writes), search)
	if err == nil {
		var written []Written
		if written, err = s.look(ctx, writes, &x); err == nil {
			return written, nil
		}
	}
	out := make([]Written, len(writes))
	for i := range writes {
		out[i].Applied = x.done(writes[i].After.ID)
		out[i].Unanswered = !out[i].Applied
	}
	return out, err
}

// look reads what became of the writes that are not known to be done. Index: _id.
//
// Claims that another worker won lie together mostly, where its part of the queue begins or
// ends. So the first and the last are read first. The server says how many documents it
// matched: once all others are found, the rest need no look.
func (s *Tasks) look(ctx context.Context, writes []Write, x *executed) ([]Written, error) {
	out := make([]Written, len(writes))
	var unsure []int
	for i := range writes {
		if out[i].Applied = x.done(writes[i].After.ID); !out[i].Applied {
			unsure = append(unsure, i)
		}
	}
	left := len(unsure) // at most so many were not applied
	if x.exact {
		left = min(left, len(writes)-x.matched)
	}
	for len(unsure) > 0 && left > 0 {
		now, later := lookFirst(unsure, left)
		ids := collect(now, func(at int) string { return writes[at].After.ID })
		// No command has waited until a majority has what is there of the held ones.
		current, err := s.forRules(ctx, ids, len(x.held) > 0)
		if err != nil {
			return nil, err
		}
		for _, at := range now {
			w, o := &writes[at], &out[at]
			cur, there := current[w.After.ID]
			if cur != nil && w.seenIn(cur) {
				o.Applied = true
				continue
			}
			o.Unread = there && cur == nil
			o.Current, o.Held, o.Refused = cur, x.held[w.After.ID] || o.Unread, x.refused[w.After.ID]
			if w.refutedBy(cur) {
				left--
			}
		}
		unsure = later
	}
	for _, i := range unsure {
		out[i].Applied = true
	}
	return out, nil
}

// NeverWritten says which of the writes that [Tasks.Writes] left held are certainly not carried out,
// now and later: its commands have all been answered, and the primary does not have them. It is of
// no use behind a router, which may answer before the shard does. Index: _id.
func (s *Tasks) NeverWritten(ctx context.Context, writes []Write) ([]bool, error) {
	never := make([]bool, len(writes))
	if t, err := s.Topology(ctx); err != nil || t.Sharded || len(writes) == 0 {
		return never, err
	}
	ids := make([]string, len(writes))
	for i, w := range writes {
		ids[i] = w.After.ID
	}
	current, err := s.forRules(ctx, ids, false)
	for i := range writes {
		w, cur := &writes[i], current[ids[i]]
		never[i] = cur != nil && !w.seenIn(cur) && w.refutedBy(cur)
	}
	return never, err
}

// lookSlack is how many more than the missing ones are looked at, at each end.
const lookSlack = 16

// lookFirst divides what is to be looked at, of which some are missing: both ends now, and
// the middle later. It is all looked at now where that saves little.
func lookFirst(unsure []int, missing int) (now, later []int) {
	end := missing + lookSlack
	if 4*end > len(unsure) {
		return unsure, nil
	}
	now = append(append(now, unsure[:end]...), unsure[len(unsure)-end:]...)
	return now, unsure[end : len(unsure)-end]
}

// seenIn says whether the current document shows that the write was applied: the
// executions it began or ended are there, as it left them. Exec ids are unique, and
// nobody else ends an execution with our time and kind. Of a write that ended the task
// without an execution, such as an expiry, its end must be there: what follows it is done.
func (w *Write) seenIn(cur *model.Task) bool {
	if cur.Generation != w.After.Generation {
		return false
	}
	changed := false
	for i := range w.After.WorkerStates {
		a := &w.After.WorkerStates[i]
		if _, b := lifecycle.ExecutionOf(w.Before, a.ExecID); b != nil && lifecycle.Open(b) == lifecycle.Open(a) && b.Parked == a.Parked {
			continue
		}
		changed = true
		_, c := lifecycle.ExecutionOf(cur, a.ExecID)
		if c == nil || !c.SuccessTime.Equal(a.SuccessTime) || !c.FailTime.Equal(a.FailTime) || c.FailKind != a.FailKind || c.Parked != a.Parked {
			return false
		}
	}
	switch {
	case changed:
		return true
	case w.Before.Generation != w.After.Generation:
		return cur.CreatedAt.Equal(clock.Millis(w.After.CreatedAt)) // it has begun this life
	case w.After.Status.Ended() && !w.Before.Status.Ended():
		return cur.Rev >= w.After.Rev && cur.Status == w.After.Status && cur.FinishedAt.Equal(clock.Millis(w.After.FinishedAt))
	default:
		return w.leftIn(cur)
	}
}

// leftIn is seenIn for a write that began and ended no execution: the fields that it set must be there. If another write
// took its rev, the times differ, and this one is not applied. If somebody has changed one of the fields since, it
// counts as not applied, and the caller decides again.
func (w *Write) leftIn(cur *model.Task) bool {
	last := w.lastIn(cur)
	if cur.Rev <= w.After.Rev && !last {
		return false
	}
	passed := []string{"rev", "updated_at"} // each write has its own
	if last {
		// The document was read without the first two, see [Tasks.forRules]. The others change without a new rev.
		passed = append(passed, "args", "steps", "wake_at", "outbox_at", "archive_at")
	}
	change, doc := codec.Diff(w.Before, w.After), bson.Raw(codec.AppendTask(nil, cur))
	left := func(operator string, is func(field string, v bson.RawValue) bool) bool {
		fields, _ := change.Lookup(operator).DocumentOK()
		elements, err := fields.Elements()
		return err == nil && !slices.ContainsFunc(elements, func(e bson.RawElement) bool {
			first, _, _ := strings.Cut(e.Key(), ".")
			return !slices.Contains(passed, first) && !is(e.Key(), e.Value())
		})
	}
	return left("$set", func(field string, v bson.RawValue) bool {
		has, err := doc.LookupErr(strings.Split(field, ".")...)
		return err == nil && has.Equal(v)
	}) && left("$unset", func(field string, _ bson.RawValue) bool {
		_, err := doc.LookupErr(strings.Split(field, ".")...)
		return err != nil
	}) && (last || change.Lookup("$push").IsZero() && change.Lookup("$pull").IsZero())
}

// lastIn reports whether the current document has the rev and the time of the write.
func (w *Write) lastIn(cur *model.Task) bool {
	return cur.Rev == w.After.Rev && cur.UpdatedAt.Equal(clock.Millis(w.After.UpdatedAt))
}

// refutedBy reports whether the current document proves that the write was not applied. It
// does not where somebody may have changed the task after the write. Each write raises the
// rev by one. Executions stay in the document for a whole life, until there are many.
func (w *Write) refutedBy(cur *model.Task) bool {
	switch {
	case cur == nil || cur.Generation != w.After.Generation:
		return false
	case cur.Rev <= w.After.Rev && !w.lastIn(cur):
		return true
	default:
		return len(cur.WorkerStates) < input.MaxBadStates && slices.ContainsFunc(w.After.WorkerStates, func(st model.WorkerState) bool {
			_, before := lifecycle.ExecutionOf(w.Before, st.ExecID)
			_, now := lifecycle.ExecutionOf(cur, st.ExecID)
			return before == nil && now == nil
		})
	}
}

// group makes one statement of all writes with equal rev, equal guard and equal
// update. generation is bounded by the newest of the group; rev rises through all
// lives of a key, so the two together cannot meet another life.
func group(writes []Write) []statement {
	type members struct {
		statement
		newest int64
	}
	index := map[string]int{}
	var groups []*members
	var key, last []byte // what tells the groups apart: the guard and the update
	at := 0
	for i := range writes {
		w := &writes[i]
		others := w.othersLapsed()
		key = strconv.AppendInt(key[:0], w.Before.Rev, 10)
		if w.Lapsed != "" {
			key = fmt.Appendf(key, " %s %d %v", w.Lapsed, w.At.UnixMilli(), others)
		}
		head := len(key)
		key = codec.AppendDiff(key, w.Before, w.After)
		if i == 0 || !bytes.Equal(key, last) { // mostly it is the same again
			var known bool
			if at, known = index[string(key)]; !known {
				at = len(groups)
				index[string(key)] = at
				g := &members{}
				g.update = bytes.Clone(key[head:])
				rev, lapsed, now := w.Before.Rev, w.Lapsed, w.At
				g.guard = func(dst []byte) []byte {
					dst = bsoncore.AppendInt64Element(dst, "rev", rev)
					dst = appendAtMost(dst, "generation", g.newest)
					if lapsed != "" {
						dst = bsoncore.AppendDocumentElement(dst, "worker_states", lapsedGuard(lapsed, now))
					}
					for _, e := range others {
						dst = bsoncore.AppendDocumentElement(dst, e.Key, e.Value.(bsoncore.Document)) //nolint:forcetypeassert // made so
					}
					return dst
				}
				groups = append(groups, g)
			}
			key, last = last, key
		}
		g := groups[at]
		if g.ids == nil && len(groups) == 1 {
			g.ids = make([]string, 0, len(writes)-i)
		}
		g.ids = append(g.ids, w.After.ID)
		g.newest = max(g.newest, w.Before.Generation)
	}
	out := make([]statement, len(groups))
	for i, g := range groups {
		out[i] = g.statement
	}
	return out
}

// othersLapsed is the condition for a task that several worked on and of which more than
// one execution is ended as lapsed: that none of them was pinged in between. A ping does
// not change the rev, so the rev alone does not tell.
func (w *Write) othersLapsed() (filter bson.D) {
	if w.Lapsed == "" {
		return nil
	}
	for i := range w.Before.WorkerStates {
		b := &w.Before.WorkerStates[i]
		_, a := lifecycle.ExecutionOf(w.After, b.ExecID)
		if lifecycle.Open(b) && b.ExecID != w.Lapsed && (a == nil || !lifecycle.Open(a)) {
			until := bsoncore.BuildDocument(nil, bsoncore.AppendDateTimeElement(nil, "$lte", w.At.UnixMilli()))
			filter = append(filter, d("worker_states."+strconv.Itoa(i)+".ping_expire_time", bsoncore.Document(until)))
		}
	}
	return filter
}

func appendAtMost(dst []byte, key string, n int64) []byte {
	start, dst := bsoncore.AppendDocumentElementStart(dst, key)
	dst = bsoncore.AppendInt64Element(dst, "$lte", n)
	dst, _ = bsoncore.AppendDocumentEnd(dst, start)
	return dst
}

// lapsedGuard matches a task of which that execution is open and lapsed.
func lapsedGuard(execID string, now time.Time) bsoncore.Document {
	doc, _ := bson.Marshal(bson.D{d("$elemMatch", bson.D{
		d("exec_id", execID), d("ping_expire_time", bson.D{d("$lte", now)}),
		d("success_time", nil), d("fail_time", nil),
	})}) // strings, a date and nils always encode
	return doc
}

// SettleClaim finds out which of the claims whose answer was lost were won. First the
// fence: whatever the lost command has not reached gets another rev, so it never will.
// Then a ping by exec id, a majority write that a failover cannot undo. Then a look.
// The caller repeats it until it is answered. A document that is held by now is not won: if
// the claim is there after all, its lease lapses. A final error, of one of several commands
// perhaps, hides no claim that was won: that is Applied, and the others are Unanswered.
func (s *Tasks) SettleClaim(ctx context.Context, writes []Write, execID string) ([]Written, error) {
	fences := make([]Write, len(writes))
	pings := make([]Ping, 0, len(writes))
	for i, w := range writes {
		fenced := *w.Before
		fenced.Rev++
		fences[i] = Write{Before: w.Before, After: &fenced}
		if j, st := lifecycle.ExecutionOf(w.After, execID); st != nil {
			pings = append(pings, Ping{ID: w.After.ID, ExecID: execID, Index: j, Many: lifecycle.Wanted(w.After) > 1,
				Until: lifecycle.Lease(st, st.PingExpireTime.Sub(st.ClaimedAt), s.Clock.Now())})
		}
	}
	_, refused := s.execute(ctx, group(fences), Patience)
	if refused != nil && !Final(refused) {
		return nil, refused
	}
	_, err := s.Pings(ctx, pings, Patience)
	if err != nil && !Final(err) {
		return nil, err
	}
	refused = cmp.Or(refused, err)
	missed := map[string]bool{}
	for _, p := range pings {
		missed[p.ID] = p.Missed
	}
	written, err := s.look(ctx, writes, &executed{unsure: everyID(writes)})
	for i := range written {
		// What a ping could not reach may be undone by a failover. Without the fence, which somebody's transaction may
		// have held up, the lost command may still come.
		cur, was := written[i].Current, writes[i].Before
		if missed[was.ID] || cur != nil && cur.Generation == was.Generation && cur.Rev == was.Rev {
			written[i].Applied, written[i].Held = false, true
		}
		if refused != nil && !written[i].Applied {
			written[i] = Written{Unanswered: true}
		}
	}
	return written, cmp.Or(err, refused)
}

func everyID(writes []Write) map[string]bool {
	ids := make(map[string]bool, len(writes))
	for i := range writes {
		ids[writes[i].After.ID] = true
	}
	return ids
}

// ErrLags means that the primary has carried a write out, and that no majority has it yet. A failover may undo it.
var ErrLags = errors.New("the primary has carried this out, and the majority lags")

// ErrHeld means that nothing was written because another client holds the document, such as
// an open transaction. The same again is safe.
var ErrHeld = errors.New("another client locks the document, for example in an open transaction")

// TakeOver claims one task over a lapsed lease. It returns the task as it is after,
// or nil when somebody was quicker or a ping came. [ErrHeld] when somebody else holds the
// document, or held it a moment ago; [ErrLags] when the majority lags. Index: _id.
func (s *Tasks) TakeOver(ctx context.Context, w Write) (*model.Task, error) {
	if s.held.waits(s.tasks, w.After.ID, s.local) {
		return nil, fmt.Errorf("taking over task %s: %w", w.After.ID, ErrHeld)
	}
	filter := append(s.guardOf(w), d("worker_states", bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: lapsedGuard(w.Lapsed, w.At)}))
	for _, e := range w.othersLapsed() {
		filter = append(filter, d(e.Key, bson.Raw(e.Value.(bsoncore.Document)))) //nolint:forcetypeassert // made so
	}
	var after model.Task
	limit := s.pace.limit(1, 0, false)
	opts := returnAfter()
	if err := xoptions.SetInternalFindOneAndUpdateOptions(opts, "addCommandFields", timeLimit(limit)); err != nil {
		return nil, err
	}
	call, cancel := context.WithTimeout(ctx, limit+answerPatience)
	defer cancel()
	limited := ownTimeLimit{call}
	err := timeUp(limited, s.tasks.FindOneAndUpdate(limited, filter, codec.Diff(w.Before, w.After), opts).Decode(&after))
	switch {
	case isNone(err):
		return nil, nil
	case isTimeLimit(err):
		err = ErrHeld
		if t, failed := s.Topology(ctx); failed != nil {
			return nil, failed
		} else if t.Sharded { // its answer may have come before that of the shard
			mine := bson.D{d("_id", w.After.ID), d("worker_states.exec_id", in(w.begun()))}
			_, there, failed := readOne[named](ctx, s.tasks, "looking for the takeover of task "+w.After.ID, mine, options.FindOne().SetProjection(fields("_id")))
			if failed != nil {
				return nil, failed
			}
			if there {
				err = ErrLags
			}
		}
		if errors.Is(err, ErrHeld) {
			s.held.note(s.tasks, w.After.ID, limit, s.local)
		}
		return nil, fmt.Errorf("taking over task %s: %w", w.After.ID, err)
	case lagsAlone(err):
		return nil, fmt.Errorf("taking over task %s: %w", w.After.ID, ErrLags)
	case err != nil:
		return nil, explain(err, "taking over task "+w.After.ID)
	}
	return &after, nil
}

// begun are the executions that the write begins.
func (w *Write) begun() (ids []string) {
	for i := range w.After.WorkerStates {
		if _, before := lifecycle.ExecutionOf(w.Before, w.After.WorkerStates[i].ExecID); before == nil {
			ids = append(ids, w.After.WorkerStates[i].ExecID)
		}
	}
	return ids
}

// guardOf is the filter of a single guarded write. Index: _id.
func (s *Tasks) guardOf(w Write) bson.D {
	return asRead(w.Before)
}
