package wire

import (
	"encoding/binary"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// maxDepth bounds nesting, as MongoDB does: what walks a document recursively
// cannot run out of stack.
const maxDepth = 200

// checkDocument walks the document at the start of b and returns its length.
func checkDocument(b []byte, depth int) (int, error) {
	if depth > maxDepth {
		return 0, fmt.Errorf("BSON is nested deeper than %d", maxDepth)
	}
	n := lengthOf(b)
	if n < 5 || n > len(b) || b[n-1] != 0 {
		return 0, fmt.Errorf("BSON document of %d bytes in %d, or without its end", n, len(b))
	}
	it := value.NewIter(b[:n])
	for it.Next() {
		if err := checkValue(it.Value, depth); err != nil {
			return 0, err
		}
	}
	if !it.Complete() {
		return 0, fmt.Errorf("BSON is cut off, or of an unknown type, behind field %q", it.Key)
	}
	return n, nil
}

// checkValue looks into a value whose length is known to fit.
func checkValue(v bson.RawValue, depth int) error {
	ok := true
	switch v.Type {
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		n, err := checkDocument(v.Value, depth+1)
		if err != nil {
			return err
		}
		ok = n == len(v.Value)
	case bson.TypeString, bson.TypeJavaScript, bson.TypeSymbol:
		ok = isString(v.Value)
	case bson.TypeDBPointer:
		ok = isString(v.Value[:len(v.Value)-12])
	case bson.TypeBoolean:
		ok = v.Value[0] <= 1
	case bson.TypeBinary:
		ok = v.Value[4] != bson.TypeBinaryBinaryOld || lengthOf(v.Value) >= 4
	case bson.TypeCodeWithScope:
		code := v.Value[4:]
		n := lengthOf(code) + 4
		if ok = n >= 4 && n <= len(code) && isString(code[:n]); ok {
			return checkValue(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: code[n:]}, depth)
		}
	}
	if !ok {
		return fmt.Errorf("BSON value of type %s is malformed", v.Type)
	}
	return nil
}

// isString says whether b is a string, code or symbol to its end.
func isString(b []byte) bool { return len(b) > 4 && lengthOf(b) == len(b)-4 && b[len(b)-1] == 0 }

// lengthOf reads the length at the start of b, -1 when b is too short for one.
func lengthOf(b []byte) int {
	if len(b) < 4 {
		return -1
	}
	return int(int32(binary.LittleEndian.Uint32(b)))
}
