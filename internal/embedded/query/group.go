package query

import (
	"math/big"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// accumulator gathers the values of one group. add gets a zero value where an
// expression finds nothing, and says how much memory the accumulator has taken
// for it beyond a fixed amount.
type accumulator interface {
	add(v bson.RawValue) (memory int)
	result() bson.RawValue
}

var accumulators = map[string]func() accumulator{
	"$sum": func() accumulator { return &sum{} }, "$avg": func() accumulator { return &sum{avg: true} },
	"$min": func() accumulator {
		return &choice{better: func(v, than bson.RawValue) bool { return value.Compare(v, than) < 0 }}
	},
	"$max": func() accumulator {
		return &choice{better: func(v, than bson.RawValue) bool { return value.Compare(v, than) > 0 }}
	},
	"$first": func() accumulator { return &end{first: true} }, "$last": func() accumulator { return &end{} },
	"$push": func() accumulator { return &gather{} }, "$addToSet": func() accumulator { return &gather{set: true} },
}

var lackingAccumulators = strings.Fields("$accumulator $count $mergeObjects $stdDevPop $stdDevSamp")

// sum is $sum and $avg. Whole numbers are added exactly; doubles with the
// error of each addition carried along, as MongoDB does.
type sum struct {
	avg     bool
	count   int64
	ints    big.Int
	wide    bool // not all were int32
	floats  bool // a double was among them
	total   float64
	carry   float64
	special float64 // the plain sum, for infinities and NaN
}

func (s *sum) add(v bson.RawValue) int {
	switch v.Type {
	case bson.TypeInt32, bson.TypeInt64:
		n, _ := value.AsInteger(v)
		s.wide = s.wide || v.Type == bson.TypeInt64
		s.ints.Add(&s.ints, big.NewInt(n))
	case bson.TypeDouble:
		x := v.Double()
		t := s.total + x
		b := t - s.total
		s.carry += (s.total - (t - b)) + (x - b)
		s.total = t
		s.special += x
		s.floats = true
	case bson.TypeDecimal128:
		refuse("Decimal128 arithmetic")
	default:
		return 0
	}
	s.count++
	return 0
}

func (s *sum) float() float64 {
	if f := s.total + s.carry; f-f != 0 { // no number, or infinite
		return s.special
	}
	exact := new(big.Float).SetPrec(2200).SetInt(&s.ints) // as wide as doubles reach
	exact.Add(exact, big.NewFloat(s.total))
	f, _ := exact.Add(exact, big.NewFloat(s.carry)).Float64()
	return f
}

func (s *sum) result() bson.RawValue {
	switch {
	case s.avg && s.count == 0:
		return value.Null
	case s.avg:
		return value.Double(s.float() / float64(s.count))
	case s.floats || !s.ints.IsInt64():
		return value.Double(s.float())
	case s.wide:
		return value.Int64(s.ints.Int64())
	}
	return intOrLong(s.ints.Int64())
}

// choice is $min and $max.
type choice struct {
	better func(v, than bson.RawValue) bool
	v      bson.RawValue
}

func (c *choice) add(v bson.RawValue) int {
	switch v.Type {
	case 0, bson.TypeNull, bson.TypeUndefined:
	default:
		if c.v.Type == 0 || c.better(v, c.v) {
			c.v = v
		}
	}
	return 0
}

func (c *choice) result() bson.RawValue { return orNull(c.v) }

func orNull(v bson.RawValue) bson.RawValue {
	if v.Type == 0 {
		return value.Null
	}
	return v
}

// end is $first and $last.
type end struct {
	first, done bool
	v           bson.RawValue
}

func (e *end) add(v bson.RawValue) int {
	if !e.first || !e.done {
		e.v, e.done = v, true
	}
	return 0
}

func (e *end) result() bson.RawValue { return orNull(e.v) }

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
	return len(v.Value) + 32
}

func (g *gather) result() bson.RawValue { return value.Array(g.all.list) }

type groupStage struct {
	id     expression
	fields []groupField
}

type groupField struct {
	name string
	make func() accumulator
	arg  expression
}

func parseGroupStage(v bson.RawValue) stage {
	check(v.Type == bson.TypeEmbeddedDocument, 15947, "a group's fields must be specified in an object")
	var s groupStage
	for it := value.NewIter(v.Value); it.Next(); {
		if string(it.Key) == "_id" {
			check(s.id == nil, 15948, "a group's _id may only be specified once")
			s.id = parseExpression(it.Value)
		} else {
			s.fields = append(s.fields, parseGroupField(string(it.Key), it.Value))
		}
	}
	check(s.id != nil, 15955, "a group specification must include an _id")
	return s
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

func (s groupStage) gather(docs Docs) (groups []*group, err error) {
	defer catch(&err)
	byKey := map[string]*group{}
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
				g.accs = append(g.accs, f.make())
			}
			size += 2*len(key) + 64*(1+len(s.fields))
			byKey[string(key)] = g
			groups = append(groups, g)
		}
		for i, f := range s.fields {
			size += g.accs[i].add(f.arg(doc))
		}
		checkMemory("$group", size)
	}
	return groups, nil
}
