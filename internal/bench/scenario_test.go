package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/embedded"
	"github.com/mscheduler/mscheduler/model"
)

// drained is what every scenario that ends a backlog measures.
func drained(t *testing.T, r Result, tasks int) {
	t.Helper()
	require.Equal(t, tasks, r.Tasks)
	require.False(t, r.Partial)
	require.Equal(t, "embedded memory", r.Engine)
	require.NotNil(t, r.RawPerSecond)
	require.NotNil(t, r.Ratio)
	require.InDelta(t, *r.TasksPerSecond / *r.RawPerSecond, *r.Ratio, 0.001)
	require.GreaterOrEqual(t, *r.ClaimsAttemptedPerWon, 1.0)
	require.Positive(t, r.Commands["find"])
	require.GreaterOrEqual(t, r.Commands["update"], int64(2), "a claim and an end")
	var trips int64
	for _, n := range r.Commands {
		trips += n
	}
	require.InDelta(t, float64(trips)/float64(tasks), *r.RoundTripsPerTask, 0.001)
	require.Greater(t, *r.BytesPerTask, 100.0, "each document is read once")
}

func TestPreloadedDrainsItsBacklog(t *testing.T) {
	t.Parallel()
	drained(t, all(t, config(t, "preloaded"))["preloaded"], 60)
}

func TestFleetSharesTheBacklogAmongProcesses(t *testing.T) {
	t.Parallel()
	r := all(t, config(t, "fleet"))["fleet"]
	drained(t, r, 60)
	require.Equal(t, 2, r.Processes)
}

func TestLimitedMeasuresStartsASecond(t *testing.T) {
	t.Parallel()
	c := config(t, "limited")
	c.Small = true
	results := all(t, c)
	for _, name := range []string{"limited/alone", "limited/beside", "limited/behind"} {
		r := results[name]
		require.Equal(t, 99, r.Tasks, "from the first to the last")
		require.Positive(t, *r.TasksPerSecond)
		require.LessOrEqual(t, *r.TasksPerSecond, 300.0, "max_running holds")
		notes := strings.Join(r.Notes, " ")
		require.Contains(t, notes, "of the 250 starts a second")
		var took float64
		_, err := fmt.Sscanf(notes[strings.Index(notes, "its handlers took"):], "its handlers took %f ms", &took)
		require.NoError(t, err)
		require.GreaterOrEqual(t, took, 20.0, "no handler returns early")
	}
}

func TestEachProcessOfAFleetWritesAProfileOfItsOwn(t *testing.T) {
	t.Parallel()
	c := config(t, "fleet")
	dir := t.TempDir()
	c.WorkerProfile = func(part, worker string) string { return filepath.Join(dir, part+"-"+worker) }
	all(t, c)
	for _, name := range []string{"fleet-bench-1", "fleet-bench-2"} {
		st, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Positive(t, st.Size())
	}
}

func TestDelayedComparesWithTheBacklogAlone(t *testing.T) {
	t.Parallel()
	c := config(t, "delayed")
	c.Later, c.Others = 300, 200
	out := all(t, c)
	require.Len(t, out, 3)
	for _, r := range out {
		drained(t, r, 60)
	}
	require.Contains(t, out["delayed/later"].Notes[0], "beside 300 tasks that are not due: ")
	require.Contains(t, out["delayed/others"].Notes[0], "beside 200 tasks for another worker: ")
}

func TestPacedMeasuresHowLateEachStarts(t *testing.T) {
	t.Parallel()
	c := config(t, "paced")
	c.Tasks, c.Rate = 30, 200
	out := all(t, c)
	require.Len(t, out, 2)
	for _, name := range []string{"paced/1", "paced/2"} {
		r := out[name]
		drained(t, r, 30)
		require.NotNil(t, r.Latency)
		require.LessOrEqual(t, r.Latency.P50, r.Latency.P99)
		require.LessOrEqual(t, r.Latency.P99, r.Latency.Max)
		require.LessOrEqual(t, *r.TasksPerSecond, 250.0, "not faster than the pace")
		require.Contains(t, strings.Join(r.Notes, "\n"), "the floor (the driver's insert, its change event in another process, a guarded update): p50 ")
	}
}

