// Package wire reads and writes MongoDB's wire protocol: OP_MSG, and of the
// legacy messages only OP_QUERY, with which a driver says hello before it knows
// the server. It knows bytes and their limits, no command.
//
// Whatever Read returns is well formed: lengths fit, documents end where they
// say, nesting is bounded. The packages above may walk the BSON without care.
package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

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

	awaitCapable = 8 // flag of OP_REPLY

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
	var buf bytes.Buffer
	buf.Grow(min(n, 1<<20) + bytes.MinRead)
	_, err := io.CopyN(&buf, r, int64(n))
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return buf.Bytes(), err
}

func (m *Message) parseMsg(b []byte) (err error) {
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
	for len(b) > 0 && err == nil {
		switch kind := b[0]; {
		case kind == 0 && m.Body == nil:
			m.Body, b, err = takeDocument(b[1:], maxCommand)
		case kind == 1:
			b, err = m.parseSequence(b[1:])
		default:
			return fmt.Errorf("section of unknown kind %d, or a second body", kind)
		}
	}
	if err == nil && m.Body == nil {
		return errors.New("no body")
	}
	return err
}

func (m *Message) parseSequence(b []byte) (rest []byte, err error) {
	size := lengthOf(b)
	if size < 4 || size > len(b) {
		return nil, fmt.Errorf("sequence of %d bytes in %d", size, len(b))
	}
	name, section, ok := bytes.Cut(b[4:size], []byte{0})
	if !ok {
		return nil, errors.New("sequence without a name")
	}
	seq := Sequence{Name: string(name)}
	for len(section) > 0 {
		var doc bson.Raw
		// The limit of stored documents is the command's to check, with its own code.
		if doc, section, err = takeDocument(section, MaxMessage); err != nil {
			return nil, err
		}
		seq.Docs = append(seq.Docs, doc)
	}
	m.Sequences = append(m.Sequences, seq)
	return b[size:], nil
}

func (m *Message) parseQuery(b []byte) (err error) {
	if len(b) < 4 {
		return errors.New("no flags")
	}
	name, rest, _ := bytes.Cut(b[4:], []byte{0})
	if len(rest) < 8 {
		return errors.New("cut off after the collection's name")
	}
	database, ok := strings.CutSuffix(string(name), ".$cmd")
	if !ok || database == "" {
		return fmt.Errorf("legacy query on %q", name)
	}
	m.Legacy, m.Database = true, database
	m.Body, _, err = takeDocument(rest[8:], maxCommand)
	return err
}

func takeDocument(b []byte, limit int) (bson.Raw, []byte, error) {
	n, err := checkDocument(b, 0)
	if err == nil && n > limit {
		err = fmt.Errorf("document of %d bytes, at most %d", n, limit)
	}
	if err != nil {
		return nil, nil, err
	}
	return bson.Raw(b[:n:n]), b[n:], nil
}

// AppendReply appends the answer doc to the request m. A legacy request gets
// OP_REPLY, every other OP_MSG.
func AppendReply(dst []byte, m *Message, id int32, doc []byte) []byte {
	op := uint32(opMsg)
	between := make([]byte, 5) // no flags; section 0: body
	if m.Legacy {
		op = opReply
		between = make([]byte, 20) // flags, cursor (none), start, number of documents
		between[0], between[16] = awaitCapable, 1
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(headerSize+len(between)+len(doc)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(id))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(m.ID))
	dst = binary.LittleEndian.AppendUint32(dst, op)
	return append(append(dst, between...), doc...)
}
