package store

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
)

// logged is a past whose log can be read.
func logged(t *testing.T) (*past, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	s, err := Open(Config{Database: testdb.Patient(t), Logger: zerolog.New(&log)})
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	return &past{s, t}, &log
}

// set changes fields of a task by hand.
func (p *past) set(id string, fields bson.D) {
	p.t.Helper()
	res, err := p.tasks.UpdateByID(p.t.Context(), id, bson.D{d("$set", fields)})
	require.NoError(p.t, err)
	require.EqualValues(p.t, 1, res.MatchedCount)
}

func TestADocumentThatIsNoLifeKeepsNoOtherFromTheHistory(t *testing.T) {
	p, log := logged(t)
	var good []*model.Task
	for i := range 3 {
		good = append(good, p.ended(key(i), 8*day, model.Options{}, success(t, i)))
	}
	broken := map[string]func(doc bson.M){
		"no generation":        func(doc bson.M) { delete(doc, "generation") },
		"generation is a text": func(doc bson.M) { doc["generation"] = "7" },
		"no rev":               func(doc bson.M) { delete(doc, "rev") },
		"the id is empty":      func(doc bson.M) { doc["_id"] = "" },
		"the id is a number":   func(doc bson.M) { doc["_id"] = 7 },
		"the id is an object":  func(doc bson.M) { doc["_id"] = bson.NewObjectID() },
		"a number, and no end": func(doc bson.M) { doc["_id"] = 8; delete(doc, "finished_at") },
		"the id is a document": func(doc bson.M) { doc["_id"] = bson.M{"a": 1} },
		"of a later release":   func(doc bson.M) { doc["status"] = "Unknown" },
	}
	for name, harm := range broken {
		var doc bson.M
		require.NoError(t, p.tasks.FindOne(t.Context(), bson.D{d("_id", good[0].ID)}).Decode(&doc))
		doc["_id"] = name
		harm(doc)
		doc["archive_at"] = p.Clock.Now().Add(-30 * day) // the first of the batch
		_, err := p.tasks.InsertOne(t.Context(), doc)
		require.NoError(t, err)
	}
	a := p.archive()
	require.Equal(t, len(good), a.Moved)
	require.Equal(t, len(broken), a.PutOff)
	require.Equal(t, wanted(good...), p.kept())
	require.Zero(t, p.archive(), "for an hour")
	n, err := p.tasks.CountDocuments(t.Context(), bson.D{d("type", "t"), d("archive_at", bson.D{d("$gt", p.Clock.Now())})})
	require.NoError(t, err)
	require.EqualValues(t, len(broken), n)
	require.Equal(t, 7, strings.Count(log.String(), "cannot move to the history"), log.String())
	require.Contains(t, log.String(), `"id":"no generation"`)
}

// The database of a deployment may refuse a copy: an index or a validator of its owner, a size.
func TestACopyThatTheServerRefusesKeepsNoOtherFromTheHistory(t *testing.T) {
	p, log := logged(t)
	_, err := p.history.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: bson.D{d("args.a", 1), d("args.b", 1)}, Options: options.Index().SetName("owner")})
	require.NoError(t, err)
	lists := bson.D{d("args", bson.D{d("a", bson.A{1, 2}), d("b", bson.A{1, 2})})} // no index takes two lists
	var good []*model.Task
	for i := range 6 {
		good = append(good, p.ended(key(i), 8*day, model.Options{}, success(t, i)))
	}
	fresh, replaced := good[2], good[4]
	p.copyAll(p.read()[4:5]) // and dies
	good = append(append(good[:2:2], good[3]), good[5])
	for _, task := range []*model.Task{fresh, replaced} {
		p.set(task.ID, append(lists, d("rev", task.Rev+1)))
	}
	a := p.archive()
	require.Equal(t, len(good), a.Moved)
	require.Equal(t, 2, a.PutOff)
	require.Equal(t, wanted(append(good, replaced)...), p.kept(), "the older copy stays until the right one replaces it")
	require.True(t, p.there(fresh.ID))
	require.True(t, p.there(replaced.ID))
	require.Zero(t, p.archive(), "for an hour")
	require.Contains(t, log.String(), `"id":"`+fresh.ID+`"`)
	require.Contains(t, log.String(), `"id":"`+replaced.ID+`"`)

	require.NoError(t, p.history.Indexes().DropOne(t.Context(), "owner"))
	for _, task := range []*model.Task{fresh, replaced} {
		p.set(task.ID, bson.D{d("archive_at", p.Clock.Now().Add(-time.Second))})
	}
	require.Equal(t, 2, p.archive().Moved)
}

func TestATaskWhoseCopyWouldBeTooLargeKeepsNoOtherFromTheHistory(t *testing.T) {
	if testing.Short() {
		t.Skip("its size matters: make scenarios runs it without the race detector")
	}
	p, log := logged(t)
	large, good := p.ended("large", 9*day, model.Options{}, success(t, 1)), p.ended("good", 8*day, model.Options{}, success(t, 2))
	raw, err := p.Tasks.getRaw(t.Context(), large.ID)
	require.NoError(t, err)
	const name, most = "pad", 16 << 20
	p.set(large.ID, bson.D{d(name, strings.Repeat("x", most-len(raw)-len(name)-7))}) // type, name, length, two zeros
	a := p.archive()
	require.Equal(t, Archived{PutOff: 1, More: true, First: large.ArchiveAt, Last: large.ArchiveAt}, a)
	require.Equal(t, 1, p.archive().Moved)
	require.Equal(t, wanted(good), p.kept())
	require.Contains(t, log.String(), `"id":"`+large.ID+`"`)
}

// Who begins another life of such a task learns why it cannot.
func TestATaskWithoutAGenerationBeginsNoOtherLife(t *testing.T) {
	p := newPast(t)
	task := p.ended("k", 8*day, model.Options{}, success(t, 1))
	_, err := p.tasks.UpdateByID(t.Context(), task.ID, bson.D{d("$unset", bson.D{d("generation", "")})})
	require.NoError(t, err)
	_, _, err = p.Tasks.Change(t.Context(), task.ID, func(t *model.Task) (*model.Task, error) {
		after := *t
		after.Generation = 7
		return &after, nil
	})
	require.ErrorContains(t, err, "generation or rev is missing")
}
