package query

import (
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// expression is what $group computes from a document; a zero value is missing.
type expression func(doc bson.Raw) bson.RawValue

// parseExpression knows literals, field paths ("$a.b"), $$ROOT and documents
// of those.
func parseExpression(v bson.RawValue) (expression, error) {
	switch v.Type {
	case bson.TypeString:
		s := v.StringValue()
		switch {
		case s == "$$ROOT":
			return func(doc bson.Raw) bson.RawValue { return value.Document(doc) }, nil
		case strings.HasPrefix(s, "$$"):
			return nil, mongoerr.NotImplemented("the variable " + s)
		case strings.HasPrefix(s, "$"):
			path := strings.Split(s[1:], ".")
			if slices.Contains(path, "") {
				return nil, mongoerr.New(40353, "FieldPath must not end with a '.' or have an empty part: %s", s)
			}
			return func(doc bson.Raw) bson.RawValue { return fieldPath(doc, path) }, nil
		}
	case bson.TypeEmbeddedDocument:
		return parseObjectExpression(v.Value)
	case bson.TypeArray:
		return nil, mongoerr.NotImplemented("an array as an expression")
	}
	return func(bson.Raw) bson.RawValue { return v }, nil
}

func parseObjectExpression(spec []byte) (expression, error) {
	var names []string
	var fields []expression
	for it := value.NewIter(spec); it.Next(); {
		if len(it.Key) > 0 && it.Key[0] == '$' {
			return nil, mongoerr.NotImplemented("the expression " + string(it.Key))
		}
		if slices.Contains(it.Key, '.') {
			return nil, mongoerr.New(40235, "FieldPath field names may not contain '.': %s", it.Key)
		}
		e, err := parseExpression(it.Value)
		if err != nil {
			return nil, err
		}
		names, fields = append(names, string(it.Key)), append(fields, e)
	}
	return func(doc bson.Raw) bson.RawValue {
		at, dst := value.Begin(nil)
		for i, e := range fields {
			if v := e(doc); v.Type != 0 {
				dst = value.AppendElement(dst, names[i], v)
			}
		}
		return value.Document(value.End(dst, at))
	}, nil
}

// fieldPath is the value at path; an array on the way gives an array of what
// its documents have there.
func fieldPath(doc []byte, path []string) bson.RawValue {
	v, ok := value.Lookup(doc, path[0])
	switch {
	case !ok || len(path) == 1:
		return v
	case v.Type == bson.TypeEmbeddedDocument:
		return fieldPath(v.Value, path[1:])
	case v.Type != bson.TypeArray:
		return missing
	}
	var found []bson.RawValue
	for it := value.NewIter(v.Value); it.Next(); {
		if it.Value.Type != bson.TypeEmbeddedDocument {
			continue
		}
		if w := fieldPath(it.Value.Value, path[1:]); w.Type != 0 {
			found = append(found, w)
		}
	}
	return value.Array(found)
}

// accumulator gathers the values of one group.
type accumulator interface {
	add(v bson.RawValue) error // zero: missing
	result() bson.RawValue
}

var accumulators = map[string]func() accumulator{
	"$sum": func() accumulator { return &sum{} }, "$avg": func() accumulator { return &sum{avg: true} },
	"$min": func() accumulator { return &extreme{sign: -1} }, "$max": func() accumulator { return &extreme{sign: 1} },
	"$first": func() accumulator { return &end{first: true} }, "$last": func() accumulator { return &end{} },
	"$push": func() accumulator { return &gather{} }, "$addToSet": func() accumulator { return &gather{set: true} },
}

var unsupportedAccumulators = []string{"$accumulator", "$count", "$mergeObjects", "$stdDevPop", "$stdDevSamp"}

// sum is $sum and $avg. Whole numbers are added exactly; doubles with the
// error of each addition carried along, as MongoDB does.
type sum struct {
	avg     bool
	count   int64
	ints    int64
	wide    bool // not all were int32
	floats  bool // a double was among them, or ints overflowed
	total   float64
	carry   float64
	special float64 // the plain sum, for infinities and NaN
}

func (s *sum) add(v bson.RawValue) error {
	switch v.Type {
	case bson.TypeInt32, bson.TypeInt64:
		n, _ := value.AsInteger(v)
		s.wide = s.wide || v.Type == bson.TypeInt64
		if t := s.ints + n; (n > 0) == (t > s.ints) || n == 0 {
			s.ints = t
		} else {
			s.addInt(s.ints)
			s.ints, s.floats = n, true
		}
	case bson.TypeDouble:
		s.floats = true
		s.addFloat(v.Double())
	case bson.TypeDecimal128:
		return mongoerr.NotImplemented("Decimal128 arithmetic")
	default:
		return nil
	}
	s.count++
	return nil
}

func (s *sum) addFloat(x float64) {
	t := s.total + x
	b := t - s.total
	s.carry += (s.total - (t - b)) + (x - b)
	s.total = t
	s.special += x
}

// addInt adds n in halves, each of which is a double exactly.
func (s *sum) addInt(n int64) {
	s.addFloat(float64(n >> 32 << 32))
	s.addFloat(float64(n & math.MaxUint32))
}

func (s *sum) float() float64 {
	t := *s
	t.addInt(t.ints)
	if f := t.total + t.carry; f == f {
		return f
	}
	return t.special
}

func (s *sum) result() bson.RawValue {
	switch {
	case s.avg && s.count == 0:
		return value.Null
	case s.avg:
		return value.Double(s.float() / float64(s.count))
	case s.floats:
		return value.Double(s.float())
	case s.wide:
		return value.Int64(s.ints)
	}
	return intOrLong(s.ints)
}

type extreme struct {
	sign int
	v    bson.RawValue
}

func (e *extreme) add(v bson.RawValue) error {
	switch v.Type {
	case 0, bson.TypeNull, bson.TypeUndefined:
		return nil
	}
	if e.v.Type == 0 || value.Compare(v, e.v)*e.sign > 0 {
		e.v = v
	}
	return nil
}

func (e *extreme) result() bson.RawValue { return orNull(e.v) }

func orNull(v bson.RawValue) bson.RawValue {
	if v.Type == 0 {
		return value.Null
	}
	return v
}

type end struct {
	first, done bool
	v           bson.RawValue
}

func (e *end) add(v bson.RawValue) error {
	if !e.first || !e.done {
		e.v, e.done = v, true
	}
	return nil
}

func (e *end) result() bson.RawValue { return orNull(e.v) }

type gather struct {
	set    bool
	size   *int // of all groups
	seen   map[string]bool
	values []bson.RawValue
}

func (g *gather) add(v bson.RawValue) error {
	if v.Type == 0 {
		return nil
	}
	if g.set {
		k := string(value.AppendKey(nil, v, false))
		if g.seen[k] {
			return nil
		}
		if g.seen == nil {
			g.seen = map[string]bool{}
		}
		g.seen[k] = true
	}
	g.values = append(g.values, v)
	if *g.size += len(v.Value) + 32; *g.size > MaxMemory {
		return exceeded("$group")
	}
	return nil
}

func (g *gather) result() bson.RawValue { return value.Array(g.values) }

type groupStage struct {
	id     expression
	fields []groupField
}

type groupField struct {
	name string
	make func() accumulator
	arg  expression
}

func parseGroupStage(v bson.RawValue) (stage, error) {
	if v.Type != bson.TypeEmbeddedDocument {
		return nil, mongoerr.New(15947, "a group's fields must be specified in an object")
	}
	var s groupStage
	for it := value.NewIter(v.Value); it.Next(); {
		var err error
		if string(it.Key) == "_id" {
			if s.id != nil {
				return nil, mongoerr.New(15948, "a group's _id may only be specified once")
			}
			s.id, err = parseExpression(it.Value)
		} else {
			err = s.field(string(it.Key), it.Value)
		}
		if err != nil {
			return nil, err
		}
	}
	if s.id == nil {
		return nil, mongoerr.New(15955, "a group specification must include an _id")
	}
	return s, nil
}

func (s *groupStage) field(name string, v bson.RawValue) error {
	switch {
	case strings.Contains(name, "."):
		return mongoerr.New(40235, "The field name '%s' cannot contain '.'", name)
	case strings.HasPrefix(name, "$"):
		return mongoerr.New(40236, "The field name '%s' cannot be an operator name", name)
	case v.Type != bson.TypeEmbeddedDocument:
		return mongoerr.New(40234, "The field '%s' must be an accumulator object", name)
	}
	op := value.NewIter(v.Value)
	if !op.Next() || arrayLen(v.Value) != 1 {
		return mongoerr.New(40238, "The field '%s' must specify one accumulator", name)
	}
	make, ok := accumulators[string(op.Key)]
	switch {
	case slices.Contains(unsupportedAccumulators, string(op.Key)):
		return mongoerr.NotImplemented(string(op.Key) + " of $group")
	case !ok:
		return mongoerr.New(15952, "unknown group operator '%s'", op.Key)
	case op.Value.Type == bson.TypeArray:
		return mongoerr.New(40237, "The %s accumulator is a unary operator", op.Key)
	}
	arg, err := parseExpression(op.Value)
	s.fields = append(s.fields, groupField{name, make, arg})
	return err
}

func (s groupStage) run(docs Docs) Docs {
	return func(yield func(bson.Raw, error) bool) {
		groups, err := s.gather(docs)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, g := range groups {
			at, dst := value.Begin(nil)
			dst = value.AppendElement(dst, "_id", g.id)
			for i, f := range s.fields {
				dst = value.AppendElement(dst, f.name, g.accs[i].result())
			}
			if !yield(value.End(dst, at), nil) {
				return
			}
		}
	}
}

type group struct {
	id   bson.RawValue
	accs []accumulator
}

func (s groupStage) gather(docs Docs) ([]*group, error) {
	byKey := map[string]*group{}
	var groups []*group
	var key []byte
	size := 0
	for doc, err := range docs {
		if err != nil {
			return nil, err
		}
		id := orNull(s.id(doc))
		key = value.AppendKey(key[:0], id, false)
		g := byKey[string(key)]
		if g == nil {
			g = &group{id: id}
			for _, f := range s.fields {
				acc := f.make()
				if list, ok := acc.(*gather); ok {
					list.size = &size
				}
				g.accs = append(g.accs, acc)
			}
			if size += 2*len(key) + 64*(1+len(s.fields)); size > MaxMemory {
				return nil, exceeded("$group")
			}
			byKey[string(key)] = g
			groups = append(groups, g)
		}
		for i, f := range s.fields {
			if err := g.accs[i].add(f.arg(doc)); err != nil {
				return nil, err
			}
		}
	}
	return groups, nil
}
