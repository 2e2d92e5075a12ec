package cli

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"

	"github.com/mscheduler/mscheduler/internal/doctor"
	"github.com/mscheduler/mscheduler/internal/store"
)

func TestWithoutADatabaseBothWaysAreNamed(t *testing.T) {
	s := newSession(t)
	s.uri = ""
	for _, args := range [][]string{{"task", "list"}, {"send", "t"}, {"work"}, {"doctor"}, {"db", "status"}} {
		s.fails(ExitUsage, []string{"no database", "--uri", "MSCHEDULER_MONGODB_URI", "mscheduler dev"}, args...)
	}
}

func TestStaleAddressFileIsNotUsed(t *testing.T) {
	s := newSession(t)
	f := devFile{URI: s.uri, Database: s.database, PID: 1, Server: "another run", Started: time.Now()}
	require.NoError(t, f.write(s.dir))
	s.uri = ""
	s.fails(ExitUsage, []string{"no database", "is no longer running", "pid 1"}, "task", "list")

	require.NoError(t, os.WriteFile(filepath.Join(s.dir, devFileName), []byte("{"), 0o600))
	s.fails(ExitUsage, []string{"was not written by mscheduler dev"}, "task", "list")
}

// closedPort is an address at which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().String()
}

func TestDatabaseThatDoesNotAnswerIsExit4(t *testing.T) {
	t.Parallel() // it mostly waits
	s := newSession(t)
	addr := closedPort(t)
	uri := "mongodb://user:hidden@" + addr + "/?serverSelectionTimeoutMS=200"
	r := s.fails(ExitUnreachable, []string{"the database does not answer: " + addr, "connection refused"}, "task", "list", "--uri", uri)
	require.NotContains(t, r.stderr, "hidden")
	require.NotContains(t, r.stderr, "check also")
	s.fails(ExitUnreachable, []string{addr + " (check also tls=true and replicaSet=rs1 in the URI)"}, "task", "list", "--uri", uri+"&tls=true&replicaSet=rs1")
	require.Equal(t, 1, strings.Count(r.stderr, "\n"), "one line: %s", r.stderr)

	var d struct {
		OK     bool
		Checks []doctor.Finding
	}
	r = s.run("doctor", "-o", "json", "--uri", uri)
	require.Equal(t, ExitUnreachable, r.code)
	r.json(&d)
	require.False(t, d.OK)
	require.Equal(t, "fail", d.Checks[0].State)
	require.NotContains(t, r.stdout, "hidden")
}

// The name server is asked while the URI is read. No server is asked about this name, which has an empty label.
func TestANameThatDoesNotResolveIsADatabaseThatDoesNotAnswer(t *testing.T) {
	s := newSession(t)
	uri := "mongodb+srv://user:hidden@db..invalid/app"
	for _, args := range [][]string{{"task", "list"}, {"work", "--check-config"}, {"doctor"}} {
		r := s.run(append(args, "--uri", uri)...)
		require.Equal(t, ExitUnreachable, r.code, r.stderr)
		require.Contains(t, r.stdout+r.stderr, "the database does not answer: lookup _mongodb._tcp.db..invalid")
		require.NotContains(t, r.stdout+r.stderr, "hidden")
	}
	require.Contains(t, s.run("doctor", "--uri", uri).stdout, "fail  connection")
}

func TestACommandThatIsInterruptedWhileItConnectsIsExit130(t *testing.T) {
	s := newSession(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	called, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			select {
			case called <- struct{}{}:
			default:
			}
		}
	}()
	for _, args := range [][]string{{"task", "list"}, {"send", "t"}, {"doctor"}} {
		_, _, stop := s.start(append(args, "--uri", "mongodb://"+l.Addr().String())...)
		<-called
		r := stop()
		require.Equal(t, ExitInterrupted, r.code, r.stdout+r.stderr)
		require.Contains(t, r.stderr, "mscheduler: interrupted\n")
	}
	require.NoError(t, l.Close())
	<-done
}

func TestDatabaseNameComesFromTheFlagThenTheURI(t *testing.T) {
	a := &app{}
	target, err := a.targetOf("mongodb://u:p@h1,h2:27018/orders?authSource=admin&replicaSet=rs", "--uri")
	require.NoError(t, err)
	require.Equal(t, "orders on h1,h2:27018", target.String())
	a.flags.database = "other"
	target, err = a.targetOf("mongodb://h1/orders", "--uri")
	require.NoError(t, err)
	require.Equal(t, "other", target.database)
	a.flags.database = ""
	target, err = a.targetOf("mongodb://h1", "--uri")
	require.NoError(t, err)
	require.Equal(t, "mscheduler", target.database)
}

