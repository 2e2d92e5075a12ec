package embedded_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/mscheduler/mscheduler/internal/clock"
	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/internal/engine"
)

// TestAnIndependentEngineAnswersTheSame sends the same random commands through
// the driver to this server and to secantusd, and compares answers and documents
// afterwards. Each difference must be one that differences_test.go explains.
// MSCHEDULER_FUZZ_COMMANDS asks for more, MSCHEDULER_FUZZ_SEED repeats a run.
//
// The commands, documents and indexes are those of the record of MongoDB's
// answers, each with the others' and one after the other, so that none of them
// has been recorded.
func TestAnIndependentEngineAnswersTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("it has one goroutine: make scenarios runs it without the race detector")
	}
	other, err := engine.Secantusd().Start(t.Context())
	var gone *engine.MissingError
	if errors.As(err, &gone) {
		t.Skipf("no engine to compare with: %v", gone)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) }) // after the clients are disconnected, who would wait for it
	ours, err := engine.Embedded(embedded.Options{}).Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ours.Close()) })
	a, b := engine.Connect(t, ours.URI), engine.Connect(t, other.URI)

	commands := embedded.EnvInt("MSCHEDULER_FUZZ_COMMANDS", 500)
	seed := uint64(1) // a normal run is always the same
	if os.Getenv("MSCHEDULER_FUZZ_COMMANDS") != "" {
		seed = uint64(embedded.EnvInt("MSCHEDULER_FUZZ_SEED", int(clock.System().Now().UnixNano()&0xffffff)))
	}
	t.Logf("seed %d, %d commands", seed, commands)
	cases := embedded.RecordedCases(t)
	same, explained := 0, map[string]int{}
	const perWorld = 25
	for n := uint64(0); int(n)*perWorld < commands; n++ {
		name := fmt.Sprintf("world%d", n)
		w := &world{Rand: rand.New(rand.NewPCG(seed, n)), cases: cases, ours: a.Database(name), theirs: b.Database(name)}
		w.run(t, perWorld, &same, explained)
		if t.Failed() && os.Getenv("EXPLORE") == "" {
			t.Fatalf("seed %d, world %d", seed, n)
		}
	}
	t.Logf("%d the same; explained: %v", same, explained)
	require.Greater(t, same, commands/2)
}

// world is a collection that both servers have.
type world struct {
	*rand.Rand
	cases        []embedded.RecordedCase
	ours, theirs *mongo.Database
	indexes      []bson.Raw
}

func (w *world) pick() embedded.RecordedCase { return w.cases[w.IntN(len(w.cases))] }

func (w *world) run(t *testing.T, commands int, same *int, explained map[string]int) {
	w.reset(t)
	for range commands {
		cmd := w.command(t)
		got, want := answer(t, w.ours, cmd), answer(t, w.theirs, cmd)
		writes := slices.Contains([]string{"insert", "update", "delete", "findAndModify"}, cmd[0].Key)
		if writes {
			got.after, want.after = w.documents(t, w.ours), w.documents(t, w.theirs)
		}
		if got.equal(want) {
			*same++
			continue
		}
		why := explain(cmd, got, want)
		if why == "" && !writes {
			scan := append(slices.Clone(cmd), bson.E{Key: "hint", Value: bson.D{{Key: "$natural", Value: 1}}})
			if got.equal(answer(t, w.theirs, scan)) {
				why = "secantusd finds it without its index"
			}
		}
		if why == "" {
			t.Errorf("%s\n indexes: %v\n ours:   %s\n theirs: %s", extJSON(cmd), w.indexes, got.without(want), want.without(got))
			why = "unexplained"
		}
		explained[why]++
		if writes && got.after != want.after {
			w.reset(t)
		}
	}
	var report struct{ Valid bool }
	require.NoError(t, w.ours.RunCommand(t.Context(), bson.D{{Key: "validate", Value: "c"}}).Decode(&report))
	require.True(t, report.Valid)
	require.NoError(t, w.ours.Drop(t.Context()))
	require.NoError(t, w.theirs.Drop(t.Context()))
}

