package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/mscheduler/mscheduler/internal/doctor"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/view"
)

func TestPauseHoldsTasksBackUntilResume(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.ok("db", "migrate")
	require.Equal(t, "paused: exec\n", s.ok("pause", "exec").stdout)
	s.worker() // after it: one that lives learns of a pause within two seconds, not at once
	s.ok("send", "exec", "--key", "k", "--args", `{"argv":["true"]}`)
	explained := s.ok("task", "explain", "exec/k").stdout
	require.Contains(t, explained, "Claiming is paused for the type exec")
	require.Contains(t, explained, "mscheduler resume exec")
	require.Contains(t, s.ok("doctor").stdout, "claiming is paused for exec")
	s.fails(ExitFailed, nil, "task", "wait", "exec/k", "--timeout", "300ms")
	require.Equal(t, "paused: nothing\n", s.ok("resume", "exec").stdout)
	s.ok("task", "wait", "exec/k")

	var paused struct {
		All   bool
		Types []string
	}
	s.ok("pause", "--all", "-o", "json").json(&paused)
	require.True(t, paused.All)
	require.Equal(t, []string{}, paused.Types)
	require.Regexp(t, `(?m)^paused: everything, and by name t\nt: the relay is down \(.+@.+, .+\)$`, s.ok("pause", "t", "--note", "the relay is down").stdout)
	require.Contains(t, s.ok("doctor").stdout, "claiming is paused for all types, and for t by name (t: the relay is down)\n", "the note is that of one pause")
	require.Regexp(t, `^paused: t\nt: the relay is down`, s.ok("resume", "--all").stdout, "what was paused by name stays")
}

func TestWorkerListShowsWhoLives(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	require.Contains(t, s.ok("worker", "list").stderr, "no live worker")
	_, _, stop := s.worker()
	r := s.ok("worker", "list")
	require.Contains(t, r.stdout, "w1")
	require.Contains(t, r.stdout, "exec,http")
	var list struct{ Workers []view.Worker }
	s.ok("worker", "list", "-o", "json").json(&list)
	require.Len(t, list.Workers, 1)
	require.Equal(t, []string{"exec", "http", "mscheduler.bulk", "mscheduler.callback", "mscheduler.http"}, list.Workers[0].Types)
	require.Equal(t, 100, list.Workers[0].Concurrency)
	require.Equal(t, os.Getpid(), list.Workers[0].PID)

	s.ok("send", "exec", "--key", "k", "--args", `{"argv":["sleep","600"]}`)
	s.eventually("the worker to hold the task", func() bool { return strings.Contains(s.ok("worker", "show", "w1").stdout, "exec/k") })
	shown := s.ok("worker", "show", "w1").stdout
	require.Regexp(t, `(?m)^worker +w1\nstate +alive\ntypes +exec, http, `, shown)
	require.Regexp(t, `(?m)^HOLDS +ATTEMPT +CLAIMED +LEASE UNTIL\nexec/k +1 `, shown)
	var one workerView
	s.ok("worker", "show", "w1", "-o", "json").json(&one)
	require.Equal(t, "w1", one.ID)
	require.Len(t, one.Executions, 1)
	require.Equal(t, "-/exec/k", one.Executions[0].TaskID)
	require.True(t, one.Complete)
	s.fails(ExitNotFound, []string{"no such worker: w2"}, "worker", "show", "w2")
	s.ok("task", "cancel", "exec/k")

	r = s.ok("worker", "drain", "w1", "--note", "a new kernel")
	require.Equal(t, "w1  asked to drain\n", r.stdout)
	require.Regexp(t, `asked to drain|draining|drained`, s.ok("worker", "list").stdout, "as it has or has not read the request")
	s.ok("worker", "list", "-o", "json").json(&list)
	require.Equal(t, "a new kernel", list.Workers[0].Drain.Note)
	require.Regexp(t, `(?m)^note +a new kernel$`, s.ok("worker", "show", "w1").stdout)
	require.Equal(t, "worker", s.audit()[0].Kind)
	require.Regexp(t, `^w1  (alive|asked to resume)\n$`, s.ok("worker", "resume", "w1").stdout, "as it has or has not read the request to drain")
	var err error
	s.eventually("a resume before the next heartbeat of the worker, which tells what it does", func() bool {
		_, err = database(t, s).Collection("workers").UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "w1"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "draining", Value: true}}}})
		require.NoError(t, err)
		return s.ok("worker", "resume", "w1").stdout == "w1  asked to resume\n"
	})
	s.fails(ExitNotFound, []string{"no such worker: w2"}, "worker", "drain", "w2")
	s.fails(ExitUsage, []string{"note has 5000 bytes"}, "worker", "drain", "w1", "--note", strings.Repeat("x", 5000))

	// One that was killed stays for a while, and only --all shows it.
	_, err = database(t, s).Collection("workers").InsertOne(t.Context(), bson.D{
		{Key: "_id", Value: "old"}, {Key: "types", Value: bson.A{"x"}}, {Key: "heartbeat_at", Value: time.Now().Add(-10 * time.Minute)},
	})
	require.NoError(t, err)
	r = s.ok("worker", "list")
	require.NotContains(t, r.stdout, "old")
	require.Contains(t, r.stderr, "1 worker has no recent heartbeat")
	require.Contains(t, s.ok("worker", "list", "--all").stdout, "silent")
	s.fails(ExitRefused, []string{"the worker old is dead"}, "worker", "drain", "old")

	stopped := stop()
	require.Equal(t, ExitOK, stopped.code, stopped.stderr)
	require.Contains(t, stopped.stderr, "stopped: 1 execution finished")
	require.NotContains(t, s.ok("worker", "list", "--all").stdout, "w1", "a graceful stop leaves nothing behind")
}

