package query

import (
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// ApplyContext is what an update needs to know beside the document.
type ApplyContext struct {
	Insert     bool                  // the document is being inserted: $setOnInsert works
	Positional int                   // what `$` stands for (MatchPositional); -1 for nothing
	Now        bson.DateTime         // of $currentDate
	Timestamp  func() bson.Timestamp // of $currentDate with {$type: "timestamp"}: each gets another; nil for the empty one
}

// Update is a compiled update. It may be applied to any number of documents,
// concurrently.
type Update struct {
	tree        *tree
	paths       []Path
	replacement bson.Raw // instead of tree
}

// CompileUpdate checks and compiles an update: a document of operators, or a
// replacement (no field starts with `$`). It keeps parts of both arguments,
// which must not change afterwards. A pipeline is the caller's to refuse.
func CompileUpdate(update bson.Raw, arrayFilters []bson.Raw) (u *Update, err error) {
	defer catch(&err)
	if !strings.HasPrefix(firstKey(value.Document(update)), "$") {
		parses(len(arrayFilters) == 0, "arrayFilters may not be specified for replacement-style updates")
		for it := value.NewIter(update); it.Next(); {
			dollar := strings.HasPrefix(string(it.Key), "$")
			check(!dollar, mongoerr.DollarPrefixedFieldName, "The field '%s' is not allowed in a replacement", it.Key)
			checkNames(it.Value)
		}
		return &Update{replacement: update}, CheckDepth(update)
	}
	t := &tree{root: &node{}, filters: parseArrayFilters(arrayFilters)}
	for it := value.NewIter(update); it.Next(); {
		t.addOperator(string(it.Key), it.Value)
	}
	for id, f := range t.filters {
		parses(f.used, "The array filter for identifier '%s' was not used in the update %s", id, update)
	}
	u = &Update{tree: t}
	for _, leaf := range t.leaves {
		u.paths = append(u.paths, Path{leaf.path, leaf.pushed})
	}
	return u, nil
}

// Paths are what the update writes to, none of a replacement.
func (u *Update) Paths() []Path { return u.paths }

// IsReplacement reports whether the update replaces the whole document.
func (u *Update) IsReplacement() bool { return u.tree == nil }

// NeedsPositional reports whether a path has the positional operator `$`, so
// that Apply wants ApplyContext.Positional.
func (u *Update) NeedsPositional() bool { return u.tree != nil && u.tree.positional }

// Apply returns doc changed. When modified is false nothing changed, and the
// result is doc itself; a change may also leave the same bytes (a $push with
// $sort of what is sorted), and counts as MongoDB counts it.
func (u *Update) Apply(doc bson.Raw, ctx ApplyContext) (newDoc bson.Raw, modified bool, err error) {
	defer catch(&err)
	if u.tree == nil {
		newDoc = u.replace(doc, ctx)
		return newDoc, string(newDoc) != string(doc), nil
	}
	root := u.tree.root
	if u.tree.positional && ctx.Positional >= 0 {
		root = u.tree.at(strconv.Itoa(ctx.Positional))
	}
	newDoc, modified = apply(root, doc, ctx)
	return newDoc, modified, nil
}

func apply(root *node, doc bson.Raw, ctx ApplyContext) (newDoc bson.Raw, modified bool) {
	e := &env{ctx: ctx, doc: doc}
	c := e.document(root, doc, place{viable: true})
	if c.act == keep {
		return doc, false
	}
	return c.v.Value, true
}

func (u *Update) replace(doc bson.Raw, ctx ApplyContext) bson.Raw {
	id, had := value.Lookup(doc, "_id")
	newID, has := value.Lookup(u.replacement, "_id")
	if had && has && !value.Equal(id, newID) {
		fail(mongoerr.ImmutableField, "The (immutable) field '_id' was found to have been altered to _id: %s", newID)
	}
	if has {
		id = newID
	}
	return idFirst(id, u.replacement, ctx)
}

// tick is the time for one field.
func (c ApplyContext) tick() bson.RawValue {
	if c.Timestamp == nil {
		return timestamp(bson.Timestamp{})
	}
	return timestamp(c.Timestamp())
}

// idFirst is doc beginning with id, if there is one; an empty timestamp at its top
// becomes that of ctx.
func idFirst(id bson.RawValue, doc bson.Raw, ctx ApplyContext) bson.Raw {
	size := len(doc)
	if _, has := value.Lookup(doc, "_id"); !has && id.Type != 0 {
		size += len("_id") + 2 + len(id.Value)
	}
	at, dst := value.Begin(make([]byte, 0, size))
	if id.Type != 0 {
		dst = value.AppendElement(dst, "_id", id)
	}
	for it := value.NewIter(doc); it.Next(); {
		switch {
		case string(it.Key) == "_id":
		case value.Identical(it.Value, timestamp(bson.Timestamp{})):
			dst = value.AppendElement(dst, string(it.Key), ctx.tick())
		default:
			dst = append(dst, it.Element()...)
		}
	}
	return value.End(dst, at)
}

// Upsert returns the document that an upsert inserts when nothing matches f:
// what f requires to be equal, then the update. It has an _id (as its first
// field) only if filter or update give one; otherwise the caller adds it.
// ctx.Insert is implied.
func (u *Update) Upsert(f *Filter, ctx ApplyContext) (doc bson.Raw, err error) {
	defer catch(&err)
	base := &node{}
	u.equalities(f.root, base)
	base.sortByPath()
	ctx.Insert = true
	doc, _ = apply(base, emptyDoc, ctx)
	if doc, _, err = u.Apply(doc, ctx); err != nil {
		return nil, err
	}
	if id, ok := value.Lookup(doc, "_id"); ok && firstKey(value.Document(doc)) != "_id" {
		doc = idFirst(id, doc, ApplyContext{})
	}
	return doc, nil
}

// equalities puts into base what n requires to be equal; only _id is wanted
// under a replacement.
func (u *Update) equalities(n *Node, base *node) {
	if n.Op == OpAnd {
		for _, c := range n.Children {
			u.equalities(c, base)
		}
	}
	if n.Op != OpEq || u.IsReplacement() && n.parts[0] != "_id" {
		return
	}
	check(len(n.parts) == 1 || !u.IsReplacement(), mongoerr.NotExactValueField,
		"field at '_id' must be exactly specified, field at sub-path '%s' found", n.Path)
	checkDepth(n.Path, n.Value)
	for i, name := range n.parts {
		child := base.child(name)
		last := i == len(n.parts)-1
		check(child == nil || !last && child.mod == nil, mongoerr.NotSingleValueField,
			"cannot infer query fields to set, path '%s' is matched twice", n.Path)
		if child == nil {
			child = &node{path: n.Path}
			if last {
				child.mod = setTo(n.Value)
			}
			base.put(name, child)
		}
		base = child
	}
}

// checkNames refuses field names with a leading `$` inside a value to be
// stored: MongoDB 5.0 allows them in some places and not in others.
func checkNames(v bson.RawValue) {
	if !value.IsObject(v) {
		return
	}
	for it := value.NewIter(v.Value); it.Next(); {
		if key := string(it.Key); strings.HasPrefix(key, "$") && !isDBRef(key) {
			refuse("a field name starting with $ (" + key + ") in an update")
		}
		checkNames(it.Value)
	}
}
