package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// FuzzWire: whatever the bytes, Read ends without a panic, and what it returns is
// well formed.
func FuzzWire(f *testing.F) {
	body, err := bson.Marshal(bson.D{{Key: "insert", Value: "c"}, {Key: "$db", Value: "t"}})
	require.NoError(f, err)
	msg := AppendReply(nil, &Message{}, 1, body)
	f.Add(msg)
	section := append([]byte{1, byte(4 + 5 + len(body)), 0, 0, 0}, append([]byte("docs\x00"), body...)...)
	withSection := append(bytes.Clone(msg), section...)
	withSection[0] = byte(len(withSection))
	f.Add(withSection)
	query := append([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xd4, 7, 0, 0, 0, 0, 0, 0}, "admin.$cmd\x00\x00\x00\x00\x00\x01\x00\x00\x00"...)
	query = append(query, body...)
	query[0] = byte(len(query))
	f.Add(query)
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			m, err := Read(r)
			if err != nil && m != nil {
				require.ErrorIs(t, err, ErrMalformed)
				continue
			}
			if err != nil {
				require.True(t, errors.Is(err, ErrMalformed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF), "%v", err)
				return
			}
			require.NoError(t, m.Body.Validate())
			for _, s := range m.Sequences {
				for _, doc := range s.Docs {
					require.NoError(t, doc.Validate())
				}
			}
		}
	})
}
