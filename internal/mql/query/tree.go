package query

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// tree is the paths of all operators of an update, merged.
type tree struct {
	root       *node
	filters    map[string]*arrayFilter
	leaves     []*node // in the order of the update
	positional bool    // a path has `$`, which stands in the tree as a name
}

// node is a node of the tree. It is a leaf (mod is set), or has children for the
// fields of a document, or (array) children for the elements of an array that
// satisfy a filter.
type node struct {
	path       string // of a leaf, and for messages
	mod        modifier
	insertOnly bool             // a leaf of $setOnInsert
	pushed     int              // of a leaf of $push, see Path
	children   []child          // in the order they are applied
	byName     map[string]*node // all of them, once they are many

	array   bool // children are named by array filter, "" for all elements
	filters map[string]*arrayFilter
}

type child struct {
	name string
	node *node
}

// compareNames orders the fields of one level; new fields are added in this
// order. It is MongoDB's, and not a total one: 2 < 10 < 1a < 2. So it says where to
// put a field, and not where one is.
func compareNames(a, b string) int {
	if isIndex(a) && isIndex(b) {
		x, y := strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
		if c := cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)); c != 0 {
			return c
		}
	}
	return cmp.Compare(a, b)
}

// find is the place of the child called name, -1 for none.
func (n *node) find(name string) int {
	return slices.IndexFunc(n.children, func(c child) bool { return c.name == name })
}

func (n *node) child(name string) *node {
	if n.byName != nil {
		return n.byName[name]
	}
	if i := n.find(name); i >= 0 {
		return n.children[i].node
	}
	return nil
}

// put sets the child called name.
func (n *node) put(name string, c *node) {
	if n.child(name) != nil {
		n.children[n.find(name)].node = c
	} else {
		i, _ := slices.BinarySearchFunc(n.children, name, func(c child, name string) int { return compareNames(c.name, name) })
		n.children = slices.Insert(n.children, i, child{name, c})
	}
	switch {
	case n.byName != nil:
		n.byName[name] = c
	case len(n.children) > fewFields:
		n.byName = make(map[string]*node, 2*len(n.children))
		for _, c := range n.children {
			n.byName[c.name] = c.node
		}
	}
}

// sortByPath puts children into the order of their paths as texts.
func (n *node) sortByPath() {
	text := func(c child) string {
		if c.node.mod == nil {
			return c.name + "."
		}
		return c.name
	}
	slices.SortFunc(n.children, func(a, b child) int { return cmp.Compare(text(a), text(b)) })
	for _, c := range n.children {
		c.node.sortByPath()
	}
}

// merge joins what two nodes do to the same element; leaves cannot be joined.
func merge(a, b *node) *node {
	if a.mod != nil || b.mod != nil || a.array != b.array {
		fail(mongoerr.ConflictingUpdateOperators, "Update created a conflict at '%s'", cmp.Or(a.path, b.path))
	}
	m := &node{path: a.path, array: a.array, filters: a.filters, children: slices.Clone(a.children)}
	for _, c := range b.children {
		if own := m.child(c.name); own != nil {
			c.node = merge(own, c.node)
		}
		m.put(c.name, c.node)
	}
	return m
}

// addOperator adds one operator ({$set: {...}}).
func (t *tree) addOperator(name string, v bson.RawValue) {
	parse := entry(modifiers, name, []string{"$bit"}, "", func() {
		parses(false, "Unknown modifier: %s. Expected a valid update modifier", name)
	})
	parses(v.Type == bson.TypeEmbeddedDocument, "Modifiers operate on fields but %s has a %s", name, typeName(v.Type))
	for it := value.NewIter(v.Value); it.Next(); {
		leaf := &node{path: string(it.Key), insertOnly: name == "$setOnInsert"}
		if name == "$rename" {
			// Two paths are taken: what is renamed is removed, and the new
			// name, where the work is done, set.
			t.add(&node{path: leaf.path, mod: unset}, func() {})
			to, ok := it.Value.StringValueOK()
			need(ok, "The 'to' field for $rename must be a string: %s: %s", leaf.path, it.Value)
			it.Value, leaf.path = value.String(leaf.path), to
		}
		checkDepth(leaf.path, it.Value)
		t.add(leaf, func() { leaf.mod = parse(leaf, it.Value) })
	}
}

// maxDepth is how deep MongoDB lets documents nest that users store.
const maxDepth = 180

