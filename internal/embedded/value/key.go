package value

import (
	"encoding/binary"
	"math"
	"math/big"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// AppendKey appends the key of v: bytes that compare (bytes.Compare) as the
// values do (Compare), the other way round when descending. No key is a prefix
// of another, so keys of several fields may be appended one after the other
// and compare like the tuple of the values.
//
// A key is the class and then what orders values within it. Equal values have
// the same key even when their types differ, so the value cannot be recovered
// from it.
func AppendKey(dst []byte, v bson.RawValue, descending bool) []byte {
	at := len(dst)
	dst = appendKey(dst, v)
	if descending {
		for i := at; i < len(dst); i++ {
			dst[i] = ^dst[i]
		}
	}
	return dst
}

func appendKey(dst []byte, v bson.RawValue) []byte {
	class := ClassOf(v.Type)
	return appendBody(append(dst, byte(class)), class, v)
}

func appendBody(dst []byte, class Class, v bson.RawValue) []byte {
	switch class {
	case ClassNumber:
		return appendNumber(dst, v)
	case ClassString, ClassCode:
		return appendText(dst, text(v.Value))
	case ClassDocument:
		return appendElements(dst, v.Value, true)
	case ClassArray:
		return appendElements(dst, v.Value, false)
	case ClassBinary, ClassDBPointer:
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(v.Value)))
		if class == ClassBinary {
			return append(dst, v.Value[4:]...)
		}
		return append(dst, v.Value...)
	case ClassDate:
		return binary.BigEndian.AppendUint64(dst, binary.LittleEndian.Uint64(v.Value)^(1<<63))
	case ClassTimestamp:
		return binary.BigEndian.AppendUint64(dst, binary.LittleEndian.Uint64(v.Value))
	case ClassObjectID, ClassBoolean, ClassRegex:
		return append(dst, v.Value...) // of fixed length, or ended by a zero byte
	case ClassCodeWithScope:
		code, scope := codeWithScope(v.Value)
		return appendElements(appendText(dst, code), scope, true)
	}
	return dst
}

// appendElements writes class, name (not for arrays) and value of each
// element, in the order compareElements looks at them, and ends with a byte
// below every class.
func appendElements(dst, doc []byte, names bool) []byte {
	for it := NewIter(doc); it.Next(); {
		class := ClassOf(it.Value.Type)
		dst = append(dst, byte(class))
		if names {
			dst = append(append(dst, it.Key...), 0)
		}
		dst = appendBody(dst, class, it.Value)
	}
	return append(dst, 0)
}

// appendText writes s so that its end sorts below any further byte: zero bytes
// within are followed by 0xff, the end is two zeros.
func appendText(dst, s []byte) []byte {
	for _, c := range s {
		dst = append(dst, c)
		if c == 0 {
			dst = append(dst, 0xff)
		}
	}
	return append(dst, 0, 0)
}

// A number's key is the greatest double not above it (8 bytes, NaN as zeros)
// and a flag: 0 when that double is the number, otherwise 1 and the exact
// decimal digits. So most numbers take 9 bytes, and equal numbers of any type
// have the same key.
func appendNumber(dst []byte, v bson.RawValue) []byte {
	switch v.Type {
	case bson.TypeDouble:
		return append(appendFloat(dst, float(v.Value)), 0)
	case bson.TypeDecimal128:
		return appendDecimal(dst, v.Decimal128())
	}
	n, _ := integer(v)
	f := float64(n)
	if f == 1<<63 || int64(f) > n {
		f = math.Nextafter(f, math.Inf(-1))
	}
	dst = appendFloat(dst, f)
	if int64(f) == n {
		return append(dst, 0)
	}
	return appendDigits(append(dst, 1), big.NewInt(n), 0)
}

func appendFloat(dst []byte, f float64) []byte {
	if f != f {
		return binary.BigEndian.AppendUint64(dst, 0)
	}
	if f == 0 {
		f = 0 // -0 is 0
	}
	bits := math.Float64bits(f)
	if bits>>63 != 0 {
		bits = ^bits
	} else {
		bits |= 1 << 63
	}
	return binary.BigEndian.AppendUint64(dst, bits)
}

func appendDecimal(dst []byte, d bson.Decimal128) []byte {
	if d.IsNaN() {
		return append(appendFloat(dst, math.NaN()), 0)
	}
	if inf := d.IsInf(); inf != 0 {
		return append(appendFloat(dst, math.Inf(inf)), 0)
	}
	coef, exp, err := d.BigInt()
	if err != nil || coef.Sign() == 0 {
		return append(appendFloat(dst, 0), 0)
	}
	exact := rational(coef, exp)
	f, same := exact.Float64()
	if !same {
		if math.IsInf(f, 1) {
			f = math.MaxFloat64
		} else if !math.IsInf(f, -1) && new(big.Rat).SetFloat64(f).Cmp(exact) > 0 {
			f = math.Nextafter(f, math.Inf(-1))
		}
	}
	dst = appendFloat(dst, f)
	if same {
		return append(dst, 0)
	}
	return appendDigits(append(dst, 1), coef, exp)
}

func rational(coef *big.Int, exp int) *big.Rat {
	r := new(big.Rat).SetInt(coef)
	pow := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(exp, -exp))), nil)
	if exp < 0 {
		return r.Quo(r, new(big.Rat).SetInt(pow))
	}
	return r.Mul(r, new(big.Rat).SetInt(pow))
}

// appendDigits orders numbers that share their sign: the position of the
// first digit, the digits without trailing zeros, an end mark below every
// digit; all inverted when negative.
func appendDigits(dst []byte, coef *big.Int, exp int) []byte {
	at := len(dst)
	digits := new(big.Int).Abs(coef).String()
	dst = binary.BigEndian.AppendUint16(dst, uint16(exp+len(digits)+1<<14))
	dst = append(dst, strings.TrimRight(digits, "0")...)
	dst = append(dst, 0)
	if coef.Sign() < 0 {
		for i := at; i < len(dst); i++ {
			dst[i] = ^dst[i]
		}
	}
	return dst
}
