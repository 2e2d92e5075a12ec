package query

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// node is a node of an update: the paths of all operators merged into one
// tree. It is a leaf (mod is set), or has children for the fields of a
// document, or (array) children for the elements of an array that satisfy a
// filter.
type node struct {
	mod        modifier
	insertOnly bool   // a leaf of $setOnInsert
	path       string // of a leaf, for messages

	children   []child // in the order they are applied
	positional *node   // the child for `$`

	array   bool // children are named by array filter, "" for all elements
	filters map[string]*arrayFilter
}

type child struct {
	name string
	node *node
}

// compareNames orders the fields of one level; new fields are added in this
// order.
func compareNames(a, b string) int {
	if isIndex(a) && isIndex(b) {
		x, y := strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
		if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); c != 0 {
			return c
		}
	}
	return cmp.Compare(a, b)
}

func (n *node) find(name string) (int, bool) {
	return slices.BinarySearchFunc(n.children, name, func(c child, name string) int { return compareNames(c.name, name) })
}

func (n *node) child(name string) *node {
	if name == "$" {
		return n.positional
	}
	if i, ok := n.find(name); ok {
		return n.children[i].node
	}
	return nil
}

func (n *node) put(name string, c *node) {
	if name == "$" {
		n.positional = c
		return
	}
	i, _ := n.find(name)
	n.children = slices.Insert(n.children, i, child{name, c})
}

