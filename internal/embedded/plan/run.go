package plan

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/storage"
	"github.com/mscheduler/mscheduler/internal/mql/query"
)

// Rows delivers the documents of a plan. It belongs to one goroutine.
type Rows struct {
	Stats Stats

	plan   *Plan
	next   source
	seen   map[uint64]struct{} // records delivered, when they may come again
	sorted []storage.Record
	ctx    context.Context
	err    error
}

// source delivers the records of an access, each once.
type source func() (storage.Record, bool)

// Run begins to read. The rows end early, with an error, when ctx does.
func (p *Plan) Run(ctx context.Context) (*Rows, error) {
	r := &Rows{plan: p, ctx: ctx}
	if len(p.any) > 0 || p.index != nil && p.index.AnyMultikey() {
		r.seen = map[uint64]struct{}{}
	}
	r.next = r.open(&p.access)
	if !p.blocking {
		return r, nil
	}
	return r, r.sort()
}

// Next returns the next document that matches, in the wanted order.
func (r *Rows) Next() (rec storage.Record, ok bool) {
	if !r.plan.blocking {
		return r.match()
	}
	if len(r.sorted) > 0 {
		rec, r.sorted, ok = r.sorted[0], r.sorted[1:], true
	}
	return rec, ok
}

// Within lets ctx end the rows from here on: who reads on may not be who began.
func (r *Rows) Within(ctx context.Context) { r.ctx = ctx }

// Sorts reports whether the rows are sorted in memory, all before the first.
func (p *Plan) Sorts() bool { return p.blocking }

// Reads is the collection, as it was, that the rows are read from; nil for none.
func (r *Rows) Reads() *storage.Collection { return r.plan.c }

// Seen is how many records the rows remember, so as to deliver each once.
func (r *Rows) Seen() int { return len(r.seen) }

// Err returns what ended the rows early, nil if they are complete.
func (r *Rows) Err() error { return r.err }

func (r *Rows) match() (storage.Record, bool) {
	for {
		rec, ok := r.next()
		if !ok {
			return rec, false
		}
		r.Stats.Docs++
		if r.Stats.Docs%256 == 0 && r.ctx.Err() != nil {
			r.err = storage.ContextError(r.ctx)
			return storage.Record{}, false
		}
		if r.plan.q.Filter.Match(rec.Doc) {
			return rec, true
		}
	}
}

func (r *Rows) open(a *access) source {
	switch {
	case a.none:
		return func() (rec storage.Record, ok bool) { return rec, false }
	case len(a.any) > 0:
		return r.openUnion(a.any)
	case a.index == nil:
		it := r.plan.c.Scan()
		return func() (storage.Record, bool) {
			ok := it.Next()
			return it.Item(), ok
		}
	}
	entries := r.entries(a)
	return func() (storage.Record, bool) {
		for {
			e, ok := entries()
			if !ok {
				return storage.Record{}, false
			}
			if r.seen != nil {
				if _, again := r.seen[e.RID]; again {
					continue
				}
				r.seen[e.RID] = struct{}{}
			}
			return r.plan.c.Get(e.RID)
		}
	}
}

func (r *Rows) entries(a *access) func() (storage.Entry, bool) {
	var scans []*scan
	for _, prefix := range a.prefixes {
		scans = append(scans, &scan{
			it: a.index.Scan(), prefix: prefix, fields: a.index.Spec.Fields[a.skip:a.end],
			bounds: a.bounds[a.skip:a.end], reverse: a.reverse, stats: &r.Stats,
		})
	}
	if len(scans) > 1 {
		return newMerge(scans, a.reverse).next
	}
	return scans[0].next
}

func (r *Rows) openUnion(list []access) source {
	next := r.open(&access{none: true})
	return func() (storage.Record, bool) {
		for {
			if rec, ok := next(); ok || len(list) == 0 {
				return rec, ok
			}
			next, list = r.open(&list[0]), list[1:]
		}
	}
}

// sort reads everything and keeps the first Limit in order.
func (r *Rows) sort() (err error) {
	r.sorted, err = query.Top(r.plan.q.Sort, func(yield func(storage.Record, error) bool) {
		for more := true; more; {
			rec, ok := r.match()
			more = ok && yield(rec, nil)
		}
		if r.err != nil {
			yield(storage.Record{}, r.err)
		}
	}, func(rec storage.Record) bson.Raw { return rec.Doc }, r.plan.q.Limit)
	return err
}
