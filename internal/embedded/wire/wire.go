// Package wire reads and writes MongoDB's wire protocol: OP_MSG, and of the
// legacy messages only OP_QUERY, with which a driver says hello before it knows
// the server. It knows bytes and their limits, no command.
//
// Whatever Read returns without an error is well formed: lengths fit, documents
// end where they say, nesting is bounded. The packages above may walk the BSON
// without care.
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
	opReply = 1
	opQuery = 2004
	opMsg   = 2013

	headerSize = 16

	awaitCapable = 8 // flag of OP_REPLY

	flagChecksum   = 1 << 0
	flagMoreToCome = 1 << 1
	knownRequired  = flagChecksum | flagMoreToCome // of bits 0 to 15, which a server must understand
)

// ErrMalformed is in every error of Read that speaks of the message and not of
// the connection.
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
// messages, an error with ErrMalformed when it sent nonsense: with a message when
// that was an OP_MSG whose end is known, which can be answered and the next one
// read; without one, the stream cannot be trusted any more.
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
	in := &reader{b: body}
	op := binary.LittleEndian.Uint32(header[12:])
	switch op {
	case opMsg:
		m.parseMsg(in)
	case opQuery:
		m.parseQuery(in)
	default:
		in.check(false, "operation %d is not supported", op)
	}
	if in.err == nil {
		return m, nil
	}
	if op != opMsg {
		m = nil
	}
	return m, fmt.Errorf("%w: %w", ErrMalformed, in.err)
}

// readBody reads n bytes. Memory grows with what has arrived, not with what a
// header promised.
func readBody(r io.Reader, n int) ([]byte, error) {
	var buf bytes.Buffer
	buf.Grow(min(n, 64<<10) + bytes.MinRead)
	_, err := io.CopyN(&buf, r, int64(n))
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return buf.Bytes(), err
}

// reader takes a message apart. Its first error stays, and it gives zeros from then on.
type reader struct {
	b   []byte
	err error
}

func (r *reader) check(ok bool, format string, args ...any) {
	if !ok && r.err == nil {
		r.b, r.err = nil, fmt.Errorf(format, args...)
	}
}

func (r *reader) take(n int) []byte {
	if r.check(n >= 0 && n <= len(r.b), "%d bytes wanted, %d left", n, len(r.b)); r.err != nil {
		return nil
	}
	taken := r.b[:n:n]
	r.b = r.b[n:]
	return taken
}

func (r *reader) uint32() (n uint32) {
	if b := r.take(4); b != nil {
		n = binary.LittleEndian.Uint32(b)
	}
	return n
}

func (r *reader) cstring() string {
	s, rest, ok := bytes.Cut(r.b, []byte{0})
	r.b = rest
	r.check(ok, "a name without its end")
	return string(s)
}

func (r *reader) document(limit int) bson.Raw {
	n, err := checkDocument(r.b, 0)
	r.check(err == nil, "%w", err)
	r.check(n <= limit, "document of %d bytes, at most %d", n, limit)
	return r.take(n)
}

func (m *Message) parseMsg(r *reader) {
	flags := r.uint32()
	r.check(flags&0xffff&^knownRequired == 0, "unknown required flags in %#x", flags)
	m.NoReply = flags&flagMoreToCome != 0
	if flags&flagChecksum != 0 {
		// Read over a local, reliable connection: the sum is accepted unchecked.
		r.b = r.take(len(r.b) - 4)
	}
	for len(r.b) > 0 {
		switch kind := r.take(1)[0]; {
		case kind == 0 && m.Body == nil:
			m.Body = r.document(maxCommand)
		case kind == 1:
			section := &reader{b: r.take(int(int32(r.uint32())) - 4), err: r.err}
			seq := Sequence{Name: section.cstring()}
			for len(section.b) > 0 {
				// The limit of stored documents is the command's to check, with its own code.
				seq.Docs = append(seq.Docs, section.document(MaxMessage))
			}
			r.check(section.err == nil, "sequence: %w", section.err)
			m.Sequences = append(m.Sequences, seq)
		default:
			r.check(false, "section of unknown kind %d, or a second body", kind)
		}
	}
	r.check(m.Body != nil, "no body")
}

func (m *Message) parseQuery(r *reader) {
	r.uint32() // flags
	name := r.cstring()
	r.take(8) // what to skip and to return
	database, ok := strings.CutSuffix(name, ".$cmd")
	r.check(ok && database != "", "legacy query on %q", name)
	m.Legacy, m.Database = true, database
	m.Body = r.document(maxCommand)
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
