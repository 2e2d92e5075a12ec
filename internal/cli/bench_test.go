package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// databasesOf lists what is on the session's server.
func (s *session) databasesOf() []string {
	s.t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(s.uri))
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, client.Disconnect(context.Background())) }()
	names, err := client.ListDatabaseNames(s.t.Context(), bson.D{})
	require.NoError(s.t, err)
	return names
}

func TestBenchPrintsOneObjectForEachPart(t *testing.T) {
	s := newSession(t)
	r := s.ok("bench", "preloaded", "send", "--tasks", "50", "-o", "json")
	var names []string
	for line := range strings.Lines(r.stdout) {
		var fields map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte(line), &fields), line)
		require.Len(t, fields, 20, line)
		for _, f := range []string{
			"scenario", "engine", "tasks", "processes", "concurrency", "partial", "tasks_per_second", "raw_per_second", "ratio",
			"round_trips_per_task", "claims_attempted_per_won", "latency_ms", "commands",
			"finds", "claims", "ends", "server_cpu_us_per_task", "client_cpu_us_per_task", "keys_examined_per_task", "docs_examined_per_task",
		} {
			require.Contains(t, fields, f)
		}
		var name string
		require.NoError(t, json.Unmarshal(fields["scenario"], &name))
		names = append(names, name)
	}
	require.Equal(t, []string{"preloaded", "send/one", "send/concurrent", "send/batched"}, names)
	require.NotContains(t, s.databasesOf(), s.database, "the environment's database is somebody's")
	for _, name := range s.databasesOf() {
		require.NotContains(t, name, "mscheduler_bench_", "it is dropped afterwards")
	}
}

func TestBenchPrintsATableAndAProfile(t *testing.T) {
	s := newSession(t)
	profile := filepath.Join(s.dir, "cpu")
	r := s.ok("bench", "preloaded", "--tasks", "50", "--cpuprofile", profile)
	require.Contains(t, r.stdout, "SCENARIO")
	require.Contains(t, r.stdout, "preloaded")
	st, err := os.Stat(profile)
	require.NoError(t, err)
	require.Positive(t, st.Size())
}

func TestProgressOfABenchComesFromSeveralGoroutines(t *testing.T) {
	var shown lockedBuffer
	watch := &benchWatch{app: &app{Process: Process{Stderr: &shown, StderrTerminal: true}}}
	var steps sync.WaitGroup
	for _, step := range []string{"sending", "inserting"} {
		steps.Go(func() {
			for i := range 200 {
				watch.step("paced/1", step, i, 200)
			}
		})
	}
	steps.Wait()
	watch.end()
	require.Contains(t, shown.String(), "paced/1 sending")
}

func TestBenchOnAFileRemovesIt(t *testing.T) {
	s := newSession(t)
	file := filepath.Join(s.dir, "bench.db")
	r := s.ok("bench", "preloaded", "--tasks", "50", "--path", file, "-o", "json")
	require.Contains(t, r.stdout, `"engine":"embedded file"`)
	require.NoFileExists(t, file)
}

func TestBenchRefusesADatabaseThatExists(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	s.fails(ExitRefused, []string{"exists already; a bench only touches what it made itself"},
		"bench", "preloaded", "--tasks", "50", "--database", s.database)
	require.Contains(t, s.databasesOf(), s.database)
	file := filepath.Join(s.dir, "mine")
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
	s.fails(ExitRefused, []string{"mine exists already"}, "bench", "preloaded", "--tasks", "50", "--path", file)
	require.FileExists(t, file)
}

func TestInterruptedBenchSaysWhatItMeasured(t *testing.T) {
	s := newSession(t)
	out, errs, stop := s.start("bench", "steady", "--tasks", "50", "--duration", "10m", "-o", "json")
	s.eventually("the scenario's database", func() bool {
		return strings.Contains(strings.Join(s.databasesOf(), " "), "mscheduler_bench_") && s.benchRuns()
	})
	r := stop()
	require.Equal(t, ExitInterrupted, r.code, r.stderr)
	require.Contains(t, errs.String(), "mscheduler: interrupted\n")
	require.Contains(t, out.String(), `"scenario":"steady"`)
	require.Contains(t, out.String(), `"partial":true`)
	require.NotContains(t, strings.Join(s.databasesOf(), " "), "mscheduler_bench_")
}

// benchRuns says whether a bench has got as far as to have ended tasks.
func (s *session) benchRuns() bool {
	s.t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(s.uri))
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, client.Disconnect(context.Background())) }()
	for _, name := range s.databasesOf() {
		if strings.HasPrefix(name, "mscheduler_bench_") {
			n, err := client.Database(name).Collection("tasks").CountDocuments(s.t.Context(), bson.D{{Key: "status", Value: "Success"}})
			require.NoError(s.t, err)
			return n > 0
		}
	}
	return false
}

func TestBenchNeedsItsBinaryOnlyForProcesses(t *testing.T) {
	s := newSession(t)
	s.fails(ExitFailed, []string{"fleet: ", "starts the binary again"}, "bench", "fleet", "--tasks", "50")
}

