package flowspec

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/codec"
	"github.com/mscheduler/mscheduler/internal/input"
)

// The references in arguments: each is the only name of an object.
const (
	refOutput  = "$output"  // of a node
	refArg     = "$arg"     // of the flow
	refItem    = "$item"    // of a node with elements: one of them
	refLiteral = "$literal" // the value as it is
)

// args are the arguments of the node with those of the flow filled in. waits says whether they
// refer to outputs, too; then they are a template.
func (c *checker) args() (args bson.RawValue, waits bool) {
	if c.argsBytes > maxFlowBytes { // which is refused
		return args, false
	}
	args, waits, err := c.template("args", c.n.Args)
	if err == nil {
		err = input.Args(args)
	}
	c.add(err)
	c.argsBytes += len(args.Value)
	return args, waits
}

// template is a value with the flow's arguments filled in. waits says whether it refers to outputs,
// too.
func (c *checker) template(field string, given any) (v bson.RawValue, waits bool, err error) {
	raw, err := codec.EncodeTemplate(field, given, input.MaxArgsBytes)
	if err != nil {
		return v, false, err
	}
	w := rewriter{root: field}
	w.replace = func(at, name string, of bson.RawValue) bson.RawValue {
		text, isText := of.StringValueOK()
		switch {
		case name == refLiteral:
			w.plain(at, of)
			return of
		case name == refItem && (c.n.Each == nil || field != "args"):
			w.bad(at, "is for the args of a node with each")
			return bson.RawValue{}
		case name != refOutput && name != refArg && name != refItem:
			w.bad(at, "is not known; want %s, %s or %s", refOutput, refArg, refLiteral)
			return bson.RawValue{}
		case !isText:
			w.bad(at, "is %s; want text, such as %q", codec.ValueJSON(of), "order.id")
			return bson.RawValue{}
		case name == refArg && c.open:
			waits = true
			return reference(refArg, of)
		case name == refArg:
			return pick(c.flowArgs, text)
		}
		if waits = true; name == refItem {
			return reference(refItem, of)
		}
		c.checkOutput(&w, at, text)
		return reference(refOutput, of)
	}
	v, err = w.rewrite(raw)
	return v, waits, err
}

// checkOutput checks that the node whose output is wanted has ended when this one starts.
func (c *checker) checkOutput(w *rewriter, at, text string) {
	id, _, _ := strings.Cut(text, ".")
	switch place, known := c.shape.places[id]; {
	case !known || id == "":
		w.bad(at, "names node %s, which does not exist", shownID(id))
	case !c.shape.isAncestor(place, c.i):
		w.bad(at, "names node %s, which does not come before this one", shownID(id))
	}
}
