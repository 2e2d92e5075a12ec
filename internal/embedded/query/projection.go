package query

import (
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// Projection is a compiled projection. A nil Projection keeps everything.
type Projection struct {
	exclude   bool // listed fields go, the others stay
	root      shape
	elemMatch []*Node // OpElemMatch or OpElemValue at a top-level field
}

// shape is one level of the fields a projection lists.
type shape struct {
	fields []shapeField
}

type shapeField struct {
	name string
	sub  *shape // nil at the end of a path

	slice *arraySlice
}

type arraySlice struct {
	skip  int64 // from the end if negative
	limit int64 // how many; -1 for all
}

// CompileProjection checks and compiles a projection of find or findAndModify;
// it is nil for an empty one. Computed fields and the positional `.$` are refused.
func CompileProjection(spec bson.Raw) (*Projection, error) {
	if first := value.NewIter(spec); !first.Next() {
		return nil, nil
	}
	return (&projectionParser{find: true}).parse(spec)
}

type projectionParser struct {
	p    Projection
	find bool // not the stage $project
	mode int  // 1 inclusion, -1 exclusion, 0 not known yet
	id   int  // the same, for _id
}

func (c *projectionParser) parse(spec bson.Raw) (*Projection, error) {
	if err := c.level("", spec); err != nil {
		return nil, err
	}
	mode := c.mode
	if mode == 0 && len(c.p.elemMatch) > 0 && len(c.p.root.fields) == 0 { // no $slice
		mode = 1
	}
	if mode == 0 {
		mode = c.id
	}
	c.p.exclude = mode != 1
	switch {
	case !c.p.exclude && c.id >= 0 && !c.p.root.has("_id"):
		c.p.root.fields = append(c.p.root.fields, shapeField{name: "_id"})
	case c.p.exclude && c.id < 0:
		c.p.root.fields = append(c.p.root.fields, shapeField{name: "_id"})
	}
	if c.p.exclude && len(c.p.elemMatch) > 0 {
		return nil, mongoerr.NotImplemented("$elemMatch in a projection that excludes")
	}
	return &c.p, nil
}

func (s *shape) has(name string) bool {
	return slices.ContainsFunc(s.fields, func(f shapeField) bool { return f.name == name })
}

func (c *projectionParser) level(prefix string, spec []byte) error {
	for it := value.NewIter(spec); it.Next(); {
		path := prefix + string(it.Key)
		var err error
		switch {
		case it.Value.Type == bson.TypeBoolean || value.ClassOf(it.Value.Type) == value.ClassNumber:
			err = c.flag(path, truthy(it.Value))
		case it.Value.Type == bson.TypeEmbeddedDocument:
			err = c.object(path, it.Value)
		default:
			err = mongoerr.NotImplemented("a computed field in a projection")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *projectionParser) flag(path string, include bool) error {
	mode := -1
	if include {
		mode = 1
	}
	if path == "_id" {
		c.id = mode
		return nil
	}
	if c.mode != 0 && c.mode != mode {
		if include {
			return mongoerr.New(31253, "Cannot do inclusion on field %s in exclusion projection", path)
		}
		return mongoerr.New(31254, "Cannot do exclusion on field %s in inclusion projection", path)
	}
	c.mode = mode
	if strings.HasSuffix(path, ".$") && c.find {
		return mongoerr.NotImplemented("the positional projection (" + path + ")")
	}
	return c.put(path, shapeField{})
}

func (c *projectionParser) object(path string, v bson.RawValue) error {
	first := value.NewIter(v.Value)
	if !first.Next() {
		return mongoerr.New(51270, "An empty sub-projection is not a valid value. Found empty object at path")
	}
	switch op := string(first.Key); {
	case op == "$slice" && c.find:
		s, err := parseSlice(first.Value)
		if err != nil {
			return err
		}
		return c.put(path, shapeField{slice: s})
	case op == "$elemMatch" && c.find:
		if strings.Contains(path, ".") {
			return mongoerr.New(31275, "Cannot use $elemMatch projection on a nested field: %s", path)
		}
		nodes, err := parseElemMatch(path, first.Value, nil)
		if err != nil {
			return err
		}
		if c.p.root.has(path) {
			return mongoerr.New(31250, "Path collision at %s", path)
		}
		c.p.elemMatch = append(c.p.elemMatch, simplify(nodes[0]))
		return nil
	case strings.HasPrefix(op, "$"):
		return mongoerr.NotImplemented(op + " in a projection")
	}
	return c.level(path+".", v.Value)
}

func parseSlice(v bson.RawValue) (*arraySlice, error) {
	if value.ClassOf(v.Type) == value.ClassNumber {
		n, ok := value.AsInteger(v)
		switch {
		case !ok:
			return nil, mongoerr.NotImplemented("$slice with such a number")
		case n < 0:
			return &arraySlice{n, -1}, nil
		}
		return &arraySlice{0, n}, nil
	}
	if v.Type == bson.TypeArray {
		if args := values(v.Value); len(args) == 2 {
			skip, ok := value.AsInteger(args[0])
			limit, ok2 := value.AsInteger(args[1])
			if ok && ok2 && limit > 0 {
				return &arraySlice{skip, limit}, nil
			}
		}
	}
	return nil, mongoerr.NotImplemented("the expression $slice, or $slice of other than a number or [skip, limit],")
}

func (s *arraySlice) apply(v bson.RawValue) bson.RawValue {
	if s == nil || v.Type != bson.TypeArray {
		return v
	}
	elems := values(v.Value)
	n := int64(len(elems))
	from := min(s.skip, n)
	if s.skip < 0 {
		from = max(0, n+s.skip)
	}
	to := n
	if s.limit >= 0 {
		to = min(n, from+min(s.limit, n))
	}
	return value.Array(elems[from:to])
}

// put adds the end of a path.
func (c *projectionParser) put(path string, leaf shapeField) error {
	at := &c.p.root
	names := strings.Split(path, ".")
	for i, name := range names {
		switch {
		case name == "":
			return mongoerr.New(40353, "FieldPath must not end with a '.' or have an empty part: %s", path)
		case name[0] == '$':
			return mongoerr.New(16410, "FieldPath field names may not start with '$'. Consider using $getField or $setField.")
		}
		j := slices.IndexFunc(at.fields, func(f shapeField) bool { return f.name == name })
		last := i == len(names)-1
		if j >= 0 && (last || at.fields[j].sub == nil) {
			return mongoerr.New(31250, "Path collision at %s", path)
		}
		if j < 0 {
			f := leaf
			if !last {
				f = shapeField{sub: &shape{}}
			}
			f.name = name
			at.fields = append(at.fields, f)
			j = len(at.fields) - 1
		}
		at = at.fields[j].sub
	}
	return nil
}

// Apply returns what the projection keeps of doc.
func (p *Projection) Apply(doc bson.Raw) bson.Raw {
	if p == nil {
		return doc
	}
	at, dst := value.Begin(make([]byte, 0, len(doc)))
	dst = p.document(dst, &p.root, doc)
	for _, n := range p.elemMatch {
		v, _ := value.Lookup(doc, n.Path)
		pos := -1
		if n.elements(v, &pos) {
			dst = value.AppendElement(dst, n.Path, value.Array(values(v.Value)[pos:pos+1]))
		}
	}
	return value.End(dst, at)
}

func (p *Projection) document(dst []byte, s *shape, doc []byte) []byte {
	for it := value.NewIter(doc); it.Next(); {
		i := slices.IndexFunc(s.fields, func(f shapeField) bool { return f.name == string(it.Key) })
		if i < 0 {
			if p.exclude {
				dst = append(dst, it.Element()...)
			}
			continue
		}
		f := &s.fields[i]
		switch {
		case f.sub != nil:
			if v, ok := p.below(f.sub, it.Value); ok {
				dst = value.AppendElement(dst, f.name, v)
			}
		case f.slice != nil:
			dst = value.AppendElement(dst, f.name, f.slice.apply(it.Value))
		case !p.exclude:
			dst = append(dst, it.Element()...)
		}
	}
	return dst
}

// below applies s to a value: to a document, and to all documents in arrays.
// Other values stay only when the projection excludes.
func (p *Projection) below(s *shape, v bson.RawValue) (bson.RawValue, bool) {
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
