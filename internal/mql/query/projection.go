package query

import (
	"bytes"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// Projection is a compiled projection. A nil Projection keeps everything.
type Projection struct {
	exclude bool // listed fields go, the others stay
	root    shape
}

// shape is one level of the fields a projection lists.
type shape []shapeField

type shapeField struct {
	name  string
	sub   *shape                            // nil at the end of a path
	slice func(bson.RawValue) bson.RawValue // $slice, else nil
	elem  *Node                             // OpElemMatch or OpElemValue of $elemMatch, else nil; stands last
}

func (s shape) find(name string) int {
	return slices.IndexFunc(s, func(f shapeField) bool { return f.name == name })
}

// CompileProjection checks and compiles a projection of find or findAndModify;
// it is nil for an empty one. Computed fields and the positional `.$` are refused.
func CompileProjection(spec bson.Raw) (p *Projection, err error) {
	defer catch(&err)
	if len(spec) <= 5 {
		return nil, nil
	}
	return compileProjection(spec, true), nil
}

// projecting is a projection that is compiled.
type projecting struct {
	p    Projection
	find bool // not the stage $project
	mode int  // 1 inclusion, -1 exclusion, 0 not known yet
	id   int  // the same, for _id

	elem, slice bool // there are such
}

func compileProjection(spec []byte, find bool) *Projection {
	c := projecting{find: find}
	c.level("", spec)
	mode := c.mode
	if mode == 0 && c.elem && !c.slice {
		mode = 1
	}
	if mode == 0 {
		mode = c.id
	}
	c.p.exclude = mode != 1
	i := c.p.root.find("_id")
	if c.id != 0 && c.p.exclude == (c.id > 0) { // it does as the fields do that are not listed
		c.p.root = slices.Delete(c.p.root, i, i+1)
	} else if i < 0 && !c.p.exclude {
		c.p.root = append(c.p.root, shapeField{name: "_id"})
	}
	if c.p.exclude && c.elem {
		refuse("$elemMatch in a projection that excludes")
	}
	return &c.p
}

func (c *projecting) level(prefix string, spec []byte) {
	for it := value.NewIter(spec); it.Next(); {
		path := prefix + string(it.Key)
		switch class := value.ClassOf(it.Value.Type); class {
		case value.ClassBoolean, value.ClassNumber:
			c.flag(path, truthy(it.Value))
		case value.ClassDocument:
			c.object(path, it.Value)
		default:
			refuse("a computed field in a projection")
		}
	}
}

func (c *projecting) flag(path string, include bool) {
	if strings.HasSuffix(path, ".$") && c.find {
		refuse("the positional projection (" + path + ")")
	}
	c.put(path, shapeField{})
	mode := -1
	if include {
		mode = 1
	}
	if path == "_id" {
		c.id = mode
		return
	}
	check(c.mode != -1 || !include, 31253, "Cannot do inclusion on field %s in exclusion projection", path)
	check(c.mode != 1 || include, 31254, "Cannot do exclusion on field %s in inclusion projection", path)
	c.mode = mode
}

func (c *projecting) object(path string, v bson.RawValue) {
	check(len(v.Value) > 5, 51270, "An empty sub-projection is not a valid value. Found empty object at path")
	args := value.Elements(v.Value)
	switch op := firstKey(v); {
	case len(args) > 1:
		c.level(path+".", v.Value)
	case op == "$slice" && c.find:
		c.slice = true
		c.put(path, shapeField{slice: parseSlice(args[0])})
	case op == "$elemMatch" && c.find:
		check(!strings.Contains(path, "."), 31275, "Cannot use $elemMatch projection on a nested field: %s", path)
		c.elem = true
		c.put(path, shapeField{elem: simplify(parseElemMatch(path, args[0], nil)[0])})
	case strings.HasPrefix(op, "$"):
		refuse(op + " in a projection")
	default:
		c.level(path+".", v.Value)
	}
}

func parseSlice(v bson.RawValue) func(bson.RawValue) bson.RawValue {
	skip, ok := value.AsInteger(v)
	limit := int64(1 << 32) // all: more than an array has
	if ok && skip >= 0 {
		skip, limit = 0, skip
	}
	if v.Type == bson.TypeArray {
		if args := value.Elements(v.Value); len(args) == 2 {
			var hasLimit bool
			skip, ok = value.AsInteger(args[0])
			limit, hasLimit = value.AsInteger(args[1])
			ok = ok && hasLimit && limit > 0
		}
	}
	if !ok {
		refuse("the expression $slice, or $slice of other than a number or [skip, limit],")
	}
	return func(v bson.RawValue) bson.RawValue {
		if v.Type != bson.TypeArray {
			return v
		}
		elems := value.Elements(v.Value)
		from, to := window(skip, limit, len(elems))
		return value.Array(elems[from:to])
	}
}

// put adds the end of a path.
func (c *projecting) put(path string, leaf shapeField) {
	at := &c.p.root
	names := fieldNames(path)
	for i, name := range names {
		last := i == len(names)-1
		j := at.find(name)
		check(j < 0 || !last, 31250, "Path collision at %s", path)
		check(j < 0 || (*at)[j].sub != nil, 31249, "Path collision at %s remaining portion %s", path, strings.Join(names[1:], "."))
		if j < 0 {
			f := shapeField{sub: &shape{}}
			if last {
				f = leaf
			}
			f.name = name
			j = len(*at)
			*at = append(*at, f)
		}
		at = (*at)[j].sub
	}
}

// Apply returns what the projection keeps of doc.
func (p *Projection) Apply(doc bson.Raw) bson.Raw {
	if p == nil {
		return doc
	}
	at, dst := value.Begin(make([]byte, 0, len(doc)))
	dst = p.document(dst, p.root, doc)
	for _, f := range p.root {
		if f.elem == nil {
			continue
		}
		v, _ := value.Lookup(doc, f.name)
		pos := -1
		if f.elem.test(v, &pos) {
			dst = value.AppendElement(dst, f.name, value.Array(value.Elements(v.Value)[pos:pos+1]))
		}
	}
	if dst = value.End(dst, at); cap(dst) > 2*len(dst) {
		return bytes.Clone(dst) // whoever holds it does not hold the memory of the whole one
	}
	return dst
}

func (p *Projection) document(dst []byte, s shape, doc []byte) []byte {
	for it := value.NewIter(doc); it.Next(); {
		i := s.find(string(it.Key))
		switch {
		case i >= 0 && s[i].sub != nil:
			if v, ok := p.below(*s[i].sub, it.Value); ok {
				dst = value.AppendElement(dst, s[i].name, v)
			}
		case i >= 0 && s[i].elem != nil:
		case i >= 0 && s[i].slice != nil:
			dst = value.AppendElement(dst, s[i].name, s[i].slice(it.Value))
		case i >= 0 != p.exclude:
			dst = append(dst, it.Element()...)
		}
	}
	return dst
}

// below applies s to a value: to a document, and to all documents in arrays.
// Other values stay only when the projection excludes.
func (p *Projection) below(s shape, v bson.RawValue) (bson.RawValue, bool) {
	switch v.Type {
	case bson.TypeEmbeddedDocument:
		at, dst := value.Begin(make([]byte, 0, len(v.Value)))
		return value.Document(value.End(p.document(dst, s, v.Value), at)), true
	case bson.TypeArray:
		var kept []bson.RawValue
		for it := value.NewIter(v.Value); it.Next(); {
			if w, ok := p.below(s, it.Value); ok {
				kept = append(kept, w)
			}
		}
		return value.Array(kept), true
	}
	return v, p.exclude
}