// Many write /admin for the database in which the user is stored.
func TestDatabasesOfMongoDBAreRefused(t *testing.T) {
	for _, name := range []string{"admin", "local", "config"} {
		a := &app{}
		_, err := a.targetOf("mongodb://root:pw@h1/"+name, "--uri")
		require.ErrorContains(t, err, "the database in --uri is "+name+", where MongoDB keeps its own data: pass --database, or write /DATABASE?authSource="+name)
		a.flags.database = "tasks"
		_, err = a.targetOf("mongodb://root:pw@h1/"+name, "--uri")
		require.NoError(t, err)
		a.flags.database = name
		_, err = a.targetOf("mongodb://h1/tasks", "--uri")
		require.ErrorContains(t, err, "is "+name+", where MongoDB")
		client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
		require.NoError(t, err)
		_, err = store.Open(store.Config{Database: client.Database(name)})
		require.ErrorContains(t, err, "database is "+name)
		require.NoError(t, client.Disconnect(t.Context()))
	}
}

func TestSuspectsOfAHostedClusterAreNotItsOptions(t *testing.T) {
	require.Contains(t, suspectsOf(&connstring.ConnString{Scheme: connstring.SchemeMongoDBSRV, SSL: true, ReplicaSet: "atlas-0"}), "access list")
}

func TestPasswordInABadURIIsNotRepeated(t *testing.T) {
	s := newSession(t)
	for _, uri := range []string{"mongodb://u:hidden@", "mongodb://u:hidden@h:port", "mongodb://u:hid/den@h", "u:hidden@h"} {
		r := s.fails(ExitUsage, []string{"--uri is not a MongoDB URI"}, "task", "list", "--uri", uri)
		require.NotContains(t, r.stderr, "hidden", uri)
	}
}

// A database that mscheduler never set up is not an empty one.
func TestCommandsThatReadRefuseADatabaseThatIsNotSetUp(t *testing.T) {
	s := newSession(t)
	for _, args := range [][]string{
		{"task", "list"}, {"task", "show", "t/k"}, {"task", "explain", "t/k"}, {"task", "wait", "t/k"},
		{"task", "cancel", "t/k"}, {"task", "retry", "--type", "t", "--yes"}, {"worker", "list"}, {"pause", "--all"}, {"resume", "t"},
	} {
		s.fails(ExitRefused, []string{s.database, "is not set up", "db migrate"}, args...)
	}
	r := s.run("db", "status")
	require.Equal(t, ExitRefused, r.code)
	require.Contains(t, r.stdout, "not set up")
	require.Empty(t, collections(t, s), "nothing was written by any of them")
}

func TestMigrateSetsUpAndSaysWhatItDid(t *testing.T) {
	s := newSession(t)
	require.Contains(t, s.ok("db", "migrate").stderr, "migrated from version 0 to 10")
	require.Contains(t, s.ok("db", "migrate").stderr, "nothing to do")
	require.Contains(t, s.ok("db", "status").stdout, "up to date")
	var st schemaView
	s.ok("db", "status", "-o", "json").json(&st)
	require.Equal(t, schemaView{Database: s.database, Version: 10, Wanted: 10, MinReader: 4, Missing: []string{}, Ready: true, State: "up to date"}, st)
	s.ok("task", "list")
}

// This release does not migrate the schema of a newer one.
func TestMigrateNamesOnlyWhatItMade(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	db := database(t, s)
	require.NoError(t, db.Collection("tasks").Indexes().DropOne(t.Context(), "lapse"))
	require.Contains(t, s.ok("db", "migrate").stderr, "made tasks.lapse")

	require.NoError(t, db.Collection("tasks").Indexes().DropOne(t.Context(), "lapse"))
	_, err := db.Collection("meta").UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "schema"}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "version", Value: 1}}}})
	require.NoError(t, err)
	r := s.run("db", "migrate")
	require.Equal(t, ExitRefused, r.code)
	require.NotContains(t, r.stderr, "made tasks.lapse")
	require.Contains(t, r.stderr, "made nothing")
	for _, args := range [][]string{{"db", "migrate"}, {"db", "status"}, {"doctor"}} {
		require.Contains(t, s.run(args...).stdout, "indexes are missing; run: mscheduler db migrate, with the newer release", args)
	}
	_, err = db.Collection("tasks").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "~"}})
	require.NoError(t, err)
	require.NoError(t, db.Collection("meta").FindOneAndUpdate(t.Context(), bson.D{{Key: "_id", Value: "schema"}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "version", Value: -1}}}}).Err())
	require.Contains(t, s.ok("db", "migrate").stderr, "made tasks.lapse, tasks.~")
}

