package embedded

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/embedded/wire"
)

// TestScenarios runs testdata/scenarios: commands as clients send them, and what
// the server answers.
//
//	run [conn=NAME] [session=NAME] [txn=N] [start] [number=N] [save=NAME:PATH]
//
// sends each line of the input as a command on a connection (numbered as in a
// transaction or, with number, for a retry). save keeps a value of the last answer,
// which $NAME then stands for. Further: "send" is run without waiting for the
// answer, which "await" shows; "explain" shows the plan of each line; "expire" and
// "clock DURATION" let time pass; "hangup conn=NAME" and "restart" do what they say.
// Tokens, times and the ids of cursors are not shown.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		for _, file := range []string{"", filepath.Join(t.TempDir(), "db")} {
			if file == "" && strings.Contains(path, "file") {
				continue // it is about what a restart leaves
			}
			st := &stage{opt: Options{Path: file, LogBytes: 20_000, CursorBytes: 2_000, TTLInterval: -1}, saved: map[string]string{}}
			st.clock.now = time.Unix(1_700_000_000, 0)
			st.opt.Now = st.clock.Now
			st.start(t)
			datadriven.RunTest(t, path, st.do)
			st.close(t)
		}
	})
}

type stage struct {
	opt   Options
	clock testClock
	s     *Server
	conns map[string]net.Conn
	saved map[string]string
}

func (st *stage) start(t *testing.T) {
	var err error
	st.s, err = Start(st.opt)
	require.NoError(t, err)
	st.conns = map[string]net.Conn{}
}

func (st *stage) close(t *testing.T) {
	for _, nc := range st.conns {
		_ = nc.Close() // may be hung up
	}
	require.NoError(t, st.s.Close())
}

