package store

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/lifecycle"
	"github.com/mscheduler/mscheduler/model"
)

// EventFilter selects events. A zero field selects everything; the fields are joined by and.
type EventFilter struct {
	Tenant string // model.NoTenant for tasks without one
	Types  []string
	Key    string
	Kinds  []model.EventKind
}

// EventStream tells what happens to tasks, in the order of the writes to each of them.
type EventStream struct {
	watched
	want map[model.EventKind]bool
}

// Events opens a stream over what happens to tasks, after the place that a token names, or
// from now on. The caller holds a seat, see [Seats.AcquireSubscription].
//
// The server picks the tasks, by their ids, and of the writes leaves out pings and whatever
// else decides nothing. Documents are not looked up: a lookup costs the primary a read for
// each event, and gives the task as it is by then, not as the write left it.
func (s *Store) Events(ctx context.Context, f EventFilter, token bson.Raw) (*EventStream, error) {
	cs, err := watch(ctx, s.durable(s.tasks), token,
		bson.D{d("$match", f.match())},
		// What is large and no event tells. The token, _id, must stay.
		bson.D{d("$project", bson.D{
			d("fullDocument.args", 0), d("updateDescription.updatedFields.args", 0),
			d("updateDescription.updatedFields.result", 0), d("updateDescription.updatedFields.steps", 0),
		})},
	)
	if err != nil {
		return nil, err
	}
	st := &EventStream{watched: cs, want: map[model.EventKind]bool{}}
	for _, k := range f.Kinds {
		st.want[k] = true
	}
	return st, nil
}

// match selects the writes. Only what a kind that is wanted may be is sent at all.
func (f *EventFilter) match() bson.D {
	want := func(kinds ...model.EventKind) bool {
		return len(f.Kinds) == 0 || slices.ContainsFunc(kinds, func(k model.EventKind) bool { return slices.Contains(f.Kinds, k) })
	}
	var writes bson.A
	if want(model.EventSent, model.EventEnded) {
		writes = append(writes, bson.D{d("operationType", "insert")})
	}
	if want(model.EventProgress) {
		writes = append(writes, bson.D{d("operationType", "update"), d("updateDescription.updatedFields.progress", exists)})
	}
	switch {
	case want(model.EventClaimed, model.EventTakenOver, model.EventParked, model.EventReleased,
		model.EventFailed, model.EventSucceeded, model.EventCancelling, model.EventChanged):
		writes = append(writes, bson.D{d("operationType", "update"), d("updateDescription.updatedFields.rev", exists)})
	default:
		if want(model.EventSent) {
			writes = append(writes, bson.D{d("operationType", "update"), d("updateDescription.updatedFields.generation", exists)})
		}
		if want(model.EventEnded) {
			writes = append(writes, bson.D{d("operationType", "update"), d("$or", bson.A{
				bson.D{d("updateDescription.updatedFields.status", in(statuses(model.Status.Ended)))},
				bson.D{d("updateDescription.updatedFields.finished_at", exists)}, // of a life that ended as the last one
			})})
		}
	}
	match := bson.D{d("$or", writes)}
	if id := f.ids(); id != nil {
		match = append(match, d("documentKey._id", id))
	}
	return match
}

// statuses are those that meet the condition.
func statuses(meet func(model.Status) bool) []model.Status {
	return slices.DeleteFunc(slices.Clone(lifecycle.Statuses), func(s model.Status) bool { return !meet(s) })
}

// ids is the condition for the ids of tasks, which are tenant/type/key; nil = any.
func (f *EventFilter) ids() any {
	if f.Tenant == "" && len(f.Types) == 0 && f.Key == "" {
		return nil
	}
	tenant, typ, key := "[^/]*", "[^/]*", ""
	if f.Tenant != "" {
		tenant = regexp.QuoteMeta(f.Tenant)
	}
	if len(f.Types) > 0 {
		typ = "(?:" + strings.Join(collect(f.Types, regexp.QuoteMeta), "|") + ")"
	}
	if f.Key != "" {
		key = regexp.QuoteMeta(f.Key) + `\z`
	}
	return bson.Regex{Pattern: "^" + tenant + "/" + typ + "/" + key}
}