func TestSteadyComparesItsWindows(t *testing.T) {
	t.Parallel()
	c := config(t, "steady")
	c.Duration = 2 * time.Second
	out := all(t, c)
	require.Len(t, out, 3)
	require.Positive(t, out["steady"].Tasks)
	require.GreaterOrEqual(t, out["steady"].Tasks, out["steady/first"].Tasks+out["steady/last"].Tasks)
	require.Contains(t, strings.Join(out["steady"].Notes, "\n"), "window  4: ")
}

func TestIdleCountsCommandsByName(t *testing.T) {
	t.Parallel()
	c := config(t, "idle")
	c.Processes, c.Duration = 1, 2*time.Second
	r := all(t, c)["idle/1"]
	require.Zero(t, r.Tasks)
	require.Nil(t, r.RawPerSecond)
	require.Contains(t, r.Notes[0], "commands a minute: ")
}

func TestTakeoverMeasuresFromLapseToStart(t *testing.T) {
	t.Parallel()
	c := config(t, "takeover")
	r := all(t, c)["takeover"]
	require.Equal(t, 60, r.Tasks)
	require.NotNil(t, r.Latency)
	require.Positive(t, r.Latency.P50, "nothing starts before its lapse")
	require.Empty(t, r.Notes)
}

func TestPeriodicMeasuresHowLateTicksAreAndWhatRulesCost(t *testing.T) {
	t.Parallel()
	c := config(t, "periodic")
	c.Duration = 2 * time.Second
	out := all(t, c)
	require.Len(t, out, 3)
	require.Equal(t, 2*60, out["periodic/ticks"].Tasks, "each tick has one task")
	require.LessOrEqual(t, *out["periodic/ticks"].TasksPerSecond, 60.0, "a rule of every second has one tick a second")
	require.NotNil(t, out["periodic/ticks"].Latency)
	require.Positive(t, out["periodic/ticks"].Latency.Max, "the slowest is later than the two clocks differ")
	for _, name := range []string{"periodic/one", "periodic/many"} {
		require.Positive(t, out[name].Tasks)
		require.Contains(t, out[name].Notes[0], "commands a minute: ")
		require.Contains(t, out[name].Notes[1], "of the engine alone: ")
		require.Contains(t, out[name].Notes[2], "processor time: engine and server ")
		together, _ := strings.CutPrefix(out[name].Notes[0], "commands a minute: ")
		require.NotContains(t, out[name].Notes[1], together, "the worker's commands count, too")
	}
}

func TestFlowMeasuresNodesAppendsAndStepsOfStreams(t *testing.T) {
	t.Parallel()
	out := all(t, config(t, "flow"))
	require.Len(t, out, 8)
	require.Equal(t, 60, out["flow/plain"].Tasks)
	require.Equal(t, 60, out["flow/wide"].Tasks)
	require.Contains(t, out["flow/wide"].Notes[0], " of the rate of plain tasks")
	require.Equal(t, 3, out["flow/long"].Tasks)
	require.Positive(t, out["flow/long"].Latency.P50, "no node starts before its parent has ended")
	for _, name := range []string{"flow/append/one", "flow/append/many"} {
		require.Equal(t, 60, out[name].Tasks)
		require.NotNil(t, out[name].Ratio, "appends stand beside raw inserts")
	}
	require.Equal(t, 60, out["flow/chain"].Tasks)
	require.Positive(t, out["flow/chain"].Latency.P50)
	require.Contains(t, out["flow/chain"].Notes[1], "p50 of the first tenth")
	require.Contains(t, out["flow/chain"].Notes[2], "times that of a plain send")
}

