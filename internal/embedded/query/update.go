package query

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// ApplyContext is what an update needs to know beside the document.
type ApplyContext struct {
	Insert     bool           // the document is being inserted: $setOnInsert works
	Positional int            // what `$` stands for (MatchPositional); -1 for nothing
	Now        bson.DateTime  // of $currentDate
	Timestamp  bson.Timestamp // of $currentDate with {$type: "timestamp"}
}

// Update is a compiled update. It may be applied to any number of documents,
// concurrently.
type Update struct {
	root        *node
	replacement bson.Raw // instead of root
	positional  bool
}

// CompileUpdate checks and compiles an update: a document of operators, or a
// replacement (no field starts with `$`). It keeps parts of both arguments,
// which must not change afterwards. A pipeline is the caller's to refuse.
func CompileUpdate(update bson.Raw, arrayFilters []bson.Raw) (*Update, error) {
	first := value.NewIter(update)
	if !first.Next() || len(first.Key) == 0 || first.Key[0] != '$' {
		return compileReplacement(update, arrayFilters)
	}
	filters, err := parseArrayFilters(arrayFilters)
	if err != nil {
		return nil, err
	}
	p := updateParser{root: &node{}, filters: filters}
	for it := value.NewIter(update); it.Next(); {
		if err := p.modifier(string(it.Key), it.Value); err != nil {
			return nil, err
		}
	}
	for _, f := range filters {
		if !f.used {
			return nil, mongoerr.New(mongoerr.FailedToParse, "The array filter for identifier '%s' was not used in the update %s", f.id, update)
		}
	}
	return &Update{root: p.root, positional: p.positional}, nil
}

func compileReplacement(update bson.Raw, arrayFilters []bson.Raw) (*Update, error) {
	if len(arrayFilters) > 0 {
		return nil, mongoerr.New(mongoerr.FailedToParse, "arrayFilters may not be specified for replacement-style updates")
	}
	for it := value.NewIter(update); it.Next(); {
		if len(it.Key) > 0 && it.Key[0] == '$' {
			return nil, mongoerr.New(mongoerr.DollarPrefixedFieldName, "The dollar ($) prefixed field '%s' is not allowed in the context of an update's replacement document. Consider using an aggregation pipeline with $replaceWith.", it.Key)
		}
		if err := checkNames(it.Value); err != nil {
			return nil, err
		}
	}
	return &Update{replacement: update}, nil
}

// IsReplacement reports whether the update replaces the whole document.
func (u *Update) IsReplacement() bool { return u.root == nil }

// NeedsPositional reports whether a path has the positional operator `$`, so
// that Apply wants ApplyContext.Positional.
func (u *Update) NeedsPositional() bool { return u.positional }

// Apply returns doc changed. When modified is false nothing changed, and the
// result is doc itself; a change may also leave the same bytes (a $push with
// $sort of what is sorted), and counts as MongoDB counts it.
func (u *Update) Apply(doc bson.Raw, ctx ApplyContext) (newDoc bson.Raw, modified bool, err error) {
	if u.root == nil {
		return u.replace(doc, ctx)
	}
	e := &env{ctx: ctx, doc: doc}
	r, err := e.document(u.root, doc, place{viable: true})
	if err != nil || r.act == keep {
		return doc, false, err
	}
	return r.v.Value, true, nil
}

func (u *Update) replace(doc bson.Raw, ctx ApplyContext) (bson.Raw, bool, error) {
	id, had := value.Lookup(doc, "_id")
	newID, has := value.Lookup(u.replacement, "_id")
	if had && has && !value.Equal(id, newID) {
		return nil, false, mongoerr.New(mongoerr.ImmutableField, "After applying the update, the (immutable) field '_id' was found to have been altered to _id: %s", newID)
	}
	if has {
		id = newID
	}
	at, dst := value.Begin(make([]byte, 0, len(u.replacement)+len(id.Value)+5))
	if had || has {
		dst = value.AppendElement(dst, "_id", id)
	}
	for it := value.NewIter(u.replacement); it.Next(); {
		switch {
		case string(it.Key) == "_id":
		case it.Value.Type == bson.TypeTimestamp && value.Equal(it.Value, timestamp(bson.Timestamp{})):
			dst = value.AppendElement(dst, string(it.Key), timestamp(ctx.Timestamp))
		default:
			dst = append(dst, it.Element()...)
		}
	}
	dst = value.End(dst, at)
	if string(dst) == string(doc) {
		return doc, false, nil
	}
	return dst, true, nil
}

// Upsert returns the document that an upsert inserts when nothing matches f:
// what f requires to be equal, then the update. It has an _id (as its first
// field) only if filter or update give one; otherwise the caller adds it.
// ctx.Insert is implied.
func (u *Update) Upsert(f *Filter, ctx ApplyContext) (bson.Raw, error) {
	base := &node{}
	if err := u.equalities(f.root, base); err != nil {
		return nil, err
	}
	empty := bson.Raw{5, 0, 0, 0, 0}
	ctx.Insert = true
	doc := empty
	r, err := (&env{ctx: ctx, doc: empty}).document(base, empty, place{viable: true})
	if err != nil {
		return nil, err
	}
	if r.act == set {
		doc = r.v.Value
	}
	if doc, _, err = u.Apply(doc, ctx); err != nil {
		return nil, err
	}
	return idFirst(doc), nil
}

// equalities puts into base what n requires to be equal; only _id is wanted
// under a replacement.
func (u *Update) equalities(n *Node, base *node) error {
	if n.Op == OpAnd {
		for _, c := range n.Children {
			if err := u.equalities(c, base); err != nil {
				return err
			}
		}
	}
	if n.Op != OpEq || u.IsReplacement() && n.Path != "_id" {
		return nil
	}
	at := base
	for i, p := range n.parts {
		child := at.child(p.name)
		last := i == len(n.parts)-1
		if child != nil && (last || child.mod != nil) {
			return mongoerr.New(mongoerr.NotSingleValueField, "cannot infer query fields to set, path '%s' is matched twice", n.Path)
		}
		if child == nil {
			child = &node{path: n.Path}
			if last {
				child.mod = setTo{n.Value}
			}
			at.put(p.name, child)
		}
		at = child
	}
	return nil
}

func idFirst(doc bson.Raw) bson.Raw {
	id, ok := value.Lookup(doc, "_id")
	if first := value.NewIter(doc); !ok || first.Next() && string(first.Key) == "_id" {
		return doc
	}
	at, dst := value.Begin(make([]byte, 0, len(doc)))
	dst = value.AppendElement(dst, "_id", id)
	for it := value.NewIter(doc); it.Next(); {
		if string(it.Key) != "_id" {
			dst = append(dst, it.Element()...)
		}
	}
	return value.End(dst, at)
}

// checkNames refuses field names with a leading `$` inside a value to be
// stored: MongoDB 5.0 allows them in some places and not in others.
func checkNames(v bson.RawValue) error {
	if !value.IsObject(v) {
		return nil
	}
	for it := value.NewIter(v.Value); it.Next(); {
		if len(it.Key) > 0 && it.Key[0] == '$' && !isDBRef(it.Key) {
			return mongoerr.NotImplemented("a field name starting with $ (" + string(it.Key) + ") in an update")
		}
		if err := checkNames(it.Value); err != nil {
			return err
		}
	}
	return nil
}