// reset gives both servers the same documents and indexes, or others when one of
// them refuses some.
func (w *world) reset(t *testing.T) {
	docs := bson.A{}
	for len(docs) < 12 {
		for _, d := range w.pick().Docs {
			var doc bson.D
			require.NoError(t, bson.Unmarshal(d, &doc))
			doc[0].Value = len(docs)
			docs = append(docs, doc)
		}
	}
	w.indexes = w.pick().Indexes
	setUp := []bson.D{{{Key: "drop", Value: "c"}}, {{Key: "create", Value: "c"}},
		{{Key: "createIndexes", Value: "c"}, {Key: "indexes", Value: w.indexes}},
		{{Key: "insert", Value: "c"}, {Key: "documents", Value: docs}, {Key: "ordered", Value: false}}}
	for _, cmd := range setUp {
		got, want := answer(t, w.ours, cmd), answer(t, w.theirs, cmd)
		if cmd[0].Key == "insert" && got.text != want.text && explain(cmd, got, want) == "" {
			t.Errorf("set-up %s\n ours:   %s\n theirs: %s", extJSON(cmd), got, want)
		}
	}
	if w.documents(t, w.ours) != w.documents(t, w.theirs) {
		w.reset(t)
	}
}

func (w *world) documents(t *testing.T, db *mongo.Database) string {
	a := answer(t, db, bson.D{{Key: "find", Value: "c"}, {Key: "sort", Value: bson.D{{Key: "_id", Value: 1}}}})
	require.Zero(t, a.code, "%s", a)
	return a.text
}

// command returns a recorded one, changed so that its answer is defined whatever
// documents there are: what takes some of several has an order or names one.
func (w *world) command(t *testing.T) (cmd bson.D) {
	for {
		c := w.pick()
		cmd = nil
		require.NoError(t, bson.Unmarshal(c.Command, &cmd))
		has := func(name string) bool { return strings.Contains(extJSON(cmd), name) }
		if has("$currentDate") || has("$unwind") && (has("$limit") || has("$skip")) {
			continue // no two servers have the same time; some of several documents with one _id
		}
		break
	}
	id := bson.D{{Key: "_id", Value: w.IntN(14)}}
	byID := bson.D{{Key: "_id", Value: 1}}
	for i, e := range cmd {
		switch e.Key {
		case "pipeline":
			cmd[i].Value = append(bson.A{bson.D{{Key: "$sort", Value: byID}}}, e.Value.(bson.A)...)
		case "updates", "deletes":
			for _, s := range e.Value.(bson.A) {
				q := &s.(bson.D)[0]
				q.Value = bson.D{{Key: "$and", Value: bson.A{q.Value, id}}}
			}
		case "query":
			if cmd[0].Key == "findAndModify" {
				cmd[i].Value = bson.D{{Key: "$and", Value: bson.A{e.Value, id}}}
			}
		}
	}
	if cmd[0].Key == "find" && !strings.Contains(extJSON(cmd), `"sort":`) {
		cmd = append(cmd, bson.E{Key: "sort", Value: byID})
	}
	return cmd
}

// reply is what counts of an answer.
type reply struct {
	code    int32  // of the command, or of its first write error; 0 for none
	message string // of all errors
	text    string
	after   string // all documents after a write
}

func (r reply) equal(o reply) bool { return r.code == o.code && r.text == o.text && r.after == o.after }

func (r reply) String() string {
	s := r.text
	if r.code != 0 {
		s = fmt.Sprintf("error %d %s %s", r.code, r.message, r.text)
	}
	if r.after != "" {
		s += "\n         after: " + r.after
	}
	return s
}

// without is r less the lines that o has too.
func (r reply) without(o reply) reply {
	cut := func(text, other string) string {
		others := strings.Split(other, "\n")
		lines := slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return slices.Contains(others, l) })
		return strings.Join(lines, "\n")
	}
	r.text, r.after = cut(r.text, o.text), cut(r.after, o.after)
	return r
}

func answer(t *testing.T, db *mongo.Database, cmd bson.D) (r reply) {
	raw, failed := embedded.RunRaw(t.Context(), db, cmd)
	if failed != nil {
		return reply{code: failed.Code, message: failed.Message}
	}
	if list, err := raw.LookupErr("writeErrors"); err == nil {
		all, _ := list.Array().Values()
		r.code = int32(all[0].Document().Lookup("code").AsInt64())
		for _, e := range all {
			r.message += e.Document().Lookup("errmsg").StringValue() + "; "
		}
	}
	sorted := strings.Contains(extJSON(cmd), `sort"`) && !strings.Contains(extJSON(cmd), `"$group"`)
	r.text = strings.Join(embedded.RenderReply(raw, sorted), "\n         ")
	return r
}

func extJSON(v any) string {
	b, err := bson.MarshalExtJSON(v, true, false)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