func TestPlanMeasuresLatenessAndWhatPlansCost(t *testing.T) {
	t.Parallel()
	c := config(t, "plan")
	c.Duration = 2 * time.Second
	out := all(t, c)
	require.Len(t, out, 5)
	require.Equal(t, 60, out["plan/due"].Tasks, "each plan runs")
	require.Positive(t, out["plan/due"].Latency.P50, "no step starts before its time")
	require.Contains(t, strings.Join(out["plan/due"].Notes, "\n"), "beside them 40 ticks of 20 rules: ")
	for _, name := range []string{"plan/sent", "plan/published"} {
		require.Equal(t, 60, out[name].Tasks)
		require.Contains(t, out[name].Notes[0], "a send: processor time ")
		for _, note := range out[name].Notes[:2] {
			require.Regexp(t, `, a raw insert \d+ µs, \d`, note)
		}
	}
	require.Regexp(t, `own record by the driver \d+ µs: a plan costs \d+\.\d+ of these and a delayed send`, strings.Join(out["plan/published"].Notes, "\n"))
	for _, name := range []string{"plan/none", "plan/many"} {
		require.Contains(t, out[name].Notes[0], "commands a minute: ")
	}
	require.Zero(t, out["plan/none"].Tasks)
}

func TestSendMeasuresProducersOnly(t *testing.T) {
	t.Parallel()
	out := all(t, config(t, "send"))
	require.Len(t, out, 3)
	for _, r := range out {
		require.Equal(t, 60, r.Tasks)
		require.NotNil(t, r.Ratio)
		require.Positive(t, r.Commands["insert"])
		require.Zero(t, r.Commands["update"])
	}
	require.Equal(t, int64(60), out["send/one"].Commands["insert"])
	require.Equal(t, int64(1), out["send/batched"].Commands["insert"])
}

// The fields are those of issues 7 and 15, and what is not measured is null.
func TestJSONHasTheAgreedFields(t *testing.T) {
	r := Result{Scenario: "idle/1", Engine: "embedded memory", Processes: 1, Concurrency: 100, Notes: []string{"n"}, Partial: true}
	out, err := json.Marshal(r)
	require.NoError(t, err)
	require.JSONEq(t, `{"scenario":"idle/1","engine":"embedded memory","tasks":0,"processes":1,"concurrency":100,"partial":true,
		"tasks_per_second":null,"raw_per_second":null,"ratio":null,"round_trips_per_task":null,
		"claims_attempted_per_won":null,"latency_ms":null,"commands":{},"finds":null,"claims":null,"ends":null,
		"server_cpu_us_per_task":null,"client_cpu_us_per_task":null,"keys_examined_per_task":null,"docs_examined_per_task":null}`, string(out))
	r.Latency = percentiles([]float64{1, 2})
	out, err = json.Marshal(r)
	require.NoError(t, err)
	require.Contains(t, string(out), `"latency_ms":{"p50":1,"p95":2,"p99":2,"max":2}`)
}

// databases of a server, each with its number of documents in the collection "kept".
func databases(t *testing.T, uri string) map[string]int64 {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Disconnect(context.Background())) }()
	names, err := client.ListDatabaseNames(t.Context(), bson.D{})
	require.NoError(t, err)
	out := map[string]int64{}
	for _, n := range names {
		out[n], err = client.Database(n).Collection("kept").CountDocuments(t.Context(), bson.D{})
		require.NoError(t, err)
	}
	return out
}

func deployed(t *testing.T) string {
	t.Helper()
	s, err := embedded.Start(embedded.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s.URI()
}

func TestDatabaseThatExistsIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	c := config(t, "preloaded")
	c.URI, c.Database = deployed(t), "precious"
	client, err := mongo.Connect(options.Client().ApplyURI(c.URI))
	require.NoError(t, err)
	_, err = client.Database("precious").Collection("kept").InsertOne(t.Context(), bson.D{})
	require.NoError(t, err)
	require.NoError(t, client.Disconnect(t.Context()))

	err = Run(t.Context(), c, func(Result) error { t.Error("nothing is measured"); return nil })
	require.ErrorIs(t, err, ErrRefused)
	require.ErrorContains(t, err, "the database precious exists already")
	require.Equal(t, int64(1), databases(t, c.URI)["precious"])
}

func TestOnADeploymentNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	c := config(t, "preloaded")
	c.URI = deployed(t)
	before := databases(t, c.URI)
	require.Equal(t, 60, all(t, c)["preloaded"].Tasks)
	require.Equal(t, before, databases(t, c.URI))
}