// Next waits for the next event and returns it; ok is false when there was none for
// [StreamAwait], so that the token moves on.
func (st *EventStream) Next(ctx context.Context) (e model.TaskEvent, ok bool, err error) {
	for {
		if more, err := st.next(ctx); !more {
			return e, false, err
		}
		if e, ok, err = st.decode(); err != nil || ok {
			return e, ok, err
		}
	}
}

func (st *EventStream) decode() (model.TaskEvent, bool, error) {
	var doc struct {
		At  bson.Timestamp `bson:"clusterTime"`
		Key struct {
			ID string `bson:"_id"`
		} `bson:"documentKey"`
		Document bson.Raw `bson:"fullDocument"`
		Update   struct {
			Fields bson.Raw `bson:"updatedFields"`
		} `bson:"updateDescription"`
	}
	if err := st.cs.Decode(&doc); err != nil {
		return model.TaskEvent{}, false, explain(err, "reading a change event")
	}
	e, ok := codec.EventOf(codec.Change{
		TaskID: doc.Key.ID, Inserted: doc.Document, Updated: doc.Update.Fields, At: time.Unix(int64(doc.At.T), 0).UTC(),
	})
	if !ok || len(st.want) > 0 && !st.want[e.Kind] {
		return model.TaskEvent{}, false, nil
	}
	e.Token = TokenText(st.cs.ResumeToken())
	return e, true, nil
}

// TokenText is a place in a stream as text, and ParseToken reads it; "" = nil.
func TokenText(token bson.Raw) string { return base64.RawURLEncoding.EncodeToString(token) }

// ParseToken is the reverse of [TokenText].
func ParseToken(token string) (bson.Raw, error) {
	if token == "" {
		return nil, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || bson.Raw(raw).Validate() != nil {
		return nil, input.Invalid("token", "is not valid; want the token of an event")
	}
	return raw, nil
}

// TokenRefused returns the error of opening a stream at the caller's token: a server that does not know the
// token answers with one of many codes, which depend on its release.
func TokenRefused(token string, err error) error {
	if token == "" || !Final(err) || Denied(err) || EventsLost(err) {
		return err
	}
	return fmt.Errorf("%w: %w", input.Invalid("token", "is not valid for this database; want the token of one of its events"), err)
}

// EventsLost says whether a stream cannot go on where it was: the server no longer has
// what happened since, or the collection is gone.
func EventsLost(err error) bool {
	var server mongo.ServerError
	if errors.As(err, &server) {
		return server.HasErrorCode(286) || // ChangeStreamHistoryLost
			server.HasErrorCode(280) || // ChangeStreamFatalError: the token is not in the oplog
			server.HasErrorCode(136) // CappedPositionLost: what was being read was cut off
	}
	return errors.Is(err, ErrStreamEnded)
}

// subscriptionsInAll is how many of the seats that all streams share subscriptions may
// have: the last ones, so that workers always find some.
const subscriptionsInAll = StreamsInAll / 2

// AcquireSubscription takes a seat for a subscription to these types (none = all); nil
// when there is none. Of each set of types there are [StreamsPerTypes] beside those of the
// workers, and subscriptions have at most half of the seats that all share. Index: _id.
func (s *Seats) AcquireSubscription(ctx context.Context, types []string, holder string) (*Seat, error) {
	numbers := make([]int, subscriptionsInAll)
	for i := range numbers {
		numbers[i] = StreamsInAll - 1 - i
	}
	return s.acquire(ctx, typeSet(append([]string{"/events"}, types...)), holder, numbers) // no type has a slash
}
