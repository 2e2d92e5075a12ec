package value

import (
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
)

// Add returns a+b as $inc has it: the wider type of the two (int32 < int64 <
// double), an int32 that overflows becomes an int64, an int64 that overflows
// is refused with BadValue. Both must be numbers; Decimal128 is refused as not
// implemented.
func Add(a, b bson.RawValue) (bson.RawValue, error) {
	x, y := AsDouble(a), AsDouble(b)
	i, j := wholes(a, b)
	return arithmetic(a, b, i+j, (i < 0) == (j < 0) && (i+j < 0) != (i < 0), x+y)
}

// Mul returns a*b as $mul has it, with the types of Add.
func Mul(a, b bson.RawValue) (bson.RawValue, error) {
	x, y := AsDouble(a), AsDouble(b)
	i, j := wholes(a, b)
	overflow := i != 0 && ((i*j)/i != j || i == -1 && j == math.MinInt64)
	return arithmetic(a, b, i*j, overflow, x*y)
}

func wholes(a, b bson.RawValue) (i, j int64) {
	i, _ = integer(a)
	j, _ = integer(b)
	return i, j
}

// arithmetic gives the result of an operation on a and b its type: whole is the
// result of int64s, unless that overflows, double that of doubles.
func arithmetic(a, b bson.RawValue, whole int64, overflow bool, double float64) (bson.RawValue, error) {
	switch {
	case a.Type == bson.TypeDecimal128 || b.Type == bson.TypeDecimal128:
		return bson.RawValue{}, mongoerr.NotImplemented("Decimal128 arithmetic")
	case a.Type == bson.TypeDouble || b.Type == bson.TypeDouble:
		return Double(double), nil
	case overflow:
		return bson.RawValue{}, mongoerr.New(mongoerr.BadValue, "integer overflow")
	case a.Type == bson.TypeInt32 && b.Type == bson.TypeInt32 && whole == int64(int32(whole)):
		return Int32(int32(whole)), nil
	}
	return Int64(whole), nil
}

// AsDouble returns an int32, int64 or double as a double, other values as 0.
func AsDouble(v bson.RawValue) float64 {
	if v.Type == bson.TypeDouble {
		return float(v.Value)
	}
	n, _ := integer(v)
	return float64(n)
}

// AsInteger returns the whole number in v, fractions cut off. Not ok: v is no
// number, NaN, or out of the range of an int64.
func AsInteger(v bson.RawValue) (n int64, ok bool) {
	switch v.Type {
	case bson.TypeDouble:
		f := math.Trunc(float(v.Value))
		if f >= -(1<<63) && f < 1<<63 {
			return int64(f), true
		}
		return 0, false
	case bson.TypeDecimal128:
		coef, exp, err := v.Decimal128().BigInt()
		if err != nil || exp > 19 { // NaN and infinities have no big.Int
			return 0, err == nil && coef.Sign() == 0
		}
		r := rational(coef, exp)
		whole := r.Num().Quo(r.Num(), r.Denom())
		return whole.Int64(), whole.IsInt64()
	}
	return integer(v)
}
