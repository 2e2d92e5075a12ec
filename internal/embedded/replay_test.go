package embedded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/embedded/mongoerr"
	"github.com/mscheduler/mscheduler/internal/embedded/value"
)

// recordedCase is a line of testdata/cases.jsonl.gz: a command and what MongoDB
// 5.0.7 answered.
type recordedCase struct {
	ID      int32      `bson:"id"`
	Docs    []bson.Raw `bson:"docs"`
	Indexes []bson.Raw `bson:"indexes"`
	Command bson.Raw   `bson:"command"`
	Ordered bool       `bson:"ordered"`
	Reply   bson.Raw   `bson:"reply"`
	Error   bson.Raw   `bson:"error"`
	After   []bson.Raw `bson:"after"`
	Mask    bool       `bson:"mask"`
	Watch   bool       `bson:"watch"`
	Events  []bson.Raw `bson:"events"`
}

// TestRecordedAnswersOfMongoDB replays the record through the driver: the same
// answer, the same documents afterwards, the same events; or a refusal.
func TestRecordedAnswersOfMongoDB(t *testing.T) {
	client := connect(t, start(t, Options{}))
	same, total, refused := 0, 0, map[string]int{}
	for _, c := range recordedCases(t) {
		c.Watch = c.Watch && !c.Mask // the record has no events of masked cases
		total++
		got, refusal := c.replay(t, client)
		switch want := c.want(); {
		case refusal != "":
			refused[refusal]++
		case got == want:
			same++
		default:
			t.Errorf("case %d: %s\nindexes: %v\n got: %s\nwant: %s", c.ID, c.Command, c.Indexes, got, want)
		}
	}
	different := total
	different -= same
	for _, n := range refused {
		different -= n
	}
	t.Logf("%d recorded answers: %.2f %% the same, %d different, refused: %v", total, 100*float64(same)/float64(total), different, refused)
	require.GreaterOrEqual(t, same*100, total*97, "less than 97 %% the same")
}

// replay runs the case in a database of its own and renders what came of it.
func (c *recordedCase) replay(t *testing.T, client *mongo.Client) (got, refusal string) {
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
	var lines []string
	reply, err := runRaw(ctx, db, c.Command)
	switch {
	case err != nil:
		if err.Code == mongoerr.NotImplementedCode {
			return "", err.Message
		}
		lines = []string{fmt.Sprintf("error %d %s", err.Code, err.Name)}
	default:
		if lines, refusal = c.renderReply(reply); refusal != "" {
			return "", refusal
		}
	}
	if c.After != nil {
		cur, err := db.Collection("c").Find(ctx, bson.D{}, findByID())
		require.NoError(t, err)
		var docs []bson.Raw
		require.NoError(t, cur.All(ctx, &docs))
		lines = append(lines, "after "+c.renderDocs(docs))
	}
	if c.Watch {
		_, err := db.Collection("end").InsertOne(ctx, bson.D{})
		require.NoError(t, err)
		for stream.Next(ctx) {
			coll, _ := stream.Current.Lookup("ns", "coll").StringValueOK()
			if coll == "end" {
				break
			}
			lines = append(lines, c.renderEvent(stream.Current))
		}
		require.NoError(t, stream.Err())
	}
	return strings.Join(lines, "\n      "), ""
}

// want renders the recorded answer.
func (c *recordedCase) want() string {
	var lines []string
	if c.Error != nil {
		lines = []string{fmt.Sprintf("error %d %s", c.Error.Lookup("code").Int32(), c.Error.Lookup("codeName").StringValue())}
	} else {
		lines, _ = c.renderReply(c.Reply)
	}
	if c.After != nil {
		lines = append(lines, "after "+c.renderDocs(c.After))
	}
	for _, e := range c.Events {
		lines = append(lines, c.renderEvent(e))
	}
	return strings.Join(lines, "\n      ")
}

