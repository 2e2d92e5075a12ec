package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// How many change streams may be open: measured on a two-core MongoDB under load, ten
// streams that match nothing cost 60 % of its throughput, fifty cost 85 %.
const (
	StreamsPerTypes = 2
	StreamsInAll    = 8
	SeatLease       = 90 * time.Second // renewed at two thirds of it
)

// Seat is the right to hold one change stream open: one seat of the set of
// types, and one of those that all share.
type Seat struct {
	set    string
	own    int // among those of the same types
	shared int
}

func ownSeat(set string, i int) string { return fmt.Sprintf("stream/%s#%d", set, i) }
func sharedSeat(i int) string          { return fmt.Sprintf("stream#%d", i) }

func (p *Seat) names() []string {
	return []string{ownSeat(p.set, p.own), sharedSeat(p.shared)}
}

// Watching is who else holds seats.
type Watching struct {
	Watchers int  // of the same types, the holder of the seat included: 1 to [StreamsPerTypes]
	Rank     int  // of the holder among them: 0 to Watchers-1
	Full     bool // no seat of those that all types share is free
}

// Acquire takes a free seat for a set of types, and of whatever else makes
// the streams of its holders alike; nil when there is none,
// which costs one read. holder must be unique to the process. Index: _id.
func (s *Seats) Acquire(ctx context.Context, types []string, holder string) (*Seat, error) {
	numbers := make([]int, StreamsInAll)
	for i := range numbers {
		numbers[i] = i
	}
	return s.acquire(ctx, typeSet(types), holder, numbers)
}

// acquire takes a seat of the set and one of the shared ones that numbers names,
// tried in that order.
func (s *Seats) acquire(ctx context.Context, set, holder string, numbers []int) (*Seat, error) {
	taken, err := s.live(ctx, set)
	if err != nil {
		return nil, err
	}
	free := func(name string) bool { return taken[name] == "" || taken[name] == holder }
	for own := range StreamsPerTypes {
		name := ownSeat(set, own)
		if !free(name) {
			continue
		}
		if ok, err := s.take(ctx, holder, name); err != nil || !ok {
			if err != nil {
				return nil, err
			}
			continue
		}
		for _, shared := range numbers {
			if !free(sharedSeat(shared)) {
				continue
			}
			ok, err := s.take(ctx, holder, sharedSeat(shared))
			if err != nil {
				return nil, err
			}
			if ok {
				return &Seat{set: set, own: own, shared: shared}, nil
			}
		}
		return nil, s.free(ctx, holder, []string{name})
	}
	return nil, nil
}

// Renew extends a seat, in one command; false when it was lost. Index: _id.
func (s *Seats) Renew(ctx context.Context, p *Seat, holder string) (bool, error) {
	return s.take(ctx, holder, p.names()...)
}

// Release gives a seat back, so that somebody else may watch. Index: _id.
func (s *Seats) Release(ctx context.Context, p *Seat, holder string) error {
	return s.free(ctx, holder, p.names())
}

// Watching reads who else watches the types of a seat. Index: _id.
func (s *Seats) Watching(ctx context.Context, p *Seat) (Watching, error) {
	taken, err := s.live(ctx, p.set)
	if err != nil {
		return Watching{}, err
	}
	w := Watching{Watchers: 1}
	for i := range StreamsPerTypes {
		if i == p.own || taken[ownSeat(p.set, i)] == "" {
			continue
		}
		w.Watchers++
		if i < p.own {
			w.Rank++
		}
	}
	w.Full = sharedTaken(taken) == StreamsInAll
	return w, nil
}

// taken is how many change streams the workers have. Index: _id.
func (s *Seats) taken(ctx context.Context) (int, error) {
	live, err := s.live(ctx, "")
	return sharedTaken(live), err
}

// sharedTaken is how many of the seats that all types share are among the taken ones.
func sharedTaken(taken map[string]string) (n int) {
	for i := range StreamsInAll {
		if taken[sharedSeat(i)] != "" {
			n++
		}
	}
	return n
}

// live are the holders of the seats that a set of types may have, by name;
// without those that are free or have lapsed. Index: _id.
func (s *Seats) live(ctx context.Context, set string) (map[string]string, error) {
	var names []string
	for i := range StreamsPerTypes {
		names = append(names, ownSeat(set, i))
	}
	for i := range StreamsInAll {
		names = append(names, sharedSeat(i))
	}
	type seat struct {
		Name      string    `bson:"_id"`
		Holder    string    `bson:"holder"`
		ExpiresAt time.Time `bson:"expires_at"`
	}
	docs, err := readAll[seat](ctx, s.seats, "reading the seats of streams", bson.D{d("_id", in(names))})
	if err != nil {
		return nil, err
	}
	taken, now := map[string]string{}, s.Clock.Now()
	for _, doc := range docs {
		if !doc.ExpiresAt.Before(now) {
			taken[doc.Name] = doc.Holder
		}
	}
	return taken, nil
}

// take takes or extends seats that are free, lapsed or ours already, in one
// command; false when somebody else holds one of them, whose upsert collides with its
// _id. Those before it in the list are ours then.
func (s *Seats) take(ctx context.Context, holder string, names ...string) (bool, error) {
	models := collect(names, func(name string) mongo.WriteModel { return s.lease(name, holder, SeatLease) })
	_, err := s.seats.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(true))
	if IsDuplicate(err) {
		return false, nil
	}
	return err == nil, explain(err, "taking the seat "+strings.Join(names, " and "))
}

// free gives seats back, unless somebody else has them by now.
func (s *Seats) free(ctx context.Context, holder string, names []string) error {
	_, err := bulk(ctx, s.core, s.seats, "releasing seat", names, func(name *string) change {
		return change{id: *name, guard: bson.D{d("holder", holder)}}
	})
	return err
}

// typeSet names a set of types shortly.
func typeSet(types []string) string {
	sorted := slices.Sorted(slices.Values(types))
	sum := sha256.Sum256([]byte(strings.Join(sorted, "/")))
	return hex.EncodeToString(sum[:8])
}