func TestFileIsMadeAndRemovedAndNeverSomebodyElses(t *testing.T) {
	t.Parallel()
	c := config(t, "preloaded")
	c.Path = filepath.Join(t.TempDir(), "bench.db")
	r := all(t, c)["preloaded"]
	require.Equal(t, "embedded file", r.Engine)
	require.Equal(t, 60, r.Tasks)
	require.NoFileExists(t, c.Path)

	c.Path = t.TempDir() // something that is there
	err := Run(t.Context(), c, func(Result) error { return nil })
	require.ErrorIs(t, err, ErrRefused)
	require.DirExists(t, c.Path)
}

func TestCancelledBenchSaysWhatItMeasuredUntilThen(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		step        string
		tasks, done int
	}{
		{"sending at the pace", 100_000, 50}, // nothing has ended yet on a busy machine
		{"ending", 300, 1},
	} {
		t.Run(x.step, func(t *testing.T) {
			t.Parallel()
			c := config(t, "paced") // with one process, and then with two
			c.URI, c.Tasks, c.Rate = deployed(t), x.tasks, 100
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.OnProgress = func(_, step string, done, _ int) {
				if step == x.step && done >= x.done {
					cancel()
				}
			}
			before := databases(t, c.URI)
			var got []Result
			err := Run(ctx, c, func(r Result) error { got = append(got, r); return nil })
			require.ErrorIs(t, err, context.Canceled)
			require.Len(t, got, 1)
			require.True(t, got[0].Partial)
			require.Equal(t, "paced/1", got[0].Scenario)
			require.NotNil(t, got[0].RawPerSecond)
			if x.step == "ending" {
				require.Positive(t, got[0].Tasks)
				require.LessOrEqual(t, got[0].Tasks, x.tasks)
				require.NotNil(t, got[0].Latency)
			} else {
				require.LessOrEqual(t, got[0].Tasks, x.done)
			}
			require.Equal(t, before, databases(t, c.URI), "it cleans up behind itself")
		})
	}
}

func TestProcessThatEndsByItselfIsAnError(t *testing.T) {
	t.Parallel()
	c := config(t, "fleet")
	c.WorkerEnv, c.WorkerArgs = nil, []string{"-test.run=^$"} // no worker at all
	err := Run(t.Context(), c, func(Result) error { return nil })
	require.ErrorContains(t, err, "fleet: ")
}

func TestBadConfigNamesWhatIsWrong(t *testing.T) {
	c := Config{Scenarios: []string{"bogus"}, Tasks: -1, Rate: -1, Duration: -1, Processes: 1000}
	require.ErrorContains(t, (&Config{Rate: math.NaN()}).Validate(), "--rate is NaN")
	err := c.Validate()
	require.ErrorIs(t, err, model.ErrInvalid)
	for _, text := range []string{`"bogus"`, "--tasks", "--rate", "--duration", "--processes"} {
		require.ErrorContains(t, err, text)
	}
}

func TestArchiveMovesEachFinishedTaskOnceBesideTheLoad(t *testing.T) {
	t.Parallel()
	c := config(t, "archive")
	c.Tasks, c.Duration = 1200, 500*time.Millisecond
	out := all(t, c)
	require.Len(t, out, 4)
	require.Positive(t, out["archive"].Tasks)
	for _, name := range []string{"archive/before", "archive/during", "archive/after"} {
		require.Contains(t, out, name, "how much is done in so short a time is the machine's affair")
	}
	notes := strings.Join(out["archive"].Notes, "\n")
	require.Contains(t, notes, "1200 finished tasks moved to the history within ")
	require.Contains(t, notes, "all 1200 arrived once")
	require.Contains(t, notes, "meanwhile / before and after: ")
}

func TestPullComparesWorkersOverHTTPWithOneInTheProcess(t *testing.T) {
	t.Parallel()
	results := all(t, config(t, "pull"))
	for _, name := range []string{"pull/process", "pull/http", "pull/one"} {
		r := results[name]
		require.Equal(t, 60, r.Tasks, name)
		require.False(t, r.Partial, name)
		require.Positive(t, *r.TasksPerSecond, name)
	}
	require.Contains(t, strings.Join(results["pull/http"].Notes, "\n"), "of the rate in the process")
}
