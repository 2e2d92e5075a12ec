package embedded

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/plan"
	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

// runExplain plans what is asked for and, unless only the plan is wanted, reads it
// to its end. Nothing is written for the plan of a write.
func runExplain(r *request) (*docBuilder, error) {
	inner, ok := r.subject().DocumentOK()
	if !ok {
		r.wrongType("explain", "object", r.subject())
		return nil, r.err
	}
	sub := &request{s: r.s, c: r.c, ctx: r.ctx, db: r.db, txn: r.txn, txnNumber: -1}
	if err := sub.name(inner, "Explain failed due to unknown command: '%s'"); err != nil {
		return nil, err
	}
	sub.read(inner, sub.cmd.known, 1)
	if db, ok := sub.get("$db").StringValueOK(); ok && db != r.db {
		return nil, mongoerr.New(mongoerr.InvalidNamespace, "Mismatched $db in explain command. Expected %s but got %s", r.db, db)
	}
	verbosity, _ := r.get("verbosity").StringValueOK()
	if known := []string{"queryPlanner", "executionStats", "allPlansExecution"}; r.get("verbosity").Type != 0 && !slices.Contains(known, verbosity) {
		return nil, mongoerr.New(mongoerr.FailedToParse, "verbosity string must be one of {'queryPlanner', 'executionStats', 'allPlansExecution'}")
	}
	q := sub.explained()
	ns := sub.namespace()
	if sub.err != nil {
		return nil, sub.err
	}
	p, rows, err := r.rows(ns, q.Query)
	if err != nil {
		return nil, err
	}
	winning := p.Explain()
	if sub.countsAll() {
		winning = bson.D{{Key: "stage", Value: "RECORD_STORE_FAST_COUNT"}}
	}
	d := newDoc().string("explainVersion", "1").openDoc("queryPlanner").string("namespace", ns).
		bool("indexFilterSet", false).any("winningPlan", winning).any("rejectedPlans", bson.A{}).close()
	if verbosity != "queryPlanner" {
		n := 0
		if !sub.countsAll() {
			for _, err := range q.run(rows, &n) {
				if err != nil {
					return nil, err
				}
			}
		}
		d.openDoc("executionStats").bool("executionSuccess", true).int32("nReturned", n).
			int32("executionTimeMillis", int(r.s.opt.Now().Sub(r.ctx.start).Milliseconds())).
			int32("totalKeysExamined", rows.Stats.Keys).int32("totalDocsExamined", rows.Stats.Docs).
			any("executionStages", winning).close()
	}
	d.openDoc("serverInfo").string("host", r.s.Addr()).string("version", version).close()
	return d.doc("command", inner), nil
}

// explained takes the query out of the command to explain.
func (r *request) explained() (q reading) {
	one := func(st *statement, err error) reading {
		if r.fail(err); err != nil {
			return reading{}
		}
		q := reading{Query: plan.Query{Filter: st.filter, Sort: st.sort, Hint: st.hint}}
		if !st.multi {
			q.Limit, q.limit = 1, 1
		}
		return q
	}
	switch r.of {
	case "find":
		r.projection("projection")
		return r.findReading()
	case "count":
		return r.countReading()
	case "distinct":
		r.required("key")
		return r.queryReading()
	case "findAndModify", "findandmodify":
		r.projection("fields")
		f := r.findAndModify()
		return one(&f.statement, r.err)
	case "aggregate":
		return r.aggregateReading(r.list("pipeline"))
	case "update", "delete":
		list := r.list(r.of + "s")
		switch {
		case len(list) != 1:
			r.fail(mongoerr.New(mongoerr.InvalidLength, "explained write batches must be of size 1"))
			return q
		case r.of == "update":
			return one(parseUpdate(list[0]))
		}
		return one(parseDelete(list[0]))
	}
	r.fail(mongoerr.New(mongoerr.IllegalOperation, "Cannot explain cmd: %s", r.of))
	return q
}
