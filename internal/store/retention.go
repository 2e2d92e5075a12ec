package store

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// How long the history and the audit are kept is a property of the database and not of a process: who
// archives changes from minute to minute, and producers that begin new lives copy, too, so settings of
// single processes would contradict each other. The documents are apart from the control document, which
// is read every second.

// retention reads what is kept how long, by the id of its document; 0 = for ever. Index: _id.
func (s *core) retention(ctx context.Context, id string, fallback time.Duration) (time.Duration, error) {
	type kept struct {
		KeepMS *int64 `bson:"keep_ms"`
	}
	doc, _, err := readOne[kept](ctx, s.control, "reading the retention of the "+id, bson.D{d("_id", id)})
	if err != nil || doc.KeepMS == nil {
		return fallback, err
	}
	return time.Duration(*doc.KeepMS) * time.Millisecond, nil
}

// setRetention is [core.retention] for who says it. Other processes learn of it within a minute.
func (s *core) setRetention(ctx context.Context, id string, keep time.Duration) error {
	err := upsert(ctx, s.control, "setting the retention of the "+id, id, bson.D{d("$set", bson.D{d("keep_ms", keep.Milliseconds())})})
	if err == nil {
		s.remember(id, keep, s.local.Monotonic())
	}
	return err
}

// remember keeps the retention as it was at that time.
func (s *core) remember(id string, keep, at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = map[string]keptFor{}
	}
	s.kept[id] = keptFor{keep: keep, at: at}
}

// keptFor is what a process remembers of a retention.
type keptFor struct {
	keep time.Duration
	at   time.Duration // by the monotonic clock
}

// keptFor is the retention as it was at most a minute ago. While nobody can say it is the last that was
// known: nothing that is kept waits for it.
func (s *core) keptFor(ctx context.Context, id string, fallback time.Duration) time.Duration {
	s.mu.Lock()
	k, known := s.kept[id]
	s.mu.Unlock()
	now := s.local.Monotonic()
	if known && now-k.at < time.Minute {
		return k.keep
	}
	keep, err := s.retention(Outside(ctx), id, fallback)
	switch {
	case err == nil:
		s.remember(id, keep, now)
		return keep
	case known:
		return k.keep
	default:
		return fallback
	}
}