// checkDepth checks how deep a document nests that has v at path.
func checkDepth(path string, v bson.RawValue) {
	check(strings.Count(path, ".")+depth(v) < maxDepth, mongoerr.Overflow,
		"Document exceeds maximum nested object depth %d at path '%.100s'", maxDepth, path)
}

// add checks the path of a leaf and puts it into the tree; finish completes it
// once the path is found to be good (the order of MongoDB's errors).
func (t *tree) add(leaf *node, finish func()) {
	names := strings.Split(leaf.path, ".")
	for i, name := range names {
		check(name != "", mongoerr.EmptyFieldName, "The update path '%s' contains an empty field name.", leaf.path)
		switch {
		case name == "$":
			ok := i > 0 && slices.Index(names, "$") == i
			need(ok, "Too many positional (i.e. '$') elements in path '%s', or one in the first position", leaf.path)
			t.positional = true
		case name[0] == '$' && !isFilterName(name) && !isDBRef(name):
			fail(mongoerr.DollarPrefixedFieldName, "The field '%s' in '%s' is not valid for storage.", name, leaf.path)
		}
	}
	finish()
	need(!isFilterName(names[0]), "Cannot have array filter identifier in the first position in path '%s'", leaf.path)
	t.leaves = append(t.leaves, leaf)
	t.insert(leaf, names)
}

// insert puts a leaf into the tree.
func (t *tree) insert(leaf *node, names []string) {
	at := t.root
	for i, name := range names {
		if at.array {
			name = name[2 : len(name)-1]
			f := t.filters[name]
			need(f != nil || name == "", "No array filter found for identifier '%s' in path '%s'", name, leaf.path)
			if f != nil && !f.used {
				f.used = true
			}
		}
		next := at.child(name)
		last := i == len(names)-1
		array := !last && isFilterName(names[i+1])
		if next == nil {
			next = leaf
			if !last {
				next = &node{path: strings.Join(names[:i+1], "."), array: array, filters: t.filters}
			}
			at.put(name, next)
		} else if last || next.mod != nil || next.array != array {
			fail(mongoerr.ConflictingUpdateOperators, "Updating the path '%s' would create a conflict at '%s'",
				leaf.path, strings.Join(names[:i+1], "."))
		}
		at = next
	}
}

// at returns the tree with `$` standing for an index. Only now may paths turn
// out to be in conflict.
func (t *tree) at(index string) *node {
	resolved := &tree{root: &node{}, filters: t.filters}
	for _, leaf := range t.leaves {
		names := strings.Split(leaf.path, ".")
		if i := slices.Index(names, "$"); i >= 0 {
			names[i] = index
		}
		resolved.insert(leaf, names)
	}
	return resolved.root
}

func isFilterName(name string) bool {
	return strings.HasPrefix(name, "$[") && strings.HasSuffix(name, "]")
}

// arrayFilter says which elements `$[id]` stands for.
type arrayFilter struct {
	id     string
	filter *Filter
	used   bool // written to only while the update is compiled
}

var identifier = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)

func parseArrayFilters(filters []bson.Raw) map[string]*arrayFilter {
	byID := make(map[string]*arrayFilter, len(filters))
	for _, raw := range filters {
		f := compileFilter(raw)
		id := firstName(f.root, "")
		parses(id != "", "Cannot use an expression without a top-level field name in arrayFilters")
		need(identifier.MatchString(id), "The top-level field name of an array filter must be an alphanumeric string "+
			"beginning with a lowercase letter, found '%s'", id)
		parses(byID[id] == nil, "Found multiple array filters with the same top-level field name %s", id)
		byID[id] = &arrayFilter{id: id, filter: f}
	}
	return byID
}

// firstName is the first path component that all conditions of a filter share.
func firstName(n *Node, found string) string {
	if n.parts != nil {
		parses(found == "" || n.parts[0] == found,
			"An array filter has a single top-level field name, found '%s' and '%s'", found, n.parts[0])
		return n.parts[0]
	}
	for _, c := range n.Children {
		found = firstName(c, found)
	}
	return found
}

func (f *arrayFilter) match(elem bson.RawValue) bool {
	at, dst := value.Begin(make([]byte, 0, len(elem.Value)+len(f.id)+7))
	return f.filter.Match(value.End(value.AppendElement(dst, f.id, elem), at))
}

func isIndex(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
}

// index reads a path component as an index of an array.
func index(name string) (int, bool) {
	i, err := strconv.Atoi(name)
	if err != nil || i > math.MaxInt32 {
		i = math.MaxInt32 // of none
	}
	return i, isIndex(name)
}
