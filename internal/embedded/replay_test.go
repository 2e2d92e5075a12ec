package embedded

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/mql/mongoerr"
	"github.com/mscheduler/mscheduler/internal/mql/value"
)

// RecordedCase is a line of testdata/cases.jsonl.gz: a command and what MongoDB
// 5.0.7 answered. It is exported, like what else is here, for the comparison with
// another engine.
type RecordedCase struct {
	ID      int32      `bson:"id"`
	Docs    []bson.Raw `bson:"docs"`
	Indexes []bson.Raw `bson:"indexes"`
	Command bson.Raw   `bson:"command"`
	Ordered bool       `bson:"ordered"`
	Reply   bson.Raw   `bson:"reply"`
	Error   bson.Raw   `bson:"error"`
	After   []bson.Raw `bson:"after"`
	Mask    bool       `bson:"mask"` // the server's time stands in "new"
	Watch   bool       `bson:"watch"`
	Events  []bson.Raw `bson:"events"`
}

// RecordedCases reads the record.
func RecordedCases(t testing.TB) (list []RecordedCase) {
	f, err := os.Open("testdata/cases.jsonl.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c RecordedCase
		require.NoError(t, bson.UnmarshalExtJSON(lines.Bytes(), true, &c))
		list = append(list, c)
	}
	require.NoError(t, lines.Err())
	return list
}

// EnvInt is the number in an environment variable, or missing.
func EnvInt(name string, missing int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return missing
}

// TestRecordedAnswersOfMongoDB replays the record through the driver: the same
// answer, the same documents afterwards, the same events; or a refusal.
func TestRecordedAnswersOfMongoDB(t *testing.T) {
	if testing.Short() {
		t.Skip("its requests come one after the other: make scenarios runs it without the race detector")
	}
	client := connect(t, start(t, Options{}))
	cases, same, different, refused := RecordedCases(t), 0, 0, map[string]int{}
	for _, c := range cases {
		c.Watch = c.Watch && !c.Mask // the record has no events of masked cases
		got, refusal := c.replay(t, client)
		want := c.text(c.Reply, c.Error, c.After, c.Events)
		switch {
		case refusal != "":
			refused[refusal]++
		case got == want:
			same++
		default:
			different++
			t.Errorf("case %d: %s\nindexes: %v\n got: %s\nwant: %s", c.ID, c.Command, c.Indexes, got, want)
		}
	}
	t.Logf("%d recorded answers: %.2f %% the same, %d different, refused: %v",
		len(cases), 100*float64(same)/float64(len(cases)), different, refused)
	require.GreaterOrEqual(t, same*100, len(cases)*97, "less than 97 %% the same")
}

// replay runs the case in a database of its own and renders what came of it.
func (c *RecordedCase) replay(t *testing.T, client *mongo.Client) (got, refusal string) {
	ctx := t.Context()
	db := client.Database(fmt.Sprintf("case%d", c.ID))
	defer func() { require.NoError(t, db.Drop(ctx)) }()
	if len(c.Indexes) > 0 {
		require.NoError(t, db.RunCommand(ctx, bson.D{{Key: "createIndexes", Value: "c"}, {Key: "indexes", Value: c.Indexes}}).Err())
	}
	if len(c.Docs) > 0 {
		require.NoError(t, db.RunCommand(ctx, bson.D{{Key: "insert", Value: "c"}, {Key: "documents", Value: c.Docs}}).Err())
	}
	var stream *mongo.ChangeStream
	if c.Watch {
		var err error
		stream, err = db.Watch(ctx, mongo.Pipeline{})
		require.NoError(t, err)
		defer stream.Close(ctx)
	}
	reply, failed := RunRaw(ctx, db, c.Command)
	var failure bson.Raw
	if failed != nil {
		failure = newDoc().int32("code", int(failed.Code)).string("codeName", failed.Name).end()
		if failed.Code == mongoerr.NotImplementedCode {
			return "", failed.Message
		}
	}
	if first, err := reply.LookupErr("writeErrors", "0"); err == nil && first.Document().Lookup("code").Int32() == mongoerr.NotImplementedCode {
		return "", first.Document().Lookup("errmsg").StringValue()
	}
	var after, events []bson.Raw
	if c.After != nil {
		cur, err := db.Collection("c").Find(ctx, bson.D{}, findByID())
		require.NoError(t, err)
		require.NoError(t, cur.All(ctx, &after))
	}
	if c.Watch {
		_, err := db.Collection("end").InsertOne(ctx, bson.D{})
		require.NoError(t, err)
		for stream.Next(ctx) && stream.Current.Lookup("ns", "coll").StringValue() != "end" {
			events = append(events, slices.Clone(stream.Current))
		}
		require.NoError(t, stream.Err())
	}
	return c.text(reply, failure, after, events), ""
}