func TestWorkerListShowsEachKindOfAnEngine(t *testing.T) {
	s := newSession(t)
	_, _, stop := s.worker("--periodic", "--flow", "--plan")
	var row string
	s.eventually("one engine decides about everything", func() bool {
		row = regexp.MustCompile(`(?m)^engine-.*$`).FindString(s.ok("worker", "list").stdout)
		return strings.Contains(row, "mscheduler.flow") && strings.Contains(row, "mscheduler.periodic") && strings.Contains(row, "mscheduler.plan")
	})
	require.NotContains(t, row, "…")
	stop()
}

func TestWorkerStopsGracefully(t *testing.T) {
	s := newSession(t)
	runs := filepath.Join(s.dir, "runs")
	s.ok("send", "exec", "--key", "k", "--args", `{"argv":["sh", "-c", "touch `+runs+`; sleep 600"]}`)
	_, errs, stop := s.worker("--shutdown-timeout", "0s")
	s.eventually("the task to run", func() bool { _, err := os.Stat(runs); return err == nil })
	r := stop()
	require.Equal(t, ExitOK, r.code, r.stderr)
	require.Contains(t, errs.String(), "stopping: waiting at most 0s for 1 task")
	show := s.ok("task", "show", "exec/k").stdout
	require.Regexp(t, `(?m)^status +New$`, show, "given back at once, without cost")
	require.Contains(t, show, "released after")
}

