package codec

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/input"
	"github.com/mscheduler/mscheduler/internal/safetext"
	"github.com/mscheduler/mscheduler/model"
)

// Size limits of the values a task carries, in bytes of their BSON form.
const (

	// MaxDepth keeps values clear of the hundred levels MongoDB nests at most.
	MaxDepth = 90
)

// EncodeValue turns a Go value into what is stored: the BSON equal of its JSON form,
// integers as int64, or as a double if that keeps every digit of a larger one. A [model.None], a nil or a JSON null is the zero RawValue. field names
// the value in errors; limit is the greatest size in bytes.
func EncodeValue(field string, v any, limit int) (bson.RawValue, error) {
	return encodeAny(field, v, limit, false)
}

// EncodeTemplate is [EncodeValue] for a value whose names may start with $, such as a filter. The
// caller says what these names mean.
func EncodeTemplate(field string, v any, limit int) (bson.RawValue, error) {
	return encodeAny(field, v, limit, true)
}

func encodeAny(field string, v any, limit int, dollars bool) (bson.RawValue, error) {
	switch v := v.(type) {
	case nil, model.None, *model.None:
		return bson.RawValue{}, nil
	case json.RawMessage:
		return encodeJSON(field, v, limit, dollars)
	}
	data, err := json.Marshal(v)
	if err != nil {
		return bson.RawValue{}, input.Invalid(field, "cannot be encoded as JSON: %v", err)
	}
	return encodeValid(field, data, limit, dollars)
}

// EncodeJSON is [EncodeValue] for a value that is JSON already.
func EncodeJSON(field string, data []byte, limit int) (bson.RawValue, error) {
	return encodeJSON(field, data, limit, false)
}

func encodeJSON(field string, data []byte, limit int, dollars bool) (bson.RawValue, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return bson.RawValue{}, nil
	}
	if !json.Valid(data) {
		return encodeTokens(field, data, limit, dollars) // it says what is wrong
	}
	return encodeValid(field, data, limit, dollars)
}

// encodeValid is encodeJSON for what is JSON.
func encodeValid(field string, data []byte, limit int, dollars bool) (bson.RawValue, error) {
	q := quickJSON{text: data}
	t, out, ok := q.value(make([]byte, 0, len(data)+len(data)/4+32), 0)
	if !ok || len(out) > limit {
		return encodeTokens(field, data, limit, dollars)
	}
	if t == bsoncore.TypeNull {
		return bson.RawValue{}, nil
	}
	return bson.RawValue{Type: bson.Type(t), Value: out}, nil
}

// encodeTokens is encodeJSON for all that there is, and for what is refused.
func encodeTokens(field string, data []byte, limit int, dollars bool) (bson.RawValue, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	e := valueEncoder{dec: dec, path: []string{field}, dollars: dollars}
	t, out, err := e.value(nil, 0)
	if err != nil {
		return bson.RawValue{}, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return bson.RawValue{}, input.Invalid(field, "has text after its JSON value")
	}
	if t == bsoncore.TypeNull {
		return bson.RawValue{}, nil
	}
	if len(out) > limit {
		return bson.RawValue{}, input.Invalid(field, "has %d bytes as BSON; at most %d are allowed", len(out), limit)
	}
	return bson.RawValue{Type: bson.Type(t), Value: out}, nil
}

type valueEncoder struct {
	dec     *json.Decoder
	path    []string
	dollars bool // names may start with $
}

func (e *valueEncoder) fail(format string, args ...any) error {
	return input.Invalid(strings.Join(e.path, ""), format, args...)
}

func (e *valueEncoder) value(dst []byte, depth int) (bsoncore.Type, []byte, error) {
	tok, err := e.dec.Token()
	if err != nil {
		return 0, nil, e.fail("is not JSON: %v", err)
	}
	switch tok := tok.(type) {
	case nil:
		return bsoncore.TypeNull, dst, nil
	case bool:
		return bsoncore.TypeBoolean, bsoncore.AppendBoolean(dst, tok), nil
	case string:
		return bsoncore.TypeString, bsoncore.AppendString(dst, tok), nil
	case json.Number:
		return e.number(dst, tok.String())
	case json.Delim:
		if depth >= MaxDepth {
			return 0, nil, e.fail("is nested deeper than %d levels", MaxDepth)
		}
		if tok == '[' {
			dst, err = e.array(dst, depth)
			return bsoncore.TypeArray, dst, err
		}
		dst, err = e.object(dst, depth)
		return bsoncore.TypeEmbeddedDocument, dst, err
	default:
		return 0, nil, e.fail("is not a JSON value")
	}
}

func (e *valueEncoder) number(dst []byte, s string) (bsoncore.Type, []byte, error) {
	if !strings.ContainsAny(s, ".eE") && s != "-0" { // which is a float's
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return bsoncore.TypeInt64, bsoncore.AppendInt64(dst, n), nil
		}
		if f, err := strconv.ParseFloat(s, 64); err == nil && string(appendDouble(nil, f)) == s {
			return bsoncore.TypeDouble, bsoncore.AppendDouble(dst, f), nil
		}
		return 0, nil, e.fail("is the integer %s, which does not fit 64 bits; send it as a string", safetext.Clip(s, 40))
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, nil, e.fail("is the number %s, which does not fit a double; send it as a string", safetext.Clip(s, 40))
	}
	return bsoncore.TypeDouble, bsoncore.AppendDouble(dst, f), nil
}

// element appends one element: the header needs the type, which is known only after
// the value, so a placeholder is patched.
func (e *valueEncoder) element(dst []byte, key string, depth int) ([]byte, error) {
	at := len(dst)
	dst = append(dst, 0)
	dst = append(dst, key...)
	dst = append(dst, 0)
	t, dst, err := e.value(dst, depth+1)
	if err != nil {
		return nil, err
	}
	dst[at] = byte(t)
	return dst, nil
}

