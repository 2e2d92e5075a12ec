package query

import "go.mongodb.org/mongo-driver/v2/bson"

// MayPass reports whether a document can pass the $match stages that a pipeline
// begins with, judged by the part of it that is known: unknown tells of a dotted
// path whether the whole document may have something else there. False is
// certain; true says to make the whole document and look again.
func (p *Pipeline) MayPass(known bson.Raw, unknown func(path string) bool) bool {
	for _, s := range p.stages {
		if s.filter == nil {
			return true
		}
		if yes, _ := s.filter.root.may(known, unknown); !yes {
			return false
		}
	}
	return true
}

// may reports whether a node can be true and whether it can be false.
func (n *Node) may(known bson.Raw, unknown func(string) bool) (yes, no bool) {
	switch n.Op {
	case OpAnd, OpOr, OpNor:
		if n.Op == OpAnd {
			yes = true
		} else {
			no = true
		}
		for _, c := range n.Children {
			cYes, cNo := c.may(known, unknown)
			if n.Op == OpAnd {
				yes, no = yes && cYes, no || cNo
			} else {
				yes, no = yes || cYes, no && cNo
			}
		}
		if n.Op == OpNor {
			yes, no = no, yes
		}
		return yes, no
	case OpNot:
		yes, no = n.Children[0].may(known, unknown)
		return no, yes
	}
	if n.Path != "" && unknown(n.Path) {
		return true, true
	}
	yes = n.match(known, nil)
	return yes, !yes
}
