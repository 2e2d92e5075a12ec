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

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
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

func doc(t *testing.T, json string) bson.Raw {
	var d bson.Raw
	require.NoError(t, bson.UnmarshalExtJSON([]byte(json), false, &d))
	return d
}

// numbers drawn are often neighbours in value and of different types.
func number(t *rapid.T) any {
	n := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-3, 3), rapid.Int64Range(1<<53-2, 1<<53+2),
		rapid.Int64Range(math.MaxInt64-2, math.MaxInt64), rapid.Int64Range(math.MinInt64, math.MinInt64+2)).Draw(t, "n")
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		return int32(n)
	case 1:
		return n
	case 2:
		return float64(n)
	case 3:
		return rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), math.SmallestNonzeroFloat64, math.MaxFloat64, 0.1})).Draw(t, "f")
	case 4:
		d, _ := bson.ParseDecimal128FromBigInt(big.NewInt(n), rapid.SampledFrom([]int{0, 0, 1, -1, 3, -300, 300, 6000, -6000}).Draw(t, "exp"))
		return d
	}
	d, _ := bson.ParseDecimal128(rapid.SampledFrom([]string{"NaN", "Infinity", "-Infinity", "-0", "0E+10", "0.1", "0.10", "1E+400", "-1E+400", "9007199254740992.5"}).Draw(t, "d"))
	return d
}

func anyValue(t *rapid.T, depth int) any {
	text := func() string {
		return rapid.StringOfN(rapid.SampledFrom([]rune("\x00\x01ab\u00ff")), 0, 3, -1).Draw(t, "s")
	}
	kinds := 16
	if depth == 0 {
		kinds = 14
	}
	switch rapid.IntRange(0, kinds).Draw(t, "type") {
	case 0, 1, 2:
		return number(t)
	case 3:
		return text()
	case 4:
		return bson.Symbol(text())
	case 5:
		return rapid.SampledFrom([]any{nil, bson.MinKey{}, bson.MaxKey{}, bson.Undefined{}, true, false}).Draw(t, "fixed")
	case 6:
		return bson.Binary{Subtype: byte(rapid.IntRange(3, 5).Draw(t, "sub")), Data: []byte(text())}
	case 7:
		return bson.ObjectID{byte(rapid.IntRange(0, 2).Draw(t, "oid"))}
	case 8:
		return bson.DateTime(rapid.Int64().Draw(t, "date"))
	case 9:
		return bson.Timestamp{T: rapid.Uint32().Draw(t, "t"), I: rapid.Uint32().Draw(t, "i")}
	case 10:
		return bson.Regex{Pattern: rapid.SampledFrom([]string{"", "a", "ab"}).Draw(t, "re"), Options: rapid.SampledFrom([]string{"", "i"}).Draw(t, "opt")}
	case 11:
		return bson.JavaScript(text())
	case 12:
		return bson.CodeWithScope{Code: bson.JavaScript(text()), Scope: bson.D{{Key: "a", Value: number(t)}}}
	case 13, 14:
		return bson.DBPointer{DB: rapid.SampledFrom([]string{"a", "b", "ab"}).Draw(t, "db")}
	case 15:
		d := bson.D{}
		for range rapid.IntRange(0, 3).Draw(t, "fields") {
			d = append(d, bson.E{Key: rapid.SampledFrom([]string{"", "a", "ab"}).Draw(t, "name"), Value: anyValue(t, depth-1)})
		}
		return d
	}
	a := bson.A{}
	for range rapid.IntRange(0, 3).Draw(t, "length") {
		a = append(a, anyValue(t, depth-1))
	}
	return a
}

func TestKeysOrderAsTheValuesDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c, d := of(anyValue(t, 2)), of(anyValue(t, 2)), of(anyValue(t, 1)), of(anyValue(t, 1))
		desc, desc2 := rapid.Bool().Draw(t, "desc"), rapid.Bool().Draw(t, "desc2")
		want := Compare(a, b)
		if want != -Compare(b, a) {
			t.Fatalf("%v and %v are not ordered the same both ways", a, b)
		}
		if desc {
			want = -want
		}
		second := Compare(c, d)
		if desc2 {
			second = -second
		}
		x := AppendKey(AppendKey(nil, a, desc), c, desc2)
		y := AppendKey(AppendKey(nil, b, desc), d, desc2)
		if got := bytes.Compare(x, y); got != cmp.Or(want, second) {
			t.Fatalf("(%v, %v) against (%v, %v): keys say %d, values %d", a, c, b, d, got, cmp.Or(want, second))
		}
	})
}

