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
// and compare like the tuple of the values; KeyLen finds where one ends.
//
// A key is the class and then what orders values within it: nothing, a body of
// a length that the class tells, or a text (appendText). Equal values have the
// same key even when their types differ, so the value cannot be recovered from
// it.
func AppendKey(dst []byte, v bson.RawValue, descending bool) []byte {
	at := len(dst)
	class := ClassOf(v.Type)
	dst = append(dst, byte(class))
	switch class {
	case ClassDocument, ClassArray, ClassBinary, ClassRegex, ClassDBPointer, ClassCodeWithScope:
		dst = appendText(dst, appendBody(nil, class, v))
	default:
		dst = appendBody(dst, class, v)
	}
	if descending {
		invert(dst[at:])
	}
	return dst
}

// KeyLen returns the length of the first field's key in k, where descending
// tells how that field was appended.
func KeyLen(k string, descending bool) int {
	inv := byte(0)
	if descending {
		inv = 0xff
	}
	n := 1
	switch Class(k[0] ^ inv) {
	case ClassMinKey, ClassUndefined, ClassNull, ClassMaxKey:
		return 1
	case ClassBoolean:
		return 1 + 1
	case ClassDate, ClassTimestamp:
		return 1 + 8
	case ClassObjectID:
		return 1 + 12
	case ClassNumber:
		if n = 1 + 8 + 1; k[n-1] == inv {
			return n
		}
	}
	for { // a text
		n += strings.IndexByte(k[n:], inv) + 2
		if k[n-1] == inv {
			return n
		}
	}
}

func invert(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}

// appendBody appends what orders v in its class; no body is a prefix of another.
func appendBody(dst []byte, class Class, v bson.RawValue) []byte {
	switch class {
	case ClassDocument:
		return appendElements(dst, v.Value, true)
	case ClassArray:
		return appendElements(dst, v.Value, false)
	case ClassCodeWithScope:
		code, scope := codeWithScope(v.Value)
		return appendElements(appendText(dst, code), scope, true)
	}
	return appendScalar(dst, class, v)
}

func appendScalar(dst []byte, class Class, v bson.RawValue) []byte {
	switch class {
	case ClassNumber:
		return appendNumber(dst, v)
	case ClassString, ClassCode:
		return appendText(dst, text(v.Value))
	case ClassBinary: // by length, then subtype, then the bytes
		return append(binary.BigEndian.AppendUint32(dst, uint32(len(v.Value))), v.Value[4:]...)
	case ClassDBPointer:
		return append(binary.BigEndian.AppendUint32(dst, uint32(len(v.Value))), v.Value...)
	case ClassDate:
		return binary.BigEndian.AppendUint64(dst, binary.LittleEndian.Uint64(v.Value)^(1<<63))
	case ClassTimestamp:
		return binary.BigEndian.AppendUint64(dst, binary.LittleEndian.Uint64(v.Value))
	case ClassObjectID, ClassBoolean, ClassRegex:
		return append(dst, v.Value...) // of fixed length, or ended by a zero byte
	}
	return dst
}

// appendElements writes class, name (not for arrays) and body of each element
// in their order, and ends with a byte below every class.
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

// A number's body is the greatest double not above it (8 bytes, NaN as zeros)
// and a flag: 0 when that double is the number, otherwise 1 and the exact
// decimal digits as a text. So most numbers take 9 bytes, and equal numbers of
// any type have the same key.
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
	return appendDigits(dst, big.NewInt(n), 0)
}

func appendFloat(dst []byte, f float64) []byte {
	if f != f {
		return binary.BigEndian.AppendUint64(dst, 0)
	}
	bits := math.Float64bits(f + 0) // -0 is 0
	if bits>>63 != 0 {
		bits = ^bits
	} else {
		bits |= 1 << 63
	}
	return binary.BigEndian.AppendUint64(dst, bits)
}

func appendDecimal(dst []byte, d bson.Decimal128) []byte {
	coef, exp, err := d.BigInt()
	switch inf := d.IsInf(); {
	case inf != 0:
		return append(appendFloat(dst, math.Inf(inf)), 0)
	case err != nil: // NaN
		return append(appendFloat(dst, math.NaN()), 0)
	case coef.Sign() == 0:
		return append(appendFloat(dst, 0), 0)
	}
	exact := rational(coef, exp)
	f, same := exact.Float64()
	if same {
		return append(appendFloat(dst, f), 0)
	}
	if math.IsInf(f, 1) {
		f = math.MaxFloat64
	} else if !math.IsInf(f, -1) && new(big.Rat).SetFloat64(f).Cmp(exact) > 0 {
		f = math.Nextafter(f, math.Inf(-1))
	}
	return appendDigits(appendFloat(dst, f), coef, exp)
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
	digits := new(big.Int).Abs(coef).String()
	body := binary.BigEndian.AppendUint16(nil, uint16(exp+len(digits)+1<<14))
	body = append(append(body, strings.TrimRight(digits, "0")...), 0)
	if coef.Sign() < 0 {
		invert(body)
	}
	return appendText(append(dst, 1), body)
}
