package embedded

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/plan"
	"github.com/mscheduler/mscheduler/internal/embedded/query"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// explained is the part of a command that a plan answers.
type explained struct {
	plan.Query
	skip, limit int
}

func runExplain(r *request) (*docBuilder, error) {
	inner := r.args[0].value
	if inner.Type != bson.TypeEmbeddedDocument {
		return nil, r.wrongType("explain", "object", inner)
	}
	sub := &request{s: r.s, c: r.c, ctx: r.ctx, db: r.db, txn: r.txn, txnNumber: -1}
	for it := value.NewIter(inner.Value); it.Next(); {
		sub.args = append(sub.args, arg{string(it.Key), it.Value})
	}
	if len(sub.args) == 0 {
		return nil, mongoerr.New(mongoerr.CommandNotFound, "Explain failed due to unknown command: ''")
	}
	sub.name = sub.args[0].name
	sub.cmd = commands[sub.name]
	if sub.cmd == nil {
		return nil, mongoerr.New(mongoerr.CommandNotFound, "Explain failed due to unknown command: %s", sub.name)
	}
	for _, a := range sub.args[1:] {
		if err := sub.checkField(a); err != nil {
			return nil, err
		}
	}
	ns, err := sub.namespace()
	if err != nil {
		return nil, err
	}
	e, err := sub.explained()
	if err != nil {
		return nil, err
	}
	p, err := plan.Choose(r.collection(ns), e.Query)
	if err != nil {
		return nil, err
	}
	d := newDoc().string("explainVersion", "1").openDoc("queryPlanner").string("namespace", ns).
		bool("indexFilterSet", false).any("winningPlan", p.Explain()).any("rejectedPlans", bson.A{}).close()
	if v, _ := r.get("verbosity").StringValueOK(); v != "queryPlanner" {
		if err := e.execute(r, p, d); err != nil {
			return nil, err
		}
	}
	d.openDoc("serverInfo").string("host", r.s.Addr()).string("version", version).close()
	return d.doc("command", inner.Value), nil
}

// execute reads the plan to its end and reports what that cost. Nothing is
// written for the plan of a write.
func (e *explained) execute(r *request, p *plan.Plan, d *docBuilder) error {
	rows, err := p.Run(r.ctx)
	if err != nil {
		return err
	}
	n := 0
	for e.limit == 0 || n < e.skip+e.limit {
		if _, ok := rows.Next(); !ok {
			break
		}
		n++
	}
	if err := rows.Err(); err != nil {
		return err
	}
	d.openDoc("executionStats").bool("executionSuccess", true).int32("nReturned", max(0, n-e.skip)).
		int32("executionTimeMillis", int(r.s.opt.Now().Sub(r.ctx.start).Milliseconds())).
		int32("totalKeysExamined", rows.Stats.Keys).int32("totalDocsExamined", rows.Stats.Docs).
		any("executionStages", p.Explain()).close()
	return nil
}

// explained takes the query out of the command to explain.
func (r *request) explained() (e explained, err error) {
	switch r.name {
	case "find":
		f, err := r.parseFind()
		return explained{Query: f.query, skip: f.skip, limit: f.limit}, err
	case "count", "distinct":
		e.Hint = r.get("hint")
		e.Filter, err = r.filter("query")
		return e, err
	case "findAndModify":
		f, err := r.parseFindAndModify()
		if err != nil {
			return e, err
		}
		return explained{Query: plan.Query{Filter: f.filter, Sort: f.sort, Hint: f.hint, Limit: 1}, limit: 1}, nil
	case "aggregate":
		stages, err := r.list("pipeline")
		if err != nil {
			return e, err
		}
		p, err := query.CompilePipeline(stages)
		if err != nil {
			return e, err
		}
		e.Query, _ = sourceOf(p)
		e.Hint, e.limit = r.get("hint"), e.Limit
		return e, nil
	case "update", "delete":
		list, err := r.list(r.name + "s")
		if err != nil {
			return e, err
		}
		if len(list) != 1 {
			return e, mongoerr.New(mongoerr.InvalidLength, "explained write batches must be of size 1")
		}
		var s *selection
		if r.name == "delete" {
			d, err := r.parseDelete(list[0])
			if err != nil {
				return e, err
			}
			s = &d.selection
		} else {
			u, err := r.parseUpdate(list[0])
			if err != nil {
				return e, err
			}
			s = &u.selection
		}
		e.Query = plan.Query{Filter: s.filter, Hint: s.hint}
		if !s.multi {
			e.limit = 1
		}
		return e, nil
	}
	return e, mongoerr.NotImplemented("explain of " + r.name)
}