func TestEventsAreJSONLines(t *testing.T) {
	s := newSession(t)
	s.ok("send", "exec", "--key", "k", "--args", `{"argv":["true"]}`)
	out, errs, stop := s.worker("--events")
	s.ok("task", "wait", "exec/k")
	require.Equal(t, ExitOK, stop().code)
	require.Contains(t, errs.String(), "worker w1 runs http and exec tasks of ")
	require.Contains(t, errs.String(), "stopped: 1 execution finished")
	s.fails(ExitRefused, []string{"mscheduler: exec/k is Success; to run it again, send its key with: mscheduler send --existing restart-succeeded\n"}, "task", "retry", "exec/k")
	s.fails(ExitRefused, []string{"mscheduler: exec/k is Success: only a task that has not ended can be cancelled\n"}, "task", "cancel", "exec/k")
	var kinds []string
	for line := range strings.Lines(out.String()) {
		var e struct {
			Kind     string
			WorkerID string    `json:"worker_id"`
			TaskID   string    `json:"task_id"`
			At       time.Time `json:"at"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &e), line)
		require.Equal(t, "w1", e.WorkerID)
		require.False(t, e.At.IsZero())
		if e.TaskID != "" {
			kinds = append(kinds, e.Kind)
		}
	}
	require.Equal(t, []string{"claimed", "started", "finished"}, kinds)
}

func TestProgramsDoNotSeeThePasswordsOfTheWorker(t *testing.T) {
	s := newSession(t)
	s.environ = []string{"OTEL_EXPORTER_OTLP_HEADERS=api-key=hunter2", "OTEL_EXPORTER_OTLP_TRACES_HEADERS=api-key=hunter2", "OTEL_SERVICE_NAME=shop"}
	s.worker()
	r := s.ok("send", "exec", "--args", `{"argv":["env"]}`, "--wait")
	require.Contains(t, r.stdout, "PATH=/usr/bin:/bin")
	require.Contains(t, r.stdout, "MSCHEDULER_TASK_ID=-/exec/")
	require.Contains(t, r.stdout, "OTEL_SERVICE_NAME=shop")
	require.NotContains(t, r.stdout, "MSCHEDULER_MONGODB_URI")
	require.NotContains(t, r.stdout, "OTEL_EXPORTER_OTLP_")
}

func checks(t *testing.T, r result) map[string]doctor.Finding {
	t.Helper()
	var d struct {
		OK     bool
		Checks []doctor.Finding
	}
	r.json(&d)
	out := map[string]doctor.Finding{}
	for _, f := range d.Checks {
		out[f.Check] = f
	}
	return out
}

func TestDoctorKnowsTheConditionsOfWorkers(t *testing.T) {
	s := newSession(t)
	s.ok("db", "migrate")
	s.ok("pause", "http")
	s.ok("send", "http", "--key", "a", "--tenant", "acme", "--args", `{"url":"http://127.0.0.1:1"}`)
	_, _, stop := s.worker("--tenant", "acme")
	require.Contains(t, checks(t, s.ok("doctor", "-o", "json"))["due tasks"].Detail, "the oldest, of type http, waits")
	s.ok("send", "http", "--key", "b", "--tenant", "other", "--args", `{"url":"http://127.0.0.1:1"}`)
	due := checks(t, s.ok("doctor", "-o", "json"))["due tasks"]
	require.Equal(t, "warn", due.State)
	require.Contains(t, due.Detail, "no live worker of type http takes other/http/b")
	stop()
}

func TestDoctorFindsWhatIsWrongAndSaysWhatToDo(t *testing.T) {
	s := newSession(t)
	fresh := checks(t, s.ok("doctor", "-o", "json"))
	require.Equal(t, "warn", fresh["schema"].State)
	require.Contains(t, fresh["schema"].Advice, "if it is the right database")
	for _, name := range []string{"connection", "clock", "reading", "writing"} {
		require.Equal(t, "ok", fresh[name].State, "%s: %+v", name, fresh[name])
	}
	require.Empty(t, collections(t, s), "it leaves nothing behind")

	s.ok("send", "lonely", "--key", "k")
	got := checks(t, s.ok("doctor", "-o", "json"))
	require.Equal(t, "warn", got["workers"].State)
	require.Contains(t, got["due tasks"].Detail, "no live worker handles lonely")
	require.Equal(t, "ok", got["leases"].State)

	require.Equal(t, "ok", got["callbacks"].State)
	s.ok("type", "apply", "-f", s.file("code: told\ncallback: {success: {url: 'http://h/'}}\n"))
	s.ok("periodic", "apply", "-f", s.file("name: often\ncron: '@yearly'\ntype: t\noptions: {callback: {error: {url: 'http://h/'}}}\n---\nname: quiet\ncron: '@yearly'\ntype: t\n"))
	got = checks(t, s.ok("doctor", "-o", "json"))
	require.Equal(t, "warn", got["callbacks"].State)
	require.Contains(t, got["callbacks"].Detail, "no live worker delivers the callbacks of the type told, the rule often:")

	s.worker()
	got = checks(t, s.ok("doctor", "-o", "json"))
	require.Equal(t, "ok ok", got["workers"].State+" "+got["callbacks"].State)

	// A lease that nobody looks after, and a task that waits too long.
	tasks := database(t, s).Collection("tasks")
	_, err := tasks.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "-/lonely/k"}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "lapse_at", Value: time.Now().Add(-time.Hour)}}}})
	require.NoError(t, err)
	s.ok("pause", "http")
	s.ok("send", "http", "--args", `{"url":"http://127.0.0.1:1"}`, "--at", "-1h")
	got = checks(t, s.ok("doctor", "-o", "json"))
	require.Equal(t, "warn", got["leases"].State)
	require.Contains(t, got["leases"].Detail, "lonely/k")
	require.Contains(t, s.ok("doctor").stdout, "->")

	err = database(t, s).Collection("tasks").Indexes().DropAll(t.Context())
	require.NoError(t, err)
	r := s.run("doctor")
	require.Equal(t, ExitFailed, r.code)
	require.Contains(t, r.stdout, "indexes are missing; run: mscheduler db migrate")
}

func TestExplainSaysWhyATaskWaits(t *testing.T) {
	s := newSession(t)
	s.ok("send", "t", "--key", "nobody")
	require.Contains(t, s.ok("task", "explain", "t/nobody").stdout, "No live worker handles the type t (there is no live worker).")
	s.ok("send", "t", "--key", "held", "--held")
	require.Contains(t, s.ok("task", "explain", "t/held").stdout, "It is held")
	s.worker()
	require.Contains(t, s.ok("task", "explain", "t/nobody").stdout, "live workers handle exec, http")
	s.ok("send", "http", "--key", "later", "--in", "1h", "--args", `{"url":"http://127.0.0.1:1"}`)
	later := s.ok("task", "explain", "http/later").stdout
	require.Contains(t, later, "It is waiting for its start time")
	require.Contains(t, later, "may be claimed by the worker w1")
	s.ok("send", "http", "--key", "named", "--specific-worker-ids", "w2", "--args", `{"url":"http://127.0.0.1:1"}`)
	named := s.ok("task", "explain", "http/named").stdout
	require.Contains(t, named, "Only the worker w2 may run it.")
	require.Contains(t, named, "not now: only other workers may run it")
}

func TestDevServesTheDirectoryItRunsIn(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	uri := s.uri
	s.uri = ""
	dev := func() (errs *lockedBuffer, stop func() result) {
		_, errs, stop = s.start("dev", "--worker-id", "w1", "--allow-exec", "--path", filepath.Join(s.dir, "tasks.db"))
		s.eventually("the dev worker", func() bool { return strings.Contains(s.run("worker", "list").stdout, "w1") })
		return errs, stop
	}
	errs, stop := dev()
	require.Contains(t, errs.String(), "dev server at mongodb://127.0.0.1:")
	r := s.ok("send", "exec", "--key", "k", "--args", `{"argv":["true"]}`, "--wait")
	require.Equal(t, 1, strings.Count(r.stderr, "using the dev server of this directory"), "said once")
	s.fails(ExitRefused, []string{"a dev server is already running in this directory"}, "dev")
	require.Contains(t, s.ok("doctor").stdout, "the embedded server")
	settings := s.ok("work", "--check-config").stdout
	require.Regexp(t, `(?m)^uri +mongodb://127\.0\.0\.1:\S+ +`+regexp.QuoteMeta(devFileName)+`$`, settings)
	require.Regexp(t, `(?m)^database +`+regexp.QuoteMeta(s.database)+` +\S`, settings)
	s.uri = uri
	s.fails(ExitRefused, []string{"is not set up"}, "task", "list") // a URI wins over the dev server
	s.uri = ""

	require.Equal(t, ExitOK, stop().code)
	require.NoFileExists(t, filepath.Join(s.dir, devFileName))
	s.fails(ExitUsage, []string{"no database"}, "task", "list")

	// A file that a killed server left is replaced, and the tasks are still there.
	old := devFile{URI: "mongodb://" + closedPort(t) + "/?directConnection=true", PID: 1, Server: "x"}
	require.NoError(t, old.write(s.dir))
	errs, _ = dev()
	require.Contains(t, errs.String(), "is no longer running; replacing its file")
	require.Contains(t, s.ok("task", "show", "exec/k").stdout, "Success")
}

func TestEmbeddedServesAnyClient(t *testing.T) {
	s := newSession(t)
	out, errs, stop := s.start("embedded", "--addr", "127.0.0.1:0")
	s.eventually("the address", func() bool { return strings.HasSuffix(out.String(), "\n") })
	require.Contains(t, errs.String(), "development")
	s.ok("send", "t", "--uri", strings.TrimSpace(out.String()))
	require.Equal(t, ExitOK, stop().code)

	s.fails(ExitUsage, []string{"without authentication"}, "embedded", "--addr", "0.0.0.0:0")
	s.fails(ExitUsage, []string{`address "foo"`}, "embedded", "--addr", "foo")
	s.fails(ExitUsage, []string{"must end in .sock"}, "embedded", "--addr", "/tmp/foo")
	s.fails(ExitUsage, []string{"must contain a slash, such as ./foo.sock"}, "embedded", "--addr", "foo.sock")
	s.fails(ExitUsage, []string{"no such file"}, "embedded", "--addr", filepath.Join(s.dir, "none", "x.sock"))
	s.fails(ExitUsage, []string{"no such file"}, "embedded", "--addr", "127.0.0.1:0", "--path", filepath.Join(s.dir, "none", "x"))
}

func TestAFileIsCompactedAndValidatedWhenNobodyHasIt(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	file := filepath.Join(s.dir, "db")
	out, _, stop := s.start("embedded", "--addr", "127.0.0.1:0", "--path", file)
	s.eventually("the address", func() bool { return strings.HasSuffix(out.String(), "\n") })
	s.ok("send", "t", "--uri", strings.TrimSpace(out.String()))
	s.fails(ExitFailed, []string{"in use by another process"}, "embedded", "compact", file)
	require.Equal(t, ExitOK, stop().code)

	require.Contains(t, s.ok("embedded", "compact", file).stdout, "bytes, before")
	var report struct {
		Documents int      `json:"documents"`
		Problems  []string `json:"problems"`
	}
	s.ok("embedded", "validate", file, "-o", "json").json(&report)
	require.Positive(t, report.Documents)
	require.Empty(t, report.Problems)
	for _, verb := range []string{"validate", "compact"} {
		s.fails(ExitUsage, []string{"no such file"}, "embedded", verb, file+"x")
	}
	s.fails(ExitUsage, []string{"requires the file"}, "embedded", "compact")
}

func TestAPauseOfATypeThatALiveWorkerRunsIsNoSlip(t *testing.T) {
	s := newSession(t)
	s.worker()
	for _, typ := range []string{"http", "mscheduler.callback"} {
		require.Empty(t, s.ok("pause", typ).stderr)
	}
	require.Contains(t, s.ok("pause", "htpp").stderr, `unknown type "htpp": no definition, no tasks and no live worker`)
}

func TestAWorkerMayHoldMoreThanWasLookedAt(t *testing.T) {
	now := time.Now()
	require.Contains(t, workerText(&store.Worker{ID: "w1", HeartbeatAt: now}, nil, true, now), "may hold other tasks")
	require.NotContains(t, workerText(&store.Worker{ID: "w1", HeartbeatAt: now}, nil, false, now), "may hold other tasks")
}