func TestForeignAndNewerDatabasesAreRefused(t *testing.T) {
	s := newSession(t)
	db := database(t, s)
	_, err := db.Collection("tasks").InsertOne(t.Context(), bson.D{{Key: "_id", Value: 1}})
	require.NoError(t, err)
	s.fails(ExitRefused, []string{"that mscheduler did not create"}, "task", "list")
	s.fails(ExitRefused, []string{"did not write"}, "send", "t")
	s.ok("send", "t", "--prefix", "ms_") // beside it is room

	s2 := newSession(t)
	s2.ok("db", "migrate")
	_, err = database(t, s2).Collection("meta").UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "schema"}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: 11}, {Key: "min_reader", Value: 11}}}})
	require.NoError(t, err)
	s2.fails(ExitRefused, []string{"too new"}, "task", "list")
	s2.fails(ExitRefused, []string{"too new"}, "send", "t")
	s2.fails(ExitRefused, []string{"too new"}, "work")
}

func database(t *testing.T, s *session) *mongo.Database {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(s.uri))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) }) // the test's own has ended
	return client.Database(s.database)
}

func collections(t *testing.T, s *session) []string {
	t.Helper()
	names, err := database(t, s).ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	return names
}

func TestErrorsThatSayNothingNewAreShort(t *testing.T) {
	require.Equal(t, "a: b", firstSentence("a: b"))
	require.NotContains(t, errorText(errors.New("one\ntwo")), "\ntwo")
}

// The sentinel document of the tasks, which db migrate makes, appears in no command.
func TestADatabaseWithoutTasksShowsNone(t *testing.T) {
	s := newSession(t)
	require.Contains(t, s.ok("db", "migrate").stdout, "up to date")
	var list listed
	for _, args := range [][]string{{}, {"--history"}, {"--tenant", "-"}} {
		list = listed{}
		s.ok(append([]string{"task", "list", "-o", "json"}, args...)...).json(&list)
		require.Empty(t, list.Tasks, "%v", args)
	}
	require.Equal(t, "0 tasks moved to the history\n", s.ok("archive", "run").stdout)
	require.NotContains(t, s.ok("doctor").stdout, "~")
	for _, command := range []string{"show", "explain", "history", "cancel", "retry"} {
		r := s.run("task", command, "~")
		require.NotEqual(t, 0, r.code, command)
	}
	require.NotEqual(t, 0, s.run("send", "~").code)

	tasks := database(t, s).Collection("tasks")
	_, err := tasks.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "~"}})
	require.NoError(t, err)
	r := s.run("db", "status")
	require.Equal(t, ExitRefused, r.code)
	require.Contains(t, r.stdout, "the sentinel document of the tasks is missing; run: mscheduler db migrate")
	require.Contains(t, s.ok("db", "migrate").stderr, "made tasks.~")
	require.NoError(t, tasks.FindOne(t.Context(), bson.D{{Key: "_id", Value: "~"}}).Err())
}

// Before schema 3 there was no sentinel.
func TestMigrateBringsVersion2UpToDate(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	db := database(t, s)
	_, err := db.Collection("tasks").DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "~"}})
	require.NoError(t, err)
	_, err = db.Collection("meta").UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "schema"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: 2}}}})
	require.NoError(t, err)
	require.Contains(t, s.fails(ExitRefused, nil, "send", "t").stderr, "run: mscheduler db migrate")
	require.Contains(t, s.ok("db", "migrate").stderr, "migrated from version 2 to 10")
	require.NoError(t, db.Collection("tasks").FindOne(t.Context(), bson.D{{Key: "_id", Value: "~"}}).Err())
	s.ok("send", "t")
}

// Schema 3 kept permits in the collection slots, and seats and turns in the collection permits.
func TestMigrateMovesThePermitsOfVersion3(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	db := database(t, s)
	_, err := db.Collection("slots").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "run/t#0"}, {Key: "type", Value: "t"}, {Key: "key", Value: ""}})
	require.NoError(t, err)
	_, err = db.Collection("permits").InsertMany(t.Context(), []bson.D{
		{{Key: "_id", Value: "stream#1"}}, {{Key: "_id", Value: "stream/abc#0"}}, {{Key: "_id", Value: "job/archive"}},
		{{Key: "_id", Value: "run/t#1"}, {Key: "type", Value: "t"}, {Key: "key", Value: ""}}, // moved before an interruption
	})
	require.NoError(t, err)
	_, err = db.Collection("meta").UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "schema"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: 3}, {Key: "min_reader", Value: 2}}}})
	require.NoError(t, err)
	require.Contains(t, s.fails(ExitRefused, nil, "send", "t").stderr, "run: mscheduler db migrate")
	require.Contains(t, s.ok("db", "migrate").stderr, "migrated from version 3 to 10")
	var ids []string
	require.NoError(t, db.Collection("permits").Distinct(t.Context(), "_id", bson.D{}).Decode(&ids))
	require.ElementsMatch(t, []string{"run/t#0", "run/t#1"}, ids)
	left, err := db.ListCollectionNames(t.Context(), bson.D{{Key: "name", Value: "slots"}})
	require.NoError(t, err)
	require.Empty(t, left)
	s.ok("send", "t")
}