func (st *stage) do(t *testing.T, d *datadriven.TestData) string {
	var out strings.Builder
	for line := range strings.Lines(d.Input) {
		line = strings.TrimSpace(line)
		for name, v := range st.saved {
			line = strings.ReplaceAll(line, "\"$"+name+"\"", v)
		}
		var cmd bson.D
		require.NoError(t, bson.UnmarshalExtJSON([]byte(line), false, &cmd), "%s: %s", d.Pos, line)
		switch d.Cmd {
		case "explain":
			cmd = bson.D{{Key: "explain", Value: cmd}}
			e := explained(st.round(t, d, cmd))
			fmt.Fprintf(&out, "%s: keys %d, docs %d, returned %d\n", e.plan, e.keys, e.docs, e.returned)
		case "send":
			send(t, st.conn(t, d), st.numbered(t, d, cmd))
		default:
			out.WriteString(render(st.round(t, d, cmd)) + "\n")
		}
	}
	switch d.Cmd {
	case "run", "explain", "send":
	case "await":
		m, err := wire.Read(st.conn(t, d))
		require.NoError(t, err)
		return render(m.Body) + "\n"
	case "expire":
		n, err := st.s.expire(context.Background())
		require.NoError(t, err)
		return fmt.Sprintf("%d documents\n", n)
	case "clock":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		require.NoError(t, err)
		st.clock.Add(by)
		st.s.sessions.sweep()
		st.s.cursors.sweep(st.s.opt.CursorTimeout)
	case "hangup":
		require.NoError(t, st.conn(t, d).Close())
		delete(st.conns, arg(d, "conn", "main"))
		require.Eventually(t, func() bool { return len(st.s.liveConns()) == len(st.conns) }, patience, time.Millisecond)
	case "restart":
		st.close(t)
		st.start(t)
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
	return out.String()
}

func arg(d *datadriven.TestData, name, missing string) string {
	for _, a := range d.CmdArgs {
		if a.Key == name && len(a.Vals) == 1 {
			return a.Vals[0]
		}
	}
	return missing
}

func (st *stage) conn(t *testing.T, d *datadriven.TestData) net.Conn {
	name := arg(d, "conn", "main")
	if st.conns[name] == nil {
		nc, err := net.Dial("tcp", st.s.Addr())
		require.NoError(t, err)
		st.conns[name] = nc
	}
	return st.conns[name]
}

// numbered adds the session and the numbers that the directive asks for.
func (st *stage) numbered(t *testing.T, d *datadriven.TestData, cmd bson.D) bson.D {
	db := "test"
	if slices.Contains([]string{"commitTransaction", "abortTransaction", "listDatabases"}, cmd[0].Key) {
		db = "admin"
	}
	if !slices.ContainsFunc(cmd, func(e bson.E) bool { return e.Key == "$db" }) {
		cmd = append(cmd, bson.E{Key: "$db", Value: db})
	}
	if s := arg(d, "session", ""); s != "" {
		id := bson.Binary{Subtype: 4, Data: []byte(fmt.Sprintf("%-16s", s))}
		cmd = append(cmd, bson.E{Key: "lsid", Value: bson.D{{Key: "id", Value: id}}})
	}
	for _, name := range []string{"txn", "number"} {
		if n, err := strconv.ParseInt(arg(d, name, ""), 10, 64); err == nil {
			cmd = append(cmd, bson.E{Key: "txnNumber", Value: n})
			if name == "txn" {
				cmd = append(cmd, bson.E{Key: "autocommit", Value: false})
			}
		}
	}
	if d.HasArg("start") {
		cmd = append(cmd, bson.E{Key: "startTransaction", Value: true})
	}
	return cmd
}

func (st *stage) round(t *testing.T, d *datadriven.TestData, cmd bson.D) bson.Raw {
	reply := roundTrip(t, st.conn(t, d), st.numbered(t, d, cmd))
	if name, path, ok := strings.Cut(arg(d, "save", ""), ":"); ok {
		v, err := reply.LookupErr(strings.Split(path, ".")...)
		require.NoError(t, err, "%s: %s", d.Pos, reply)
		st.saved[name] = v.String()
	}
	return reply
}

var hidden = regexp.MustCompile(`,?"(ok|postBatchResumeToken|clusterTime|_id|codeName|ns)":` +
	`(1\.0|\{"_data":"[0-9a-f]+"\}|\{"\$timestamp":\{[^}]*\}\}|"[A-Z][A-Za-z0-9]+"|"test[.a-z$A-Z]*"|\{"db":"test"[^}]*\})`)

// render shows an answer without what differs from run to run.
func render(reply bson.Raw) string {
	var doc bson.D
	_ = bson.Unmarshal(reply, &doc) // what came over the wire is well formed
	doc = slices.DeleteFunc(doc, func(e bson.E) bool { return e.Key == "$clusterTime" || e.Key == "operationTime" })
	text, err := bson.MarshalExtJSON(doc, false, false)
	if err != nil {
		return err.Error()
	}
	s := hidden.ReplaceAllString(string(text), "")
	s = regexp.MustCompile(`"id":[1-9]\d*`).ReplaceAllString(s, `"id":"open"`)
	return strings.ReplaceAll(s, "{,", "{")
}

// planned is what the tests look at of an explain.
type planned struct {
	plan     string // stages from the outermost, and the index
	branches int
	keys     int
	docs     int
	returned int
}

func explained(reply bson.Raw) (p planned) {
	stage, err := reply.LookupErr("queryPlanner", "winningPlan")
	for err == nil {
		doc := stage.Document()
		p.plan += doc.Lookup("stage").StringValue() + " "
		if v, err := doc.LookupErr("indexName"); err == nil {
			p.plan += v.StringValue()
		}
		if v, e := doc.LookupErr("inputStages"); e == nil {
			list, _ := v.Array().Values()
			p.branches, stage = len(list), list[0]
			continue
		}
		stage, err = doc.LookupErr("inputStage")
	}
	p.plan = strings.TrimSpace(p.plan)
	stats, _ := reply.Lookup("executionStats").DocumentOK()
	number := func(name string) int { n, _ := stats.Lookup(name).AsInt64OK(); return int(n) }
	p.keys, p.docs, p.returned = number("totalKeysExamined"), number("totalDocsExamined"), number("nReturned")
	return p
}
