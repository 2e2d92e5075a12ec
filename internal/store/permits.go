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
	PermitLease     = 90 * time.Second // renewed with every heartbeat
)

// StreamPermit is the right to hold one change stream open.
type StreamPermit struct {
	Rank  int // among those of the same types: 0 or 1
	names []string
}

// AcquireStream takes a free stream permit for a set of types; nil when there is none.
// holder must be unique to the process. Index: _id.
func (s *Store) AcquireStream(ctx context.Context, types []string, holder string) (*StreamPermit, error) {
	set := typeSet(types)
	for rank := range StreamsPerTypes {
		own := fmt.Sprintf("stream/%s#%d", set, rank)
		ok, err := s.takePermit(ctx, own, holder)
		if err != nil || !ok {
			if err != nil {
				return nil, err
			}
			continue
		}
		for i := range StreamsInAll {
			shared := fmt.Sprintf("stream#%d", i)
			ok, err := s.takePermit(ctx, shared, holder)
			if err != nil {
				return nil, err
			}
			if ok {
				return &StreamPermit{Rank: rank, names: []string{own, shared}}, nil
			}
		}
		return nil, s.freePermits(ctx, holder, []string{own})
	}
	return nil, nil
}

// RenewStream extends a permit; false when it was lost.
func (s *Store) RenewStream(ctx context.Context, p *StreamPermit, holder string) (bool, error) {
	for _, name := range p.names {
		if ok, err := s.takePermit(ctx, name, holder); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// ReleaseStream gives a permit back, so that somebody else may watch.
func (s *Store) ReleaseStream(ctx context.Context, p *StreamPermit, holder string) error {
	return s.freePermits(ctx, holder, p.names)
}

// takePermit takes or extends a permit that is free, lapsed or ours already. The
// upsert of one that somebody else holds collides with its _id, which is the refusal.
func (s *Store) takePermit(ctx context.Context, name, holder string) (bool, error) {
	now := s.Clock.Now()
	_, err := s.permits.UpdateOne(ctx,
		bson.D{d("_id", name), d("$or", bson.A{bson.D{d("holder", holder)}, bson.D{d("expires_at", bson.D{d("$lt", now)})}})},
		bson.D{d("$set", bson.D{d("holder", holder), d("expires_at", now.Add(PermitLease))})},
		options.UpdateOne().SetUpsert(true))
	if IsDuplicate(err) {
		return false, nil
	}
	return err == nil, explain(err, "taking the permit "+name)
}

// freePermits deletes them one by one: unlike one delete of many, that is retried when
// the answer is lost.
func (s *Store) freePermits(ctx context.Context, holder string, names []string) error {
	models := make([]mongo.WriteModel, len(names))
	for i, name := range names {
		models[i] = mongo.NewDeleteOneModel().SetFilter(bson.D{d("_id", name), d("holder", holder)})
	}
	_, err := s.permits.BulkWrite(ctx, models)
	return explain(err, "giving permits back")
}

// typeSet names a set of types shortly.
func typeSet(types []string) string {
	sorted := slices.Sorted(slices.Values(types))
	sum := sha256.Sum256([]byte(strings.Join(sorted, "/")))
	return hex.EncodeToString(sum[:8])
}