func TestNumbersCompareByExactValue(t *testing.T) {
	rank := func(v bson.RawValue) (int, *big.Rat) { // NaN, -Inf, finite, Inf
		switch f := v.Type; {
		case f == bson.TypeDouble && math.IsNaN(v.Double()), f == bson.TypeDecimal128 && v.Decimal128().IsNaN():
			return 0, new(big.Rat)
		case f == bson.TypeDouble && math.IsInf(v.Double(), 0):
			return 2 + int(math.Copysign(1, v.Double())), new(big.Rat)
		case f == bson.TypeDouble:
			return 2, new(big.Rat).SetFloat64(v.Double())
		case f == bson.TypeDecimal128 && v.Decimal128().IsInf() != 0:
			return 2 + v.Decimal128().IsInf(), new(big.Rat)
		case f == bson.TypeDecimal128:
			r, _ := new(big.Rat).SetString(v.Decimal128().String())
			return 2, r
		}
		n, _ := integer(v)
		return 2, new(big.Rat).SetInt64(n)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := of(number(t)), of(number(t))
		i, x := rank(a)
		j, y := rank(b)
		if got, want := Compare(a, b), cmp.Or(cmp.Compare(i, j), x.Cmp(y)); got != want {
			t.Fatalf("%v against %v: %d, want %d", a, b, got, want)
		}
	})
}

func TestTypesOrderAsMongoDBDocumentsIt(t *testing.T) {
	order := []any{bson.MinKey{}, bson.Undefined{}, nil, 1, "a", bson.D{}, bson.A{}, bson.Binary{}, bson.ObjectID{}, false,
		bson.DateTime(0), bson.Timestamp{}, bson.Regex{}, bson.DBPointer{}, bson.JavaScript(""), bson.CodeWithScope{Scope: bson.D{}}, bson.MaxKey{}}
	for i := 1; i < len(order); i++ {
		require.Negative(t, Compare(of(order[i-1]), of(order[i])), "%T before %T", order[i-1], order[i])
	}
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
		{doc: `{"a": [{"b": 1, "c": 2}, {"b": 3}, 4]}`, fields: "a.b a.c", keys: []bson.A{{nil, nil}, {1, 2}, {3, nil}}, multikey: true},
		{doc: `{"a": [{"b": [1, 2]}, {"b": 3}]}`, fields: "a.b", keys: []bson.A{{1}, {2}, {3}}, multikey: true},
		{doc: `{"a": [[1, 2]]}`, fields: "a", keys: []bson.A{{bson.A{1, 2}}}, multikey: true},
		{doc: `{"a": [5, {"b": 6}]}`, fields: "a.0", keys: []bson.A{{5}}, multikey: true},
		{doc: `{"a": [5, {"b": 6}]}`, fields: "a.1.b", keys: []bson.A{{6}}, multikey: true},
		{doc: `{"a": [1], "b": [2]}`, fields: "a b", code: mongoerr.CannotIndexParallelArrays},
		{doc: `{"a": {"b": 1}}`, fields: "a.b.c", keys: []bson.A{{nil}}},
	} {
		var fields []Field
		for _, p := range bytes.Fields([]byte(c.fields)) {
			fields = append(fields, Field{Path: string(p)})
		}
		keys, multikey, err := IndexKeys(doc(t, c.doc), fields, c.sparse)
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
	for _, c := range []struct{ a, b, sum, product any }{
		{int32(2), int32(3), int32(5), int32(6)},
		{int32(math.MaxInt32), int32(2), int64(math.MaxInt32 + 2), int64(math.MaxInt32) * 2},
		{int32(2), int64(3), int64(5), int64(6)},
		{int64(2), 0.5, 2.5, 1.0},
		{int64(math.MaxInt64), int64(2), nil, nil},
		{int64(math.MinInt64), int64(-1), nil, nil},
		{int64(math.MinInt64), int32(1), int64(math.MinInt64 + 1), int64(math.MinInt64)},
		{int64(1 << 32), int64(1 << 31), int64(1<<32 + 1<<31), nil},
	} {
		for i, do := range []func(a, b bson.RawValue) (bson.RawValue, error){Add, Mul} {
			got, err := do(of(c.a), of(c.b))
			want := []any{c.sum, c.product}[i]
			if want == nil {
				require.Equal(t, mongoerr.BadValue, mongoerr.Code(err), "%v and %v", c.a, c.b)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, of(want), got, "%v and %v", c.a, c.b)
		}
	}
	d, _ := bson.ParseDecimal128("1")
	_, err := Add(of(d), of(1))
	require.Equal(t, mongoerr.NotImplementedCode, mongoerr.Code(err))
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
