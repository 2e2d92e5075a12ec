package codec

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"
)

// quickJSON turns text that is known to be JSON into BSON. It takes what arguments and
// results are nearly always made of and gives up on everything else, which [EncodeJSON]
// then does with encoding/json: what is refused, too, so that there is one place that says
// why. Token by token that package costs several times as much.
type quickJSON struct {
	text []byte
	at   int
}

// value appends the next value; ok is false when it gives up.
func (q *quickJSON) value(dst []byte, depth int) (t bsoncore.Type, out []byte, ok bool) {
	q.space()
	if q.at >= len(q.text) || depth >= MaxDepth {
		return 0, dst, false
	}
	switch q.text[q.at] {
	case '{':
		out, ok = q.object(dst, depth)
		return bsoncore.TypeEmbeddedDocument, out, ok
	case '[':
		out, ok = q.array(dst, depth)
		return bsoncore.TypeArray, out, ok
	case '"':
		s, ok := q.plain()
		if !ok {
			return 0, dst, false
		}
		dst = bsoncore.AppendInt32(dst, int32(len(s)+1))
		return bsoncore.TypeString, append(append(dst, s...), 0), true
	case 't':
		q.at += len("true")
		return bsoncore.TypeBoolean, append(dst, 1), true
	case 'f':
		q.at += len("false")
		return bsoncore.TypeBoolean, append(dst, 0), true
	case 'n':
		q.at += len("null")
		return bsoncore.TypeNull, dst, true
	default:
		return q.integer(dst)
	}
}

func (q *quickJSON) space() {
	for q.at < len(q.text) {
		switch q.text[q.at] {
		case ' ', '\t', '\n', '\r':
			q.at++
		default:
			return
		}
	}
}

// next skips white space and says whether that byte comes, which it then skips, too.
func (q *quickJSON) next(b byte) bool {
	q.space()
	if q.at >= len(q.text) || q.text[q.at] != b {
		return false
	}
	q.at++
	return true
}

// plain is the text of a string that says what it is: without escapes, and valid.
func (q *quickJSON) plain() ([]byte, bool) {
	if !q.next('"') {
		return nil, false
	}
	n := bytes.IndexByte(q.text[q.at:], '"')
	if n < 0 {
		return nil, false
	}
	s := q.text[q.at : q.at+n]
	if bytes.IndexByte(s, '\\') >= 0 || !utf8.Valid(s) {
		return nil, false
	}
	q.at += n + 1
	return s, true
}

// integer gives up on numbers with a fraction or an exponent, and on those of more digits
// than certainly fit.
func (q *quickJSON) integer(dst []byte) (t bsoncore.Type, out []byte, ok bool) {
	start := q.at
	for q.at < len(q.text) && (q.text[q.at] == '-' || q.text[q.at] >= '0' && q.text[q.at] <= '9') {
		q.at++
	}
	number := q.text[start:q.at]
	odd := q.at < len(q.text) && (q.text[q.at] == '.' || q.text[q.at]|0x20 == 'e')
	if odd || len(number) == 0 || len(number) > 18 || string(number) == "-0" { // which is a float's
		return 0, dst, false
	}
	n, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil {
		return 0, dst, false
	}
	return bsoncore.TypeInt64, bsoncore.AppendInt64(dst, n), true
}

func (q *quickJSON) array(dst []byte, depth int) (out []byte, ok bool) {
	q.at++
	start, dst := bsoncore.AppendDocumentStart(dst)
	if q.next(']') {
		return closed(dst, start), true
	}
	for i := 0; ; i++ {
		if dst, ok = quickElement(q, dst, Index(i), depth); !ok {
			return dst, false
		}
		if !q.next(',') {
			return closed(dst, start), q.next(']')
		}
	}
}

// manyKeys is how many keys of an object are compared with each other one by one; it gives
// up on larger ones.
const manyKeys = 24

func (q *quickJSON) object(dst []byte, depth int) (out []byte, ok bool) {
	q.at++
	start, dst := bsoncore.AppendDocumentStart(dst)
	if q.next('}') {
		return closed(dst, start), true
	}
	var seen [manyKeys][]byte
	for n := 0; ; n++ {
		key, ok := q.plain()
		if !ok || n == manyKeys || len(key) > 0 && key[0] == '$' || !q.next(':') {
			return dst, false
		}
		for _, other := range seen[:n] {
			if bytes.Equal(key, other) {
				return dst, false
			}
		}
		seen[n] = key
		if dst, ok = quickElement(q, dst, key, depth); !ok {
			return dst, false
		}
		if !q.next(',') {
			return closed(dst, start), q.next('}')
		}
	}
}

// quickElement appends an element: its type is known only after the value, so a
// placeholder is patched.
func quickElement[K string | []byte](q *quickJSON, dst []byte, key K, depth int) (out []byte, ok bool) {
	at := len(dst)
	dst = append(append(append(dst, 0), key...), 0)
	t, dst, ok := q.value(dst, depth+1)
	if ok {
		dst[at] = byte(t)
	}
	return dst, ok
}