// runRaw returns the whole answer: the driver turns write errors into Go errors.
func runRaw(ctx context.Context, db *mongo.Database, cmd any) (bson.Raw, *mongo.CommandError) {
	raw, err := db.RunCommand(ctx, cmd).Raw()
	var write mongo.WriteException
	var bulk mongo.BulkWriteException
	var command mongo.CommandError
	switch {
	case err == nil:
		return raw, nil
	case errors.As(err, &write):
		return write.Raw, nil
	case errors.As(err, &bulk):
		return bulk.WriteErrors[0].Raw, nil
	case errors.As(err, &command):
		return nil, &command
	}
	return nil, &mongo.CommandError{Name: err.Error()}
}

// renderReply renders what counts of an answer, recorded or fresh.
func (c *recordedCase) renderReply(reply bson.Raw) (lines []string, refusal string) {
	if cursor, err := reply.LookupErr("cursor"); err == nil {
		values, _ := cursor.Document().Lookup("firstBatch").Array().Values()
		return []string{"documents " + c.renderList(values)}, ""
	}
	for _, name := range []string{"n", "nModified", "upserted", "lastErrorObject", "value", "documents", "values"} {
		v, err := reply.LookupErr(name)
		if err != nil {
			continue
		}
		switch name {
		case "documents", "values":
			list, _ := v.Array().Values()
			lines = append(lines, name+" "+c.renderList(list))
		default:
			lines = append(lines, name+" "+c.render(v))
		}
	}
	if v, err := reply.LookupErr("writeErrors"); err == nil {
		list, _ := v.Array().Values()
		for _, e := range list {
			code := e.Document().Lookup("code").Int32()
			if code == mongoerr.NotImplementedCode {
				return nil, e.Document().Lookup("errmsg").StringValue()
			}
			lines = append(lines, fmt.Sprintf("writeError %d %d", e.Document().Lookup("index").Int32(), code))
		}
	}
	return lines, ""
}

func (c *recordedCase) renderList(values []bson.RawValue) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = c.render(v)
	}
	if !c.Ordered {
		slices.Sort(out)
	}
	return strings.Join(out, " ")
}

func (c *recordedCase) renderDocs(docs []bson.Raw) string {
	out := make([]string, len(docs))
	for i, doc := range docs {
		out[i] = c.render(value.Document(doc))
	}
	return strings.Join(out, " ")
}

// render is the value with its types; the server's time is masked, as in the
// record.
func (c *recordedCase) render(v bson.RawValue) string {
	if c.Mask && v.Type == bson.TypeEmbeddedDocument {
		at, doc := value.Begin(nil)
		for it := value.NewIter(v.Value); it.Next(); {
			e := it.Value
			switch {
			case string(it.Key) == "new" && e.Type == bson.TypeDateTime:
				e = value.String("<bson.DateTime>")
			case string(it.Key) == "new" && e.Type == bson.TypeTimestamp:
				e = value.String("<bson.Timestamp>")
			}
			doc = value.AppendElement(doc, string(it.Key), e)
		}
		v = value.Document(value.End(doc, at))
	}
	return v.String()
}

func (c *recordedCase) renderEvent(e bson.Raw) string {
	kind := e.Lookup("operationType").StringValue()
	line := "event " + kind + " " + e.Lookup("documentKey").String()
	if doc, err := e.LookupErr("fullDocument"); err == nil {
		line += " " + c.render(doc)
	}
	var changed []string
	if list, err := e.LookupErr("changed"); err == nil {
		values, _ := list.Array().Values()
		for _, v := range values {
			changed = append(changed, v.StringValue())
		}
	}
	if d, err := e.LookupErr("updateDescription"); err == nil {
		changed = changedTops(d.Document())
	}
	slices.Sort(changed)
	return line + " " + strings.Join(slices.Compact(changed), ",")
}

// changedTops returns the top-level fields an updateDescription names.
func changedTops(d bson.Raw) (names []string) {
	add := func(path string) {
		head, _, _ := strings.Cut(path, ".")
		names = append(names, head)
	}
	for it := value.NewIter(d.Lookup("updatedFields").Value); it.Next(); {
		add(string(it.Key))
	}
	for it := value.NewIter(d.Lookup("removedFields").Value); it.Next(); {
		add(it.Value.StringValue())
	}
	for it := value.NewIter(d.Lookup("truncatedArrays").Value); it.Next(); {
		add(it.Value.Document().Lookup("field").StringValue())
	}
	return names
}
