package query

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

// CompileIndexFilter is [CompileFilter] of what MongoDB allows in the filter of a partial
// index.
func CompileIndexFilter(filter bson.Raw) (*Filter, error) {
	f, err := CompileFilter(filter)
	if err != nil {
		return nil, err
	}
	return f, f.root.checkIndexFilter(true)
}

func (n *Node) checkIndexFilter(top bool) error {
	switch n.Op {
	case OpAnd:
		if !top {
			return nil
		}
		for _, c := range n.Children {
			if err := c.checkIndexFilter(true); err != nil {
				return err
			}
		}
		return nil
	case OpEq, OpLt, OpLte, OpGt, OpGte, OpExists, OpType:
		return nil
	}
	return mongoerr.New(mongoerr.CannotCreateIndex, "unsupported expression in partial index: only $and, equality, $exists: true, $gt, $gte, $lt, $lte and $type are")
}

// Paths yields each path that the filter looks at; of what lies below an array's element the
// path from there.
func (f *Filter) Paths(yield func(path string) bool) { f.root.paths(yield) }

func (n *Node) paths(yield func(string) bool) bool {
	if n.Path != "" && !yield(n.Path) {
		return false
	}
	for _, c := range n.Children {
		if !c.paths(yield) {
			return false
		}
	}
	return true
}
