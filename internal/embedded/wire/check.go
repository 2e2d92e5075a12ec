package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// maxDepth bounds nesting, as MongoDB does: what walks a document recursively
// cannot run out of stack.
const maxDepth = 200

var errCut = errors.New("BSON is cut off")

// Check says whether doc is one well-formed document and nothing behind it.
// It is for documents that come from somewhere else than a message: a file.
func Check(doc bson.Raw) error {
	n, err := checkDocument(doc, 0)
	if err == nil && n != len(doc) {
		err = fmt.Errorf("%d bytes behind the document", len(doc)-n)
	}
	return err
}

// checkDocument walks the document at the start of b and returns its length.
func checkDocument(b []byte, depth int) (int, error) {
	if depth > maxDepth {
		return 0, fmt.Errorf("BSON is nested deeper than %d", maxDepth)
	}
	if len(b) < 5 {
		return 0, errCut
	}
	length := int(int32(binary.LittleEndian.Uint32(b)))
	if length < 5 || length > len(b) {
		return 0, fmt.Errorf("BSON document of %d bytes in %d", length, len(b))
	}
	if b[length-1] != 0 {
		return 0, errors.New("BSON document without its end")
	}
	rest := b[4 : length-1]
	for len(rest) > 0 {
		kind := bson.Type(rest[0])
		end := bytes.IndexByte(rest[1:], 0)
		if end < 0 {
			return 0, errCut
		}
		rest = rest[end+2:]
		n, err := valueLength(kind, rest, depth)
		if err != nil {
			return 0, err
		}
		if n < 0 || n > len(rest) {
			return 0, errCut
		}
		rest = rest[n:]
	}
	return length, nil
}

// valueLength returns the length of the value at the start of b. It may be
// longer than b: the caller compares.
func valueLength(kind bson.Type, b []byte, depth int) (int, error) {
	switch kind {
	case bson.TypeDouble, bson.TypeDateTime, bson.TypeInt64, bson.TypeTimestamp:
		return 8, nil
	case bson.TypeInt32:
		return 4, nil
	case bson.TypeDecimal128:
		return 16, nil
	case bson.TypeObjectID:
		return 12, nil
	case bson.TypeNull, bson.TypeUndefined, bson.TypeMinKey, bson.TypeMaxKey:
		return 0, nil
	case bson.TypeBoolean:
		if len(b) > 0 && b[0] > 1 {
			return 0, fmt.Errorf("BSON boolean of %d", b[0])
		}
		return 1, nil
	case bson.TypeString, bson.TypeJavaScript, bson.TypeSymbol:
		return stringLength(b)
	case bson.TypeDBPointer:
		n, err := stringLength(b)
		return n + 12, err
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		return checkDocument(b, depth+1)
	case bson.TypeBinary:
		if len(b) < 5 {
			return 0, errCut
		}
		n := int(int32(binary.LittleEndian.Uint32(b)))
		if n < 0 || (b[4] == bson.TypeBinaryBinaryOld && n < 4) {
			return 0, fmt.Errorf("BSON binary of %d bytes", n)
		}
		return n + 5, nil
	case bson.TypeRegex:
		first := bytes.IndexByte(b, 0)
		if first < 0 {
			return 0, errCut
		}
		second := bytes.IndexByte(b[first+1:], 0)
		if second < 0 {
			return 0, errCut
		}
		return first + second + 2, nil
	case bson.TypeCodeWithScope:
		return codeWithScopeLength(b, depth)
	default:
		return 0, fmt.Errorf("unknown BSON type %#x", byte(kind))
	}
}

func stringLength(b []byte) (int, error) {
	if len(b) < 5 {
		return 0, errCut
	}
	n := int(int32(binary.LittleEndian.Uint32(b)))
	if n < 1 || n+4 > len(b) || b[n+3] != 0 {
		return 0, fmt.Errorf("BSON string of %d bytes", n)
	}
	return n + 4, nil
}

func codeWithScopeLength(b []byte, depth int) (int, error) {
	if len(b) < 4 {
		return 0, errCut
	}
	total := int(int32(binary.LittleEndian.Uint32(b)))
	if total < 4 || total > len(b) {
		return 0, errCut
	}
	n, err := stringLength(b[4:total])
	if err != nil {
		return 0, err
	}
	m, err := checkDocument(b[4+n:total], depth+1)
	if err == nil && 4+n+m != total {
		err = errCut
	}
	return total, err
}
