package embedded

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/query"
	"github.com/mscheduler/mscheduler/internal/embedded/storage"
)

// expireLoop deletes, from time to time, what TTL indexes let expire.
func (s *Server) expireLoop() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.work.Go(func() {
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	})
	t := time.NewTicker(s.opt.TTLInterval)
	defer t.Stop()
	for {
		select {
		case <-s.closing:
			return
		case <-t.C:
			if _, err := s.expire(ctx); err != nil && ctx.Err() == nil {
				s.zl.Warn().Err(err).Msg("embedded server: delete expired documents")
			}
		}
	}
}

// expire deletes the documents that are past their time and returns how many.
func (s *Server) expire(ctx context.Context) (n int, err error) {
	var found []func() (int, error)
	s.store.Snapshot().Each(func(c *storage.Collection) bool {
		for _, x := range c.Indexes {
			if x.Spec.ExpireAfter >= 0 {
				found = append(found, func() (int, error) { return s.expireIndex(ctx, c.Namespace, x.Spec) })
			}
		}
		return true
	})
	for _, expire := range found {
		got, err := expire()
		n += got
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (s *Server) expireIndex(ctx context.Context, ns string, spec *storage.IndexSpec) (int, error) {
	limit := s.opt.Now().Add(-time.Duration(spec.ExpireAfter) * time.Second)
	conditions := bson.A{bson.D{{Key: spec.Fields[0].Path, Value: bson.D{{Key: "$lt", Value: bson.NewDateTimeFromTime(limit)}}}}}
	if spec.Partial != nil {
		conditions = append(conditions, spec.PartialRaw)
	}
	raw, err := bson.Marshal(bson.D{{Key: "$and", Value: conditions}})
	if err != nil {
		return 0, err
	}
	filter, err := query.CompileFilter(raw)
	if err != nil {
		return 0, err
	}
	w := s.store.Writer(ctx, nil)
	d := deletion{selection{filter: filter, multi: true}}
	n, err := d.run(w, ns, ctx)
	if e := w.Finish(); err == nil {
		err = e
	}
	return n, err
}