// masked is the server's time, as the record masks it.
var masked = regexp.MustCompile(`"new": \{"\$(date|timestamp)":\{[^}]*\}\}`)

// text renders what came of the command, recorded or fresh.
func (c *RecordedCase) text(reply, failed bson.Raw, after, events []bson.Raw) string {
	var lines []string
	if failed != nil {
		lines = []string{fmt.Sprintf("error %d %s", failed.Lookup("code").Int32(), failed.Lookup("codeName").StringValue())}
	} else {
		lines = RenderReply(reply, c.Ordered)
	}
	for _, doc := range after {
		lines = append(lines, "after "+value.Document(doc).String())
	}
	for _, e := range events {
		lines = append(lines, renderEvent(e))
	}
	text := strings.Join(lines, "\n      ")
	if c.Mask {
		text = masked.ReplaceAllStringFunc(text, func(s string) string {
			if strings.Contains(s, "$date") {
				return `"new": "\u003cbson.DateTime\u003e"`
			}
			return `"new": "\u003cbson.Timestamp\u003e"`
		})
	}
	return text
}

// RunRaw returns the whole answer: the driver turns write errors into Go errors.
func RunRaw(ctx context.Context, db *mongo.Database, cmd any) (bson.Raw, *mongo.CommandError) {
	raw, err := db.RunCommand(ctx, cmd).Raw()
	var write mongo.WriteException
	var command mongo.CommandError
	switch {
	case err == nil:
		return raw, nil
	case errors.As(err, &write):
		return write.Raw, nil
	case errors.As(err, &command):
		return nil, &command
	}
	return nil, &mongo.CommandError{Name: err.Error()}
}

// RenderReply renders what counts of an answer, a line for each document.
func RenderReply(reply bson.Raw, ordered bool) (lines []string) {
	for _, path := range [][]string{{"n"}, {"nModified"}, {"upserted"}, {"lastErrorObject"}, {"value"},
		{"documents"}, {"values"}, {"cursor", "firstBatch"}} { // the record has documents, also for a batch
		v, err := reply.LookupErr(path...)
		if err != nil {
			continue
		}
		list, ok := v.ArrayOK()
		if !ok || path[0] == "upserted" {
			lines = append(lines, path[0]+" "+v.String())
			continue
		}
		values, _ := list.Values()
		texts := make([]string, len(values))
		for i, v := range values {
			texts[i] = strings.Replace(path[len(path)-1], "firstBatch", "documents", 1) + " " + v.String()
		}
		if !ordered {
			slices.Sort(texts)
		}
		lines = append(lines, texts...)
	}
	if v, err := reply.LookupErr("writeErrors"); err == nil {
		list, _ := v.Array().Values()
		for _, e := range list {
			lines = append(lines, fmt.Sprintf("writeError %d %d", e.Document().Lookup("index").AsInt64(), e.Document().Lookup("code").AsInt64()))
		}
	}
	return lines
}

func renderEvent(e bson.Raw) string {
	line := "event " + e.Lookup("operationType").StringValue() + " " + e.Lookup("documentKey").String()
	if doc, err := e.LookupErr("fullDocument"); err == nil {
		line += " " + doc.String()
	}
	changed := map[string]bool{} // top-level fields
	add := func(path string) {
		head, _, _ := strings.Cut(path, ".")
		changed[head] = true
	}
	for it := value.NewIter(e.Lookup("changed").Value); it.Next(); { // in the record
		add(it.Value.StringValue())
	}
	if d, err := e.LookupErr("updateDescription"); err == nil {
		for it := value.NewIter(d.Document().Lookup("updatedFields").Value); it.Next(); {
			add(string(it.Key))
		}
		for it := value.NewIter(d.Document().Lookup("removedFields").Value); it.Next(); {
			add(it.Value.StringValue())
		}
		for it := value.NewIter(d.Document().Lookup("truncatedArrays").Value); it.Next(); {
			add(it.Value.Document().Lookup("field").StringValue())
		}
	}
	return line + " " + strings.Join(slices.Sorted(maps.Keys(changed)), ",")
}
