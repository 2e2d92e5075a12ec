package value

import (
	"bytes"
	"cmp"
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

func of(v any) bson.RawValue {
	if v == nil {
		return Null
	}
	t, b, err := bson.MarshalValue(v)
	if err != nil {
		panic(err)
	}
	return bson.RawValue{Type: t, Value: b}
}

func field(name string, v any) bson.D { return bson.D{{Key: name, Value: v}} }

func decimal(s string) bson.Decimal128 {
	d, err := bson.ParseDecimal128(s)
	if err != nil {
		panic(err)
	}
	return d
}

// ordered are values in the order MongoDB documents; those in one list are equal.
var ordered = [][]any{
	{bson.MinKey{}}, {bson.Undefined{}}, {nil},
	{math.NaN(), decimal("NaN")}, {math.Inf(-1), decimal("-Infinity")}, {decimal("-1E+400")},
	{int64(math.MinInt64), -math.Exp2(63)}, {int64(math.MinInt64 + 1)}, {-1, decimal("-1.0")},
	{0, math.Copysign(0, -1), decimal("-0"), decimal("0E+10")}, {math.SmallestNonzeroFloat64},
	{decimal("0.1"), decimal("0.10")}, {0.1},
	{2, int64(2), 2.0}, {int64(1 << 53), float64(1 << 53)}, {decimal("9007199254740992.5")}, {int64(1<<53 + 1)},
	{int64(math.MaxInt64)}, {math.Exp2(63)}, {decimal("1E+400")}, {math.Inf(1)},
	{""}, {"\x00"}, {"\x00a"}, {"a", bson.Symbol("a")}, {"a\x00"}, {"ab"}, {"\u00ff"},
	{bson.D{}}, {field("", nil)}, {field("b", 1)}, {append(field("b", 1), field("a", 1)...)},
	{field("a", "\x00")}, {field("a", bson.D{})}, {field("a", bson.A{1})},
	{bson.A{}}, {bson.A{nil}}, {bson.A{1}, bson.A{1.0}}, {bson.A{1, bson.MinKey{}}}, {bson.A{2}}, {bson.A{"a"}},
	{bson.A{bson.A{}}},
	{bson.Binary{}}, {bson.Binary{Data: []byte{9}}}, {bson.Binary{Subtype: 5, Data: []byte{0}}},
	{bson.Binary{Data: []byte{0, 0}}},
	{bson.ObjectID{}}, {bson.ObjectID{11: 1}}, {bson.ObjectID{1}}, {false}, {true},
	{bson.DateTime(math.MinInt64)}, {bson.DateTime(-1)}, {bson.DateTime(0)}, {bson.DateTime(1 << 40)},
	{bson.Timestamp{I: 9}}, {bson.Timestamp{T: 1}}, {bson.Timestamp{T: math.MaxUint32}},
	{bson.Regex{}}, {bson.Regex{Pattern: "a"}}, {bson.Regex{Pattern: "a", Options: "i"}}, {bson.Regex{Pattern: "ab"}},
	{bson.DBPointer{DB: "a", Pointer: bson.ObjectID{1}}}, {bson.DBPointer{DB: "b"}}, {bson.DBPointer{DB: "ab"}},
	{bson.JavaScript("")}, {bson.JavaScript("\x00")}, {bson.JavaScript("a")},
	{bson.CodeWithScope{Scope: bson.D{}}}, {bson.CodeWithScope{Scope: field("a", 1)}},
	{bson.CodeWithScope{Code: "a", Scope: bson.D{}}},
	{bson.MaxKey{}},
}

func TestValuesAndKeysOrderAsMongoDBDocumentsIt(t *testing.T) {
	for i, list := range ordered {
		for j := range ordered {
			for _, a := range list {
				for _, b := range ordered[j] {
					require.Equal(t, cmp.Compare(i, j), Compare(of(a), of(b)), "%T %v against %T %v", a, a, b, b)
					x, y := AppendKey(nil, of(a), false), AppendKey(nil, of(b), false)
					require.Equal(t, cmp.Compare(i, j), bytes.Compare(x, y), "keys of %T %v and %T %v", a, a, b, b)
					x, y = AppendKey(nil, of(a), true), AppendKey(nil, of(b), true)
					require.Equal(t, cmp.Compare(j, i), bytes.Compare(x, y), "descending keys of %T %v and %T %v", a, a, b, b)
				}
			}
		}
	}
}

// Numbers drawn are often neighbours in value and of different types.
func number(t *rapid.T) any {
	n := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-3, 3), rapid.Int64Range(1<<53-2, 1<<53+2),
		rapid.Int64Range(math.MaxInt64-2, math.MaxInt64), rapid.Int64Range(math.MinInt64, math.MinInt64+2)).Draw(t, "n")
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		return int32(n)
	case 1:
		return n
	case 2:
		return float64(n)
	case 3:
		return rapid.Float64().Draw(t, "f")
	}
	exp := rapid.SampledFrom([]int{0, 0, 1, -1, 3, -300, 300, 6000}).Draw(t, "exp")
	d, _ := bson.ParseDecimal128FromBigInt(big.NewInt(n), exp)
	return d
}

func TestNumbersCompareByExactValue(t *testing.T) {
	exact := func(v bson.RawValue) *big.Rat {
		switch v.Type {
		case bson.TypeDouble:
			return new(big.Rat).SetFloat64(v.Double())
		case bson.TypeDecimal128:
			r, _ := new(big.Rat).SetString(v.Decimal128().String())
			return r
		}
		return new(big.Rat).SetInt64(v.AsInt64())
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := of(number(t)), of(number(t))
		require.Equal(t, exact(a).Cmp(exact(b)), Compare(a, b), "%v against %v", a, b)
	})
}

