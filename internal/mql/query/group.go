package query

import (
	"bytes"
	"iter"
	"math/big"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// accumulator gathers the values of one group. add gets a zero value where an
// expression finds nothing, and says how much memory the accumulator has taken
// for it beyond a fixed amount. A value is a part of its document's memory: what
// is kept is a copy, so that the document is not kept with it.
type accumulator interface {
	add(v bson.RawValue) (memory int)
	result() bson.RawValue
}

var accumulators = map[string]func() accumulator{
	"$sum": func() accumulator { return &sum{} },
	"$avg": func() accumulator { return &sum{avg: true} },
	"$min": func() accumulator {
		return &kept{takes: func(v, have bson.RawValue, n int) bool { return n == 0 || value.Compare(v, have) < 0 }}
	},
	"$max": func() accumulator {
		return &kept{takes: func(v, have bson.RawValue, n int) bool { return n == 0 || value.Compare(v, have) > 0 }}
	},
	"$first": func() accumulator {
		return &kept{nulls: true, takes: func(_, _ bson.RawValue, n int) bool { return n == 0 }}
	},
	"$last": func() accumulator {
		return &kept{nulls: true, takes: func(_, _ bson.RawValue, _ int) bool { return true }}
	},
	"$push":     func() accumulator { return &gather{} },
	"$addToSet": func() accumulator { return &gather{set: true} },
}

var lackingAccumulators = strings.Fields("$accumulator $count $mergeObjects $stdDevPop $stdDevSamp")

// sum is $sum and $avg. It is exact, and rounded at the end.
type sum struct {
	avg     bool
	count   int64
	wide    bool // not all were int32
	floats  bool // a double was among them
	total   big.Float
	special float64 // the sum of infinities and NaN, or 0
}

func (s *sum) add(v bson.RawValue) int {
	if s.total.Prec() == 0 {
		s.total.SetPrec(2200) // from the least to the greatest bit of doubles
	}
	var term big.Float
	switch v.Type {
	case bson.TypeInt32, bson.TypeInt64:
		n, _ := value.AsInteger(v)
		s.wide = s.wide || v.Type == bson.TypeInt64
		s.total.Add(&s.total, term.SetInt64(n))
	case bson.TypeDouble:
		s.floats = true
		if x := v.Double(); x-x != 0 {
			s.special += x
		} else {
			s.total.Add(&s.total, term.SetFloat64(x))
		}
	case bson.TypeDecimal128:
		refuse("Decimal128 arithmetic")
	default:
		return 0
	}
	s.count++
	return 0
}

func (s *sum) result() bson.RawValue {
	f, _ := s.total.Float64()
	n, accuracy := s.total.Int64()
	switch {
	case s.avg && s.count == 0:
		return value.Null
	case s.avg:
		return value.Double((f + s.special) / float64(s.count))
	case s.floats || accuracy != big.Exact:
		return value.Double(f + s.special)
	case s.wide:
		return value.Int64(n)
	}
	return intOrLong(n)
}

// kept is what keeps one of the values.
type kept struct {
	takes func(v, have bson.RawValue, n int) bool // v, after n values, instead of what it has
	nulls bool                                    // null and nothing are values, too
	n     int
	v     bson.RawValue
}

func (k *kept) add(v bson.RawValue) int {
	if class := value.ClassOf(v.Type); !k.nulls && (class == value.ClassNull || class == value.ClassUndefined) {
		return 0
	}
	k.n++
	if !k.takes(v, k.v, k.n-1) {
		return 0
	}
	had := cap(k.v.Value)
	k.v = bson.RawValue{Type: v.Type, Value: append(k.v.Value[:0], v.Value...)}
	return cap(k.v.Value) - had
}

func (k *kept) result() bson.RawValue { return orNull(k.v) }

func orNull(v bson.RawValue) bson.RawValue {
	if v.Type == 0 {
		return value.Null
	}
	return v
}

// gather is $push and $addToSet.
type gather struct {
	set bool
	all valueSet
}

func (g *gather) add(v bson.RawValue) int {
	switch {
	case v.Type == 0 || g.set && !g.all.add(v):
		return 0
	case !g.set:
		g.all.list = append(g.all.list, v)
	}
	last := &g.all.list[len(g.all.list)-1]
	last.Value = bytes.Clone(v.Value)
	if g.set {
		return 2 * (len(v.Value) + 32) // with its key
	}
	return len(v.Value) + 32
}

func (g *gather) result() bson.RawValue { return value.Array(g.all.list) }

// grouping is a $group.
type grouping struct {
	id     expression
	fields []groupField
}

type groupField struct {
	name string
	make func() accumulator
	arg  expression
}

type group struct {
	id   bson.RawValue
	accs []accumulator
}

func parseGroup(v bson.RawValue) stage {
	check(v.Type == bson.TypeEmbeddedDocument, 15947, "a group's fields must be specified in an object")
	var g grouping
	for it := value.NewIter(v.Value); it.Next(); {
		if string(it.Key) == "_id" {
			check(g.id == nil, 15948, "a group's _id may only be specified once")
			g.id = parseExpression(it.Value)
		} else {
			g.fields = append(g.fields, parseGroupField(string(it.Key), it.Value))
		}
	}
	check(g.id != nil, 15955, "a group specification must include an _id")
	return stage{holds: true, run: all(g.run)}
}

func parseGroupField(name string, v bson.RawValue) groupField {
	check(!strings.Contains(name, "."), 40235, "The field name '%s' cannot contain '.'", name)
	check(!strings.HasPrefix(name, "$"), 40236, "The field name '%s' cannot be an operator name", name)
	check(v.Type == bson.TypeEmbeddedDocument, 40234, "The field '%s' must be an accumulator object", name)
	args := value.Elements(v.Value)
	check(len(args) == 1, 40238, "The field '%s' must specify one accumulator", name)
	op := firstKey(v)
	make := entry(accumulators, op, lackingAccumulators, "the accumulator ", func() {
		fail(15952, "unknown group operator '%s'", op)
	})
	check(args[0].Type != bson.TypeArray, 40237, "The %s accumulator is a unary operator", op)
	return groupField{name, make, parseExpression(args[0])}
}

func (g grouping) run(docs Docs) (out iter.Seq[bson.Raw], err error) {
	defer catch(&err)
	byKey := map[string]*group{}
	var groups []*group // in the order they were met
	var key []byte
	size := 0
	for doc, err := range docs {
		if err != nil {
			return nil, err
		}
		id := orNull(g.id(doc))
		key = value.AppendKey(key[:0], id, false)
		own := byKey[string(key)]
		if own == nil {
			id.Value = bytes.Clone(id.Value)
			own = &group{id: id}
			for _, f := range g.fields {
				own.accs = append(own.accs, f.make())
			}
			size += len(key) + len(id.Value) + 64*(1+len(g.fields))
			byKey[string(key)] = own
			groups = append(groups, own)
		}
		for i, f := range g.fields {
			size += own.accs[i].add(f.arg(doc))
		}
		checkMemory("$group", size)
	}
	return func(yield func(bson.Raw) bool) {
		for _, own := range groups {
			at, dst := value.Begin(nil)
			dst = value.AppendElement(dst, "_id", own.id)
			for i, f := range g.fields {
				dst = value.AppendElement(dst, f.name, own.accs[i].result())
			}
			if !yield(value.End(dst, at)) {
				return
			}
		}
	}, nil
}
