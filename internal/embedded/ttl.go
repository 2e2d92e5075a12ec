package embedded

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/mql/query"
)

// expireLoop deletes, from time to time, what TTL indexes let expire.
func (s *Server) expireLoop() {
	s.every(s.opt.TTLInterval, func() {
		if _, err := s.expire(s.ctx); err != nil && s.ctx.Err() == nil {
			s.zl.Warn().Err(err).Msg("embedded server: could not delete expired documents")
		}
	})
}

// expire deletes the documents that are past their time and returns how many.
func (s *Server) expire(ctx context.Context) (n int, err error) {
	s.store.Snapshot().Each(func(c *storage.Collection) bool {
		for _, x := range c.Indexes {
			if x.Spec.ExpireAfter >= 0 && err == nil {
				var out outcome
				out, err = s.expireIndex(ctx, c.Namespace, x.Spec)
				n += out.n
			}
		}
		return err == nil
	})
	return n, err
}

func (s *Server) expireIndex(ctx context.Context, ns string, spec *storage.IndexSpec) (out outcome, err error) {
	limit := s.opt.Now().Add(-time.Duration(spec.ExpireAfter) * time.Second)
	past := newDoc().openDoc(spec.Fields[0].Path)
	past.any("$lt", bson.NewDateTimeFromTime(limit))
	both := newDoc().openArray("$and").doc("0", past.close().end())
	if spec.Partial != nil {
		both.doc("1", spec.PartialRaw)
	}
	filter, err := query.CompileFilter(both.close().end())
	if err != nil {
		return out, err
	}
	t := &target{Writer: s.store.Writer(ctx, nil), s: s, ctx: ctx, ns: ns}
	defer t.FinishWith(&err)
	return (&statement{filter: filter, multi: true}).run(t)
}