// Keys of several fields are taken apart again, whatever stands in them.
func TestAKeyEndsWhereKeyLenSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		descending := rapid.Bool().Draw(t, "descending")
		v := of(rapid.OneOf(rapid.Custom(number), rapid.Custom(func(t *rapid.T) any {
			list := rapid.SampledFrom(ordered).Draw(t, "list")
			return rapid.SampledFrom(list).Draw(t, "value")
		})).Draw(t, "v"))
		for _, v := range []bson.RawValue{v, Array([]bson.RawValue{v, v}), of(bson.D{{Key: "a", Value: v}})} {
			key := AppendKey(nil, v, descending)
			require.Equal(t, len(key), KeyLen(string(key)+"\x00\xff\x00", descending), "%v", v)
		}
	})
}

func TestIndexKeysFollowArrays(t *testing.T) {
	for _, c := range []struct {
		doc, fields string // fields separated by spaces
		sparse      bool
		keys        []bson.A
		multikey    bool
		code        int32
	}{
		{doc: `{"a": 1}`, fields: "a b", keys: []bson.A{{1, nil}}},
		{doc: `{"c": 1}`, fields: "a b", keys: []bson.A{{nil, nil}}},
		{doc: `{"c": 1}`, fields: "a b", sparse: true},
		{doc: `{"a": [2, 1, 2]}`, fields: "a", keys: []bson.A{{1}, {2}}, multikey: true},
		{doc: `{"a": []}`, fields: "a", keys: []bson.A{{bson.Undefined{}}}, multikey: true},
		{doc: `{"a": []}`, fields: "a.b", keys: []bson.A{{nil}}, multikey: true},
		{doc: `{"a": [{"b": 1, "c": 2}, {"b": 3}, 4]}`, fields: "a.b a.c", multikey: true,
			keys: []bson.A{{nil, nil}, {1, 2}, {3, nil}}},
		{doc: `{"a": [{"b": [1, 2]}, {"b": 3}]}`, fields: "a.b", keys: []bson.A{{1}, {2}, {3}}, multikey: true},
		{doc: `{"a": [[1, 2]]}`, fields: "a", keys: []bson.A{{bson.A{1, 2}}}, multikey: true},
		{doc: `{"a": [[1, 2]]}`, fields: "a.0", keys: []bson.A{{bson.A{1, 2}}}, multikey: true},
		{doc: `{"a": [5, {"b": 6}]}`, fields: "a.0", keys: []bson.A{{5}}, multikey: true},
		{doc: `{"a": [5, {"b": 6}]}`, fields: "a.1.b", keys: []bson.A{{6}}, multikey: true},
		{doc: `{"a": [5, {"0": 6}]}`, fields: "a.0", code: 16746},
		{doc: `{"a": [1], "b": [2]}`, fields: "a b", code: mongoerr.CannotIndexParallelArrays},
		{doc: `{"a": {"b": 1}}`, fields: "a.b.c", keys: []bson.A{{nil}}},
	} {
		var fields []Field
		for _, p := range bytes.Fields([]byte(c.fields)) {
			fields = append(fields, Field{Path: string(p)})
		}
		var doc bson.Raw
		require.NoError(t, bson.UnmarshalExtJSON([]byte(c.doc), false, &doc))
		keys, multikey, err := IndexKeys(doc, fields, c.sparse)
		require.Equal(t, c.code, mongoerr.Code(err), c.doc)
		require.Equal(t, c.multikey, multikey, "%s on %s", c.fields, c.doc)
		var want [][]byte
		for _, k := range c.keys {
			var key []byte
			for _, v := range k {
				key = AppendKey(key, of(v), false)
			}
			want = append(want, key)
		}
		require.Equal(t, want, keys, "%s on %s", c.fields, c.doc)
	}
}

func TestArithmeticKeepsAndWidensTypesAsMongoDB(t *testing.T) {
	type code int32
	overflow, refused := code(mongoerr.BadValue), code(mongoerr.NotImplementedCode)
	for _, c := range []struct{ a, b, sum, product any }{
		{int32(2), int32(3), int32(5), int32(6)},
		{int32(math.MaxInt32), int32(2), int64(math.MaxInt32 + 2), int64(math.MaxInt32) * 2},
		{int32(2), int64(3), int64(5), int64(6)},
		{int64(2), 0.5, 2.5, 1.0},
		{int64(math.MaxInt64), int64(2), overflow, overflow},
		{int64(math.MinInt64), int64(-1), overflow, overflow},
		{int64(-1), int64(math.MinInt64), overflow, overflow},
		{int64(math.MinInt64), int32(1), int64(math.MinInt64 + 1), int64(math.MinInt64)},
		{int64(1 << 32), int64(1 << 31), int64(1<<32 + 1<<31), overflow},
		{decimal("1"), int32(1), refused, refused},
	} {
		for i, do := range []func(a, b bson.RawValue) (bson.RawValue, error){Add, Mul} {
			got, err := do(of(c.a), of(c.b))
			want := []any{c.sum, c.product}[i]
			if want, fails := want.(code); fails {
				require.EqualValues(t, want, mongoerr.Code(err), "%v and %v", c.a, c.b)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, of(want), got, "%v and %v", c.a, c.b)
		}
	}
}

func FuzzIterationOfBrokenDocumentsEnds(f *testing.F) {
	f.Add([]byte{9, 0, 0, 0, 16, 'a', 0, 1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		for it := NewIter(b); it.Next(); n++ {
			_, _ = Lookup(b, string(it.Key))
		}
		require.LessOrEqual(t, n, len(b))
	})
}
