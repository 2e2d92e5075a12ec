package query

import (
	"bufio"
	"compress/gzip"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// replayCase is a line of cases.jsonl.gz, see shared/mongodb/README.md.
type replayCase struct {
	ID      int32           `bson:"id"`
	Kind    string          `bson:"kind"`
	Docs    []bson.Raw      `bson:"docs"`
	Command bson.Raw        `bson:"command"`
	Indexes []bson.Raw      `bson:"indexes"`
	Ordered bool            `bson:"ordered"`
	Reply   bson.Raw        `bson:"reply"`
	Error   *replayError    `bson:"error"`
	After   []bson.RawValue `bson:"after"`
	Mask    bool            `bson:"mask"`
}

type replayError struct {
	Code int32 `bson:"code"`
}

// TestRecordedAnswersOfMongoDB replays the record over plain slices of
// documents: no server, no indexes but unique ones. What differs fails; what
// is refused (238) is counted.
func TestRecordedAnswersOfMongoDB(t *testing.T) {
	f, err := os.Open("../testdata/cases.jsonl.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	lines := bufio.NewReader(z)
	same, refused, different := 0, map[string]int{}, 0
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		var c replayCase
		require.NoError(t, bson.UnmarshalExtJSON(line, true, &c))
		got, want := c.run(), c.want()
		switch {
		case strings.HasPrefix(got, "refused"):
			refused[got]++
		case got == want:
			same++
		default:
			different++
			if different <= 20 {
				t.Errorf("case %d: %s\n got: %s\nwant: %s\ndocs: %v", c.ID, c.Command, got, want, c.Docs)
			}
		}
	}
	require.Zero(t, different)
	require.GreaterOrEqual(t, same, 4900)
	t.Logf("same %d, different %d, refused %v", same, different, refused)
}
