package plan

import (
	"encoding/binary"
	"strings"

	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// A compound key is the keys of its fields, one after the other; these functions
// find where one ends (see value.AppendKey for the layout). inv is 0xff in a
// descending field, whose bytes are inverted, else 0.

// keyLen returns the length of the field's key at the start of k.
func keyLen(k string, inv byte) int {
	return 1 + bodyLen(value.Class(k[0]^inv), k[1:], inv)
}

func bodyLen(class value.Class, k string, inv byte) int {
	switch class {
	case value.ClassNumber:
		return numberLen(k, inv)
	case value.ClassString, value.ClassCode:
		return textLen(k, inv)
	case value.ClassDocument:
		return elementsLen(k, inv, true)
	case value.ClassArray:
		return elementsLen(k, inv, false)
	case value.ClassBinary:
		return lengthAt(k, inv)
	case value.ClassDBPointer:
		return 4 + lengthAt(k, inv)
	case value.ClassDate, value.ClassTimestamp:
		return 8
	case value.ClassObjectID:
		return 12
	case value.ClassBoolean:
		return 1
	case value.ClassRegex:
		first := strings.IndexByte(k, inv) + 1
		return first + strings.IndexByte(k[first:], inv) + 1
	case value.ClassCodeWithScope:
		n := textLen(k, inv)
		return n + elementsLen(k[n:], inv, true)
	}
	return 0 // null and its like have no body
}

// lengthAt reads a length of four bytes, which counts itself in a BSON binary.
func lengthAt(k string, inv byte) int {
	var b [4]byte
	for i := range b {
		b[i] = k[i] ^ inv
	}
	return int(binary.BigEndian.Uint32(b[:]))
}

func numberLen(k string, inv byte) int {
	const short = 9
	if k[8]^inv == 0 {
		return short
	}
	// The digits of negative numbers are inverted once more.
	end := inv
	if (k[0]^inv)&0x80 == 0 {
		end = ^inv
	}
	at := short + 2
	return at + strings.IndexByte(k[at:], end) + 1
}

func textLen(k string, inv byte) int {
	for i := 0; ; i++ {
		if k[i] != inv {
			continue
		}
		if i++; k[i] == inv {
			return i + 1
		}
	}
}

func elementsLen(k string, inv byte, names bool) int {
	at := 0
	for k[at] != inv {
		class := value.Class(k[at] ^ inv)
		at++
		if names {
			at += strings.IndexByte(k[at:], inv) + 1
		}
		at += bodyLen(class, k[at:], inv)
	}
	return at + 1
}