func TestBenchNamesWhatIsWrong(t *testing.T) {
	s := newSession(t)
	for _, c := range []struct {
		args []string
		say  string
	}{
		{[]string{"bogus"}, `scenario is "bogus"; want some of preloaded, fleet`},
		{[]string{"--tasks", "-1"}, "--tasks is -1"},
		{[]string{"--duration", "soon"}, `--duration is "soon"; want a duration`},
		{[]string{"--rtt", "near"}, `--rtt is "near"`},
		{[]string{"--rtt", "2m"}, "--rtt is 2m0s; want up to 1s"},
		{[]string{"preloaded", "send", "--rtt", "5ms"}, "--rtt is not used by send; it is for preloaded, fleet"},
		{[]string{"paced", "--against", os.Args[0]}, "--against is not used by paced"},
		{[]string{"idle", "--results"}, "--results is not used by idle; it is for preloaded, fleet, delayed"},
		{[]string{"fleet", "--later", "1"}, "--later is not used by fleet"},
		{[]string{"idle", "--tasks", "9"}, "--tasks is not used by idle; it is for preloaded, fleet, paced"},
		{[]string{"idle", "--args-bytes", "9"}, "--args-bytes is not used by idle"},
		{[]string{"steady", "plan", "--processes", "2"}, "--processes is not used by steady; it is for fleet, paced, limited, idle"},
		{[]string{"send", "--duration", "1s"}, "--duration is not used by send; it is for paced, steady, idle, archive, periodic, plan"},
		{[]string{"paced", "--duration", "1s", "--tasks", "9"}, "--duration is not used by paced with --tasks; it is for steady"},
		{[]string{"takeover", "--concurrency", "9"}, "--concurrency is not used by takeover; it is for preloaded"},
		{[]string{"--duration", "1s", "--tasks", "9", "--database", "a b"}, "--duration is used by steady, idle, archive, periodic, plan only"},
		{[]string{"--rtt", "5ms", "--database", "a b"}, "--rtt is used by preloaded, fleet only"},
		{[]string{"--database", "a b"}, `--database is "a b"`},
		{[]string{"--uri", "http://x"}, "--uri is not a MongoDB URI"},
		{[]string{"--uri", s.uri, "--path", "x"}, "give one of them"},
		{[]string{"--cpuprofile", filepath.Join(s.dir, "no", "such")}, "--cpuprofile"},
	} {
		s.fails(ExitUsage, []string{c.say}, append([]string{"bench"}, c.args...)...)
	}
}

func TestBenchScaleEstimatesTheFleetsOfTheDocsOrTheGivenOne(t *testing.T) {
	s := newSession(t)
	r := s.ok("bench", "scale", "--workers", "300", "--rate", "2", "--takes", "10s")
	require.Regexp(t, `(?m)^WORKERS +300$`, r.stdout)
	require.Regexp(t, `(?m)^waiting, executing +10,000, 20$`, r.stdout)
	require.NotEqual(t, r.stdout, s.ok("bench", "scale", "--workers", "300", "--rate", "2", "--takes", "10s", "--subscriptions", "4").stdout)
	s.fails(ExitUsage, []string{"--workers is 0; want 1 to 10000", "--takes is 9000h0m0s; want up to 168h0m0s"}, "bench", "scale", "--workers", "0", "--takes", "9000h")
	s.fails(ExitUsage, []string{"--subscriptions is 5; want 0 to 4"}, "bench", "scale", "--subscriptions", "5")
	s.fails(ExitUsage, []string{"--stored is 10, fewer than wait and execute (5 and 20)"}, "bench", "scale", "--stored", "10", "--waiting", "5", "--rate", "2", "--takes", "10s")
	var fleets []map[string]any
	require.NoError(t, json.Unmarshal([]byte(s.ok("bench", "scale", "--workers", "20", "-o", "json").stdout), &fleets))
	require.Len(t, fleets, 1)
	require.EqualValues(t, 20, fleets[0]["workers"])
	require.Contains(t, s.ok("bench", "scale", "--help").stdout, "It is a model and connects to nothing")
}

func TestBenchCompareSaysWhatDidNotRunAndWhy(t *testing.T) {
	s := newSession(t)
	r := s.ok("bench", "compare", "--small", "--tasks", "40", "--duration", "100ms")
	require.Regexp(t, `(?m)^mscheduler +\S+.* 40 +[0-9]+`, r.stdout)
	require.Regexp(t, `(?m)^River +not run: no --postgres`, r.stdout)
	require.NotContains(t, r.stderr, "is used by", "compare uses all of its flags")
	require.Regexp(t, `(?m)^Agenda +not run: no --agenda`, r.stdout)
	for _, name := range s.databasesOf() {
		require.NotContains(t, name, "mscheduler_bench_", "it is dropped afterwards")
	}
	var all []map[string]any
	require.NoError(t, json.Unmarshal([]byte(s.ok("bench", "compare", "--small", "--tasks", "40", "--duration", "100ms", "-o", "json").stdout), &all))
	require.Len(t, all, 3)
	require.Equal(t, "no --postgres", all[1]["not_run"])
	s.fails(ExitUsage, []string{"--rounds is 99; want 1 to 20", "--postgres is not a URL that begins with postgres://"}, "bench", "compare", "--rounds", "99", "--postgres", "localhost")
	s.fails(ExitUsage, []string{"--tasks is -1"}, "bench", "compare", "--tasks", "-1")
}
