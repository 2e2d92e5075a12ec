package plan

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/query"
	"github.com/mscheduler/mscheduler/internal/embedded/storage"
)

// Rows delivers the documents of a plan. It belongs to one goroutine.
type Rows struct {
	Stats Stats

	plan   *Plan
	next   func() (storage.Record, bool)
	seen   map[uint64]struct{} // records delivered, when they may come again
	sorted []storage.Record
	ctx    context.Context
	err    error
}

// Run begins to read. The rows end early, with an error, when ctx does.
func (p *Plan) Run(ctx context.Context) (*Rows, error) {
	r := &Rows{plan: p, ctx: ctx}
	if p.access.mayRepeat() {
		r.seen = map[uint64]struct{}{}
	}
	r.next = r.open(p.access)
	if !p.blocking {
		return r, nil
	}
	return r, r.sort()
}

// Next returns the next document that matches, in the wanted order.
func (r *Rows) Next() (storage.Record, bool) {
	if r.plan.blocking {
		if len(r.sorted) == 0 {
			return storage.Record{}, false
		}
		rec := r.sorted[0]
		r.sorted = r.sorted[1:]
		return rec, true
	}
	return r.match()
}

// Sorts reports whether the rows are sorted in memory, all before the first.
func (p *Plan) Sorts() bool { return p.blocking }

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

func (a *access) mayRepeat() bool {
	return len(a.any) > 0 || a.index != nil && a.index.AnyMultikey()
}

// open returns a function that delivers the records of an access, each once.
func (r *Rows) open(a access) func() (storage.Record, bool) {
	switch {
	case a.none:
		return func() (storage.Record, bool) { return storage.Record{}, false }
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

func (r *Rows) entries(a access) func() (storage.Entry, bool) {
	newScan := func(prefix string) *scan {
		return &scan{it: a.index.Scan(), prefix: prefix, fields: a.fields, reverse: a.reverse, stats: &r.Stats}
	}
	switch len(a.prefixes) {
	case 0:
		return newScan("").next
	case 1:
		return newScan(a.prefixes[0]).next
	}
	m := &merge{reverse: a.reverse}
	for _, prefix := range a.prefixes {
		m.scans = append(m.scans, newScan(prefix))
	}
	return m.next
}

func (r *Rows) openUnion(list []access) func() (storage.Record, bool) {
	next := r.open(list[0])
	list = list[1:]
	return func() (storage.Record, bool) {
		for {
			if rec, ok := next(); ok {
				return rec, true
			}
			if len(list) == 0 {
				return storage.Record{}, false
			}
			next = r.open(list[0])
			list = list[1:]
		}
	}
}

// sort reads everything and keeps the first Limit in order.
func (r *Rows) sort() (err error) {
	r.sorted, err = query.Top(r.plan.q.Sort, func(yield func(storage.Record, error) bool) {
		for {
			rec, ok := r.match()
			if !ok || !yield(rec, nil) {
				break
			}
		}
		if r.err != nil {
			yield(storage.Record{}, r.err)
		}
	}, func(rec storage.Record) bson.Raw { return rec.Doc }, r.plan.q.Limit)
	return err
}
