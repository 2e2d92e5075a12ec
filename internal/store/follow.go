package store

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// Follow is the end of an execution, and the claim of the task that its permit goes on to.
type Follow struct {
	ExecID     string // that ends
	End, Claim Write
}

// Followed is what became of a [Follow].
type Followed struct{ Ended, Claimed Written }

// Follow writes ends and then claims, in one command. No claim is written while an execution is
// open that is to end before, whoever has changed its task: between the ends and the claims stands
// a statement that fails for an open execution, and what follows a failed statement of an ordered
// command is not carried out. The claims of those whose end is written, or which are open no
// longer, are written by a command of their own then, and always behind a router. After an error
// nothing is known of any of them. search is that of [Tasks.Writes]. Index: _id.
func (s *Tasks) Follow(ctx context.Context, follows []Follow, search time.Duration) ([]Followed, error) {
	ends, claims := make([]Write, len(follows)), make([]Write, len(follows))
	for i, f := range follows {
		ends[i], claims[i] = f.End, f.Claim
	}
	whole, answered, err := s.followAtOnce(ctx, follows, ends, claims)
	switch {
	case err != nil:
		return nil, err
	case whole || answered:
		return s.lookAfter(ctx, ends, claims, whole)
	default:
		return s.followApart(ctx, follows, ends, claims, search)
	}
}

// followAtOnce reports whether all was carried out as a whole, and whether each statement was
// carried out at least. It is false for both where the writes are to be sent by themselves.
func (s *Tasks) followAtOnce(ctx context.Context, follows []Follow, ends, claims []Write) (whole, answered bool, err error) {
	t, err := s.Topology(ctx)
	if err != nil || t.Sharded {
		return false, false, err
	}
	c := command{ids: len(ends) + len(claims), ordered: true}
	bytes := 0
	for _, st := range append(append(group(ends), stillOpen(follows)), group(claims)...) {
		enc := st.encode(st.ids)
		c.encoded, c.parts = append(c.encoded, enc), append(c.parts, st)
		bytes += len(enc)
		for _, id := range st.ids {
			if s.held.waits(s.tasks, id, s.local) {
				return false, false, nil
			}
		}
	}
	if bytes > maxCommandBytes || len(c.parts) > maxStatementsShard {
		return false, false, nil
	}
	b := &batch{s: s.core, coll: s.tasks, doing: "writing task"}
	limit := s.pace.limit(c.ids, c.bytes(), false)
	call, cancel := context.WithTimeout(naming(ctx, c.ids), limit+answerPatience)
	defer cancel()
	began := s.local.Monotonic()
	n, err := b.run(ownTimeLimit{call}, c, limit)
	var we mongo.WriteException
	switch {
	case err == nil:
		s.pace.saw(c.ids, s.local.Monotonic()-began)
		return n == c.ids, true, nil
	case isTimeLimit(err), errors.As(err, &we):
		return false, false, nil // it is over: whatever it wrote is known by what is written again
	default:
		return false, false, explain(err, b.doing+"s")
	}
}

// stillOpen is a statement that fails if any of the executions that end is open: MongoDB refuses
// to increment a string.
func stillOpen(follows []Follow) statement {
	ids, execIDs := make([]string, len(follows)), make([]string, len(follows))
	for i, f := range follows {
		ids[i], execIDs[i] = f.End.Before.ID, f.ExecID
	}
	open, _ := bson.Marshal(bson.D{d("$elemMatch", bson.D{d("exec_id", in(execIDs)), d("success_time", nil), d("fail_time", nil)})})
	fail, _ := bson.Marshal(bson.D{d("$inc", bson.D{d("type", 1)})}) // strings, numbers and nils always encode
	return statement{ids: ids, update: fail, guard: func(dst []byte) []byte {
		return bsoncore.AppendDocumentElement(dst, "worker_states", open)
	}}
}

// lookAfter reads what became of each write; nothing where all was carried out.
func (s *Tasks) lookAfter(ctx context.Context, ends, claims []Write, whole bool) ([]Followed, error) {
	out := make([]Followed, len(ends))
	ended, err := s.look(ctx, ends, &executed{clean: whole, unsure: everyID(ends)})
	if err != nil {
		return nil, err
	}
	claimed, err := s.look(ctx, claims, &executed{clean: whole, unsure: everyID(claims)})
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i] = Followed{ended[i], claimed[i]}
	}
	return out, nil
}

// followApart sends the ends, and the claims that may follow, by themselves. What is written
// already counts as written. Of an end that is held or unread nobody knows whether the command before
// wrote it, and the claim behind it: such a claim is held, too.
func (s *Tasks) followApart(ctx context.Context, follows []Follow, ends, claims []Write, search time.Duration) ([]Followed, error) {
	ended, err := s.Writes(ctx, ends, search)
	if err != nil {
		return nil, err
	}
	out := make([]Followed, len(follows))
	var may []Write
	var of []int
	for i, w := range ended {
		out[i] = Followed{Ended: w, Claimed: Written{Current: claims[i].Before, Held: w.Held}}
		if w.Applied || !w.Unread && (w.Current == nil || !isOpen(w.Current, follows[i].ExecID)) {
			may, of = append(may, claims[i]), append(of, i)
		}
	}
	claimed, err := s.Writes(ctx, may, search)
	for i, w := range claimed {
		out[of[i]].Claimed = w
	}
	return out, err
}

func isOpen(t *model.Task, execID string) bool {
	_, w := lifecycle.ExecutionOf(t, execID)
	return w != nil && lifecycle.Open(w)
}