func (e *valueEncoder) array(dst []byte, depth int) ([]byte, error) {
	start, dst := bsoncore.AppendDocumentStart(dst)
	var err error
	for i := 0; e.dec.More(); i++ {
		e.path = append(e.path, fmt.Sprintf("[%d]", i))
		if dst, err = e.element(dst, strconv.Itoa(i), depth); err != nil {
			return nil, err
		}
		e.path = e.path[:len(e.path)-1]
	}
	return e.end(dst, start)
}

func (e *valueEncoder) object(dst []byte, depth int) ([]byte, error) {
	start, dst := bsoncore.AppendDocumentStart(dst)
	seen := map[string]struct{}{}
	for e.dec.More() {
		tok, err := e.dec.Token()
		if err != nil {
			return nil, e.fail("is not JSON: %v", err)
		}
		key, _ := tok.(string)
		e.path = append(e.path, "."+key)
		if _, twice := seen[key]; twice {
			return nil, e.fail("occurs twice")
		}
		seen[key] = struct{}{}
		switch {
		case strings.HasPrefix(key, "$") && !e.dollars:
			return nil, e.fail("has a name that starts with $, which MongoDB does not store")
		case strings.ContainsRune(key, 0):
			return nil, e.fail("has a name with a NUL byte")
		}
		if dst, err = e.element(dst, key, depth); err != nil {
			return nil, err
		}
		e.path = e.path[:len(e.path)-1]
	}
	return e.end(dst, start)
}

func (e *valueEncoder) end(dst []byte, start int32) ([]byte, error) {
	if _, err := e.dec.Token(); err != nil {
		return nil, e.fail("is not JSON: %v", err)
	}
	dst, err := bsoncore.AppendDocumentEnd(dst, start)
	if err != nil {
		return nil, e.fail("cannot be encoded: %v", err)
	}
	return dst, nil
}

// DecodeValue reads a stored value into dst by the rules of encoding/json; unknown
// fields are ignored. The absent value leaves dst as it is.
func DecodeValue(v bson.RawValue, dst any) error {
	if v.Type == 0 {
		return nil
	}
	if _, none := dst.(*model.None); none {
		return nil
	}
	return json.Unmarshal(ValueJSON(v), dst)
}

// ValueJSON renders any BSON value as plain JSON: dates as RFC 3339 in UTC with
// milliseconds, binary as base64, ids as hex, doubles that JSON lacks as strings. The
// absent value is null.
func ValueJSON(v bson.RawValue) []byte {
	return appendJSON(make([]byte, 0, len(v.Value)+16), bsoncore.Value{Type: bsoncore.Type(v.Type), Data: v.Value})
}

// DocumentJSON renders a whole document as [ValueJSON] does.
func DocumentJSON(doc bson.Raw) []byte {
	return appendJSON(nil, bsoncore.Value{Type: bsoncore.TypeEmbeddedDocument, Data: doc})
}

func appendJSON(dst []byte, v bsoncore.Value) []byte {
	switch v.Type {
	case bsoncore.TypeEmbeddedDocument:
		return appendJSONElements(dst, v.Data, '{', '}')
	case bsoncore.TypeArray:
		return appendJSONElements(dst, v.Data, '[', ']')
	case bsoncore.TypeString:
		return AppendJSONString(dst, textOf(v.Data))
	case bsoncore.TypeInt32:
		return strconv.AppendInt(dst, int64(v.Int32()), 10)
	case bsoncore.TypeInt64:
		return strconv.AppendInt(dst, v.Int64(), 10)
	case bsoncore.TypeBoolean:
		return strconv.AppendBool(dst, v.Boolean())
	case bsoncore.TypeDouble:
		f := v.Double()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return AppendJSONString(dst, strconv.FormatFloat(f, 'g', -1, 64))
		}
		return appendDouble(dst, f)
	case bsoncore.TypeDateTime:
		return AppendJSONString(dst, time.UnixMilli(v.DateTime()).UTC().Format(clock.Format))
	case bsoncore.TypeBinary:
		_, data := v.Binary()
		return AppendJSONString(dst, base64.StdEncoding.EncodeToString(data))
	case bsoncore.TypeObjectID:
		return AppendJSONString(dst, bson.ObjectID(v.ObjectID()).Hex())
	case bsoncore.TypeNull, bsoncore.TypeUndefined, 0:
		return append(dst, "null"...)
	default:
		return AppendJSONString(dst, v.String())
	}
}

// appendDouble writes a double as encoding/json does: below 1e21 without an exponent. So what looks like an integer
// also decodes into one.
func appendDouble(dst []byte, f float64) []byte {
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(dst, f, format, -1, 64)
}

func appendJSONElements(dst []byte, doc []byte, open, end byte) []byte {
	dst = append(dst, open)
	first := len(dst)
	for f := fieldsOf(doc); f.next(); { // what is damaged ends where it is
		if len(dst) > first {
			dst = append(dst, ',')
		}
		if open == '{' {
			dst = append(AppendJSONString(dst, f.key), ':')
		}
		dst = appendJSON(dst, bsoncore.Value{Type: f.kind, Data: f.data})
	}
	return append(dst, end)
}

// textOf is the text of a string's value.
func textOf(data []byte) []byte {
	if len(data) < 5 {
		return nil
	}
	return data[4 : len(data)-1]
}

// AppendJSONString appends the text as a JSON string.
func AppendJSONString[T string | []byte](dst []byte, s T) []byte {
	plain := true
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			plain = false
			break
		}
	}
	if plain {
		return append(append(append(dst, '"'), s...), '"')
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(string(s)) // a string always encodes, and a Buffer always takes it
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
