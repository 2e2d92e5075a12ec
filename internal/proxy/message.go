package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	headerSize = 16
	maxMessage = 48_000_000

	opReply = 1
	opQuery = 2004
	opMsg   = 2013

	moreToCome = 1 << 1
)

// message is one message of the wire protocol, whole.
type message []byte

func readMessage(r io.Reader) (message, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	n := int(int32(binary.LittleEndian.Uint32(header[:])))
	if n < headerSize || n > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	m := make(message, n)
	copy(m, header[:])
	_, err := io.ReadFull(r, m[headerSize:])
	return m, err
}

func (m message) op() uint32 { return binary.LittleEndian.Uint32(m[12:]) }

// open says whether the other side need not answer (a request), or sends more (a reply).
func (m message) open() bool {
	return m.op() == opMsg && len(m) >= headerSize+4 && binary.LittleEndian.Uint32(m[headerSize:])&moreToCome != 0
}

// body finds the message's first document: the command or the answer.
func (m message) body() (at int, doc bson.Raw, err error) {
	switch m.op() {
	case opMsg:
		at = headerSize + 4 + 1 // flags, kind of the first section
	case opReply:
		at = headerSize + 20
	case opQuery:
		name := bytes.IndexByte(m[min(headerSize+4, len(m)):], 0)
		if name < 0 {
			return 0, nil, errors.New("a query without a namespace")
		}
		at = headerSize + 4 + name + 1 + 8
	default:
		return 0, nil, fmt.Errorf("operation %d", m.op())
	}
	if at+4 > len(m) {
		return 0, nil, errors.New("no document")
	}
	n := int(int32(binary.LittleEndian.Uint32(m[at:])))
	if n < 5 || at+n > len(m) {
		return 0, nil, errors.New("a document that does not end within its message")
	}
	return at, bson.Raw(m[at : at+n]), nil
}

// withBody is the message with its first document replaced.
func (m message) withBody(doc bson.Raw) message {
	at, old, err := m.body()
	if err != nil {
		return m
	}
	out := append(message{}, m[:at]...)
	out = append(append(out, doc...), m[at+len(old):]...)
	binary.LittleEndian.PutUint32(out, uint32(len(out)))
	return out
}

// answered is the answer to a request that has that document.
func (m message) answered(doc bson.Raw) message {
	out := make(message, headerSize+5, headerSize+5+len(doc)) // no flags, and one section of the kind 0
	copy(out[8:12], m[4:8])                                   // the request that it answers
	binary.LittleEndian.PutUint32(out[12:], opMsg)
	out = append(out, doc...)
	binary.LittleEndian.PutUint32(out, uint32(len(out)))
	return out
}

// prolong replaces the time limit of a command that has one. That of a getMore is how long a change stream waits for
// events, and stays.
func (m message) prolong(limit time.Duration) {
	_, doc, err := m.body()
	if err != nil || doc.Lookup("getMore").Type != 0 {
		return
	}
	switch v := doc.Lookup("maxTimeMS"); v.Type { // its value is part of the message
	case bson.TypeInt32:
		binary.LittleEndian.PutUint32(v.Value, uint32(limit.Milliseconds()))
	case bson.TypeInt64:
		binary.LittleEndian.PutUint64(v.Value, uint64(limit.Milliseconds()))
	}
}

// command is the name of the command in a request and the collection it is for.
func (m message) command() (name, collection string) {
	_, doc, err := m.body()
	if err != nil {
		return "", ""
	}
	first, err := doc.IndexErr(0)
	if err != nil {
		return "", ""
	}
	collection, _ = first.Value().StringValueOK()
	if first.Key() == "getMore" {
		collection, _ = doc.Lookup("collection").StringValueOK()
	}
	return first.Key(), collection
}
