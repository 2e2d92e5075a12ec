// Package wire reads and writes MongoDB's wire protocol: OP_MSG, and of the
// legacy messages only OP_QUERY, with which a driver says hello before it knows
// the server. It knows bytes and their limits, no command.
//
// Whatever Read returns is well formed: lengths fit, documents end where they
// say, nesting is bounded. The packages above may walk the BSON without care.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// The limits a client is told in the answer to hello.
const (
	MaxDocument = 16 << 20   // maxBsonObjectSize
	MaxMessage  = 48_000_000 // maxMessageSizeBytes
	MaxBatch    = 100_000    // maxWriteBatchSize

	// maxCommand is the longest a command's own document may be: MongoDB's 16 MB
	// and what the command needs around a full document.
	maxCommand = MaxDocument + 16<<10
)

const (
	opReply      = 1
	opQuery      = 2004
	opCompressed = 2012
	opMsg        = 2013

	headerSize = 16

	flagChecksum   = 1 << 0
	flagMoreToCome = 1 << 1
	knownRequired  = flagChecksum | flagMoreToCome // of bits 0 to 15, which a server must understand
)

// ErrMalformed is in every error of Read that speaks of the message and not of
// the connection. The stream cannot be trusted any more: hang up.
var ErrMalformed = errors.New("malformed message")

// Message is one request.
type Message struct {
	ID        int32
	Body      bson.Raw   // the command
	Sequences []Sequence // document sequences of OP_MSG (kind 1); nil for none
	NoReply   bool       // the client set moreToCome: it waits for no answer
	Legacy    bool       // came as OP_QUERY, wants OP_REPLY
	Database  string     // of OP_QUERY, whose body has no $db; "" otherwise
}

// Sequence is a document sequence: the value of the command's array field Name,
// sent beside the command so that it is not bound by the size of a document.
type Sequence struct {
	Name string
	Docs []bson.Raw
}

// Read reads the next request. It returns io.EOF when the client left between
// messages, an error with ErrMalformed when it sent nonsense.
func Read(r io.Reader) (*Message, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	length := int32(binary.LittleEndian.Uint32(header[:]))
	if length < headerSize || length > MaxMessage {
		return nil, fmt.Errorf("%w: length %d is not within %d and %d", ErrMalformed, length, headerSize, MaxMessage)
	}
	body, err := readBody(r, int(length)-headerSize)
	if err != nil {
		return nil, err
	}
	m := &Message{ID: int32(binary.LittleEndian.Uint32(header[4:]))}
	switch op := binary.LittleEndian.Uint32(header[12:]); op {
	case opMsg:
		err = m.parseMsg(body)
	case opQuery:
		err = m.parseQuery(body)
	case opCompressed:
		err = errors.New("compressed, which was not offered")
	default:
		err = fmt.Errorf("operation %d is not supported", op)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return m, nil
}

// readBody reads n bytes. Memory grows with what has arrived, not with what a
// header promised.
func readBody(r io.Reader, n int) ([]byte, error) {
	const step = 1 << 20
	buf := make([]byte, 0, min(n, step))
	for len(buf) < n {
		next := min(n-len(buf), max(step, len(buf)))
		have := len(buf)
		buf = append(buf, make([]byte, next)...)
		if _, err := io.ReadFull(r, buf[have:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return buf, nil
}

func (m *Message) parseMsg(b []byte) error {
	if len(b) < 4 {
		return errors.New("no flags")
	}
	flags := binary.LittleEndian.Uint32(b)
	if unknown := flags & 0xffff &^ knownRequired; unknown != 0 {
		return fmt.Errorf("unknown required flags %#x", unknown)
	}
	m.NoReply = flags&flagMoreToCome != 0
	b = b[4:]
	if flags&flagChecksum != 0 {
		// Read over a local, reliable connection: the sum is accepted unchecked.
		if len(b) < 4 {
			return errors.New("no checksum")
		}
		b = b[:len(b)-4]
	}
	for len(b) > 0 {
		kind := b[0]
		b = b[1:]
		var err error
		switch kind {
		case 0:
			if m.Body != nil {
				return errors.New("two bodies")
			}
			m.Body, b, err = takeDocument(b, maxCommand)
		case 1:
			b, err = m.parseSequence(b)
		default:
			err = fmt.Errorf("unknown section kind %d", kind)
		}
		if err != nil {
			return err
		}
	}
	if m.Body == nil {
		return errors.New("no body")
	}
	return nil
}

func (m *Message) parseSequence(b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, errors.New("sequence without a size")
	}
	size := int(int32(binary.LittleEndian.Uint32(b)))
	if size < 4 || size > len(b) {
		return nil, fmt.Errorf("sequence of %d bytes in %d", size, len(b))
	}
	section, rest := b[4:size], b[size:]
	name, section, ok := takeCString(section)
	if !ok {
		return nil, errors.New("sequence without a name")
	}
	seq := Sequence{Name: name}
	for len(section) > 0 {
		var doc bson.Raw
		var err error
		// The limit of stored documents is the command's to check, with its own code.
		if doc, section, err = takeDocument(section, MaxMessage); err != nil {
			return nil, err
		}
		seq.Docs = append(seq.Docs, doc)
	}
	m.Sequences = append(m.Sequences, seq)
	return rest, nil
}

func (m *Message) parseQuery(b []byte) error {
	if len(b) < 4 {
		return errors.New("no flags")
	}
	name, rest, ok := takeCString(b[4:])
	if !ok || len(rest) < 8 {
		return errors.New("cut off after the collection's name")
	}
	const suffix = ".$cmd"
	if len(name) <= len(suffix) || name[len(name)-len(suffix):] != suffix {
		return fmt.Errorf("legacy query on %q", name)
	}
	m.Legacy, m.Database = true, name[:len(name)-len(suffix)]
	var err error
	m.Body, _, err = takeDocument(rest[8:], maxCommand)
	return err
}

func takeCString(b []byte) (string, []byte, bool) {
	for i, c := range b {
		if c == 0 {
			return string(b[:i]), b[i+1:], true
		}
	}
	return "", nil, false
}

func takeDocument(b []byte, limit int) (bson.Raw, []byte, error) {
	n, err := checkDocument(b, 0)
	if err != nil {
		return nil, nil, err
	}
	if n > limit {
		return nil, nil, fmt.Errorf("document of %d bytes, at most %d", n, limit)
	}
	return bson.Raw(b[:n:n]), b[n:], nil
}

// AppendReply appends the answer doc to the request m. A legacy request gets
// OP_REPLY, every other OP_MSG.
func AppendReply(dst []byte, m *Message, id int32, doc []byte) []byte {
	start := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(id))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.ID))
	if m.Legacy {
		dst = binary.LittleEndian.AppendUint32(dst, opReply)
		dst = binary.LittleEndian.AppendUint32(dst, 8) // awaitCapable
		dst = binary.LittleEndian.AppendUint64(dst, 0) // no cursor
		dst = binary.LittleEndian.AppendUint32(dst, 0) // from the start
		dst = binary.LittleEndian.AppendUint32(dst, 1) // one document
	} else {
		dst = binary.LittleEndian.AppendUint32(dst, opMsg)
		dst = binary.LittleEndian.AppendUint32(dst, 0) // no flags
		dst = append(dst, 0)                           // section: body
	}
	dst = append(dst, doc...)
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst
}
