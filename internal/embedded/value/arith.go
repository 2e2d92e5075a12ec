package value

import (
	"math"
	"math/bits"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
)

// Add returns a+b as $inc has it: the wider type of the two (int32 < int64 <
// double), an int32 that overflows becomes an int64, an int64 that overflows
// is refused with BadValue. Both must be numbers; Decimal128 is refused as not
// implemented.
func Add(a, b bson.RawValue) (bson.RawValue, error) {
	return arithmetic(a, b, func(x, y int64) (int64, bool) {
		sum := x + y
		return sum, (x < 0) == (y < 0) && (sum < 0) != (x < 0)
	}, func(x, y float64) float64 { return x + y })
}

// Mul returns a*b as $mul has it, with the types of Add.
func Mul(a, b bson.RawValue) (bson.RawValue, error) {
	return arithmetic(a, b, func(x, y int64) (int64, bool) {
		hi, lo := bits.Mul64(magnitude(x), magnitude(y))
		limit := uint64(math.MaxInt64)
		if (x < 0) != (y < 0) {
			limit++
		}
		return x * y, hi != 0 || lo > limit
	}, func(x, y float64) float64 { return x * y })
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

func arithmetic(a, b bson.RawValue, ints func(x, y int64) (n int64, overflow bool), floats func(x, y float64) float64) (bson.RawValue, error) {
	if a.Type == bson.TypeDecimal128 || b.Type == bson.TypeDecimal128 {
		return bson.RawValue{}, mongoerr.NotImplemented("Decimal128 arithmetic")
	}
	x, xInt := integer(a)
	y, yInt := integer(b)
	if !xInt || !yInt {
		return Double(floats(AsDouble(a), AsDouble(b))), nil
	}
	n, overflow := ints(x, y)
	switch {
	case overflow:
		return bson.RawValue{}, mongoerr.New(mongoerr.BadValue, "integer overflow")
	case a.Type == bson.TypeInt32 && b.Type == bson.TypeInt32 && n == int64(int32(n)):
		return Int32(int32(n)), nil
	}
	return Int64(n), nil
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