// merge joins what two nodes do to the same element; leaves cannot be joined.
func merge(a, b *node) (*node, error) {
	if a.mod != nil || b.mod != nil || a.array != b.array {
		return nil, mongoerr.New(mongoerr.ConflictingUpdateOperators, "Update created a conflict at '%s'", cmp.Or(a.path, b.path))
	}
	m := &node{path: a.path, array: a.array, filters: a.filters, positional: a.positional, children: slices.Clone(a.children)}
	if b.positional != nil {
		if err := m.mergeChild("$", b.positional); err != nil {
			return nil, err
		}
	}
	for _, c := range b.children {
		if err := m.mergeChild(c.name, c.node); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (n *node) mergeChild(name string, c *node) error {
	own := n.child(name)
	if own == nil {
		n.put(name, c)
		return nil
	}
	merged, err := merge(own, c)
	if err != nil {
		return err
	}
	if name == "$" {
		n.positional = merged
		return nil
	}
	i, _ := n.find(name)
	n.children[i].node = merged
	return nil
}

// updateParser builds the tree.
type updateParser struct {
	root       *node
	filters    map[string]*arrayFilter
	positional bool
}

// modifier adds one operator ({$set: {...}}).
func (p *updateParser) modifier(name string, v bson.RawValue) error {
	parse, ok := modifiers[name]
	switch {
	case name == "$bit":
		return mongoerr.NotImplemented(name)
	case !ok:
		return mongoerr.New(mongoerr.FailedToParse, "Unknown modifier: %s. Expected a valid update modifier or pipeline-style update specified as an array", name)
	case v.Type != bson.TypeEmbeddedDocument:
		return mongoerr.New(mongoerr.FailedToParse, "Modifiers operate on fields but we found type %s instead. For example: {$mod: {<field>: ...}} not {%s: %s}", typeName(v.Type), name, v)
	}
	for it := value.NewIter(v.Value); it.Next(); {
		path := string(it.Key)
		leaf := &node{path: path, insertOnly: name == "$setOnInsert"}
		parseLeaf := func() (err error) {
			leaf.mod, err = parse(path, it.Value)
			return err
		}
		if name == "$rename" {
			// Two paths are taken: what is renamed is removed, and the new
			// name, where the work is done, set.
			if err := p.add(path, &node{path: path, mod: unset{}}, func() error { return nil }); err != nil {
				return err
			}
			to, ok := it.Value.StringValueOK()
			if !ok {
				return badValue("The 'to' field for $rename must be a string: %s: %s", path, it.Value)
			}
			leaf.path = to
		}
		if err := p.add(leaf.path, leaf, parseLeaf); err != nil {
			return err
		}
	}
	return nil
}

// add puts a leaf into the tree at path; finish completes it once the path is
// found to be good (the order of MongoDB's errors).
func (p *updateParser) add(path string, leaf *node, finish func() error) error {
	names := strings.Split(path, ".")
	for i, name := range names {
		switch {
		case name == "":
			return mongoerr.New(mongoerr.EmptyFieldName, "The update path '%s' contains an empty field name, which is not allowed.", path)
		case name == "$" && i == 0:
			return badValue("Cannot have positional (i.e. '$') element in the first position in path '%s'", path)
		case name == "$" && slices.Index(names, "$") < i:
			return badValue("Too many positional (i.e. '$') elements found in path '%s'", path)
		case name == "$":
			p.positional = true
		case name[0] == '$' && !isFilterName(name) && !isDBRef([]byte(name)):
			return mongoerr.New(mongoerr.DollarPrefixedFieldName, "The dollar ($) prefixed field '%s' in '%s' is not valid for storage.", name, path)
		}
	}
	if err := finish(); err != nil {
		return err
	}
	conflict := func(i int) error {
		return mongoerr.New(mongoerr.ConflictingUpdateOperators, "Updating the path '%s' would create a conflict at '%s'", path, strings.Join(names[:i+1], "."))
	}
	if isFilterName(names[0]) {
		return badValue("Cannot have array filter identifier (i.e. '$[<id>]') element in the first position in path '%s'", path)
	}
	at := p.root
	for i, name := range names {
		if at.array {
			id := name[2 : len(name)-1]
			if f := p.filters[id]; f != nil {
				f.used = true
			} else if id != "" {
				return badValue("No array filter found for identifier '%s' in path '%s'", id, path)
			}
			name = id
		}
		next := at.child(name)
		if i == len(names)-1 {
			if next != nil {
				return conflict(i)
			}
			at.put(name, leaf)
			return nil
		}
		array := isFilterName(names[i+1])
		if next == nil {
			next = &node{path: strings.Join(names[:i+1], "."), array: array, filters: p.filters}
			at.put(name, next)
		} else if next.mod != nil || next.array != array {
			return conflict(i)
		}
		at = next
	}
	return nil
}

func isFilterName(name string) bool {
	return strings.HasPrefix(name, "$[") && strings.HasSuffix(name, "]")
}

// arrayFilter says which elements `$[id]` stands for.
type arrayFilter struct {
	id     string
	filter *Filter
	used   bool // while parsing
}

func parseArrayFilters(filters []bson.Raw) (map[string]*arrayFilter, error) {
	byID := make(map[string]*arrayFilter, len(filters))
	for _, raw := range filters {
		f, err := CompileFilter(raw)
		if err != nil {
			return nil, err
		}
		id, err := firstName(f.root, "")
		switch {
		case err != nil:
			return nil, err
		case id == "":
			return nil, mongoerr.New(mongoerr.FailedToParse, "Cannot use an expression without a top-level field name in arrayFilters")
		case id[0] < 'a' || id[0] > 'z' || strings.ContainsFunc(id, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
		}):
			return nil, badValue("Error parsing array filter :: caused by :: The top-level field name must be an alphanumeric string beginning with a lowercase letter, found '%s'", id)
		case byID[id] != nil:
			return nil, mongoerr.New(mongoerr.FailedToParse, "Found multiple array filters with the same top-level field name %s", id)
		}
		byID[id] = &arrayFilter{id: id, filter: f}
	}
	return byID, nil
}

// firstName is the first path component that all conditions of a filter share.
func firstName(n *Node, found string) (string, error) {
	if n.parts != nil {
		name := n.parts[0].name
		if found != "" && name != found {
			return "", mongoerr.New(mongoerr.FailedToParse, "Error parsing array filter :: caused by :: Expected a single top-level field name, found '%s' and '%s'", found, name)
		}
		return name, nil
	}
	for _, c := range n.Children {
		var err error
		if found, err = firstName(c, found); err != nil {
			return "", err
		}
	}
	return found, nil
}

func (f *arrayFilter) match(elem bson.RawValue) bool {
	at, dst := value.Begin(make([]byte, 0, len(elem.Value)+len(f.id)+7))
	return f.filter.Match(value.End(value.AppendElement(dst, f.id, elem), at))
}

// index reads a path component as an index of an array.
func index(name string) (int, bool) {
	if !isIndex(name) {
		return 0, false
	}
	i, err := strconv.Atoi(name)
	return i, err == nil && i < math.MaxInt32
}
