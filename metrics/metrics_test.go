package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/admin"
	"github.com/mscheduler/mscheduler/consumer"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/metrics"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/periodic"
	"github.com/mscheduler/mscheduler/periodic/schedule"
	"github.com/mscheduler/mscheduler/producer"
	"github.com/mscheduler/mscheduler/pull"
)

func TestMain(m *testing.M) { testdb.Main(m) }

// scrape is what Prometheus would read: a number for each time series; of a histogram its count and sum.
func scrape(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			series := func(suffix string) string {
				var labels []string
				for _, l := range m.GetLabel() {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
				name := strings.TrimPrefix(f.GetName(), "mscheduler_") + suffix
				if len(labels) > 0 {
					name += "{" + strings.Join(labels, ",") + "}"
				}
				return name
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				out[series("")] = m.GetCounter().GetValue()
			case dto.MetricType_HISTOGRAM:
				out[series("_count")] = float64(m.GetHistogram().GetSampleCount())
				out[series("_sum")] = m.GetHistogram().GetSampleSum()
			default:
				out[series("")] = m.GetGauge().GetValue()
			}
		}
	}
	return out
}

func collector(t *testing.T, cfg metrics.Config) prometheus.Collector {
	t.Helper()
	c, err := metrics.New(cfg)
	require.NoError(t, err)
	return c
}

// counted scrapes until the fleet was counted anew and in full: on a busy machine a count may take too long.
func counted(t *testing.T, db *mongo.Database, c prometheus.Collector) map[string]float64 {
	t.Helper()
	for began := time.Now(); ; {
		_, err := db.Collection("control").DeleteOne(t.Context(), map[string]any{"_id": "census"})
		require.NoError(t, err)
		now := scrape(t, c)
		if now["census_complete"] == 1 {
			return now
		}
		require.Less(t, time.Since(began), testdb.Patience, "the fleet is never counted in full")
	}
}

func ofProcess(t *testing.T, db *mongo.Database) prometheus.Collector {
	t.Helper()
	return collector(t, metrics.Config{Database: db, ProcessOnly: true})
}

func newProducer(t *testing.T, db *mongo.Database) *producer.Producer {
	t.Helper()
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(t, err)
	testdb.Closes(t, p.Close)
	return p
}

// runs runs something until the test, or what it returns, ends it.
func runs(t *testing.T, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { require.NoError(t, run(ctx)) })
	stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// reaches waits until a time series has at least the value, and returns all.
func reaches(t *testing.T, c prometheus.Collector, series string, value float64) (all map[string]float64) {
	t.Helper()
	require.Eventually(t, func() bool {
		all = scrape(t, c)
		return all[series] >= value
	}, testdb.Patience, 5*time.Millisecond, "%s of %v", series, all)
	return all
}

var (
	goodType = model.NewType[model.None, model.None]("good")
	badType  = model.NewType[model.None, model.None]("bad")
)

func TestWhatAWorkerDoesIsMeasured(t *testing.T) {
	db := testdb.New(t)
	p, m := newProducer(t, db), ofProcess(t, db)
	c, err := consumer.New(consumer.Config{Database: db, Concurrency: 7})
	require.NoError(t, err)
	hold, held := make(chan struct{}), make(chan struct{}, 10)
	release := sync.OnceFunc(func() { close(hold) })
	require.NoError(t, consumer.Handle(c, goodType, func(context.Context, *consumer.Task[model.None]) (model.None, error) {
		held <- struct{}{}
		<-hold
		return model.None{}, nil
	}))
	require.NoError(t, consumer.Handle(c, badType, func(context.Context, *consumer.Task[model.None]) (model.None, error) {
		return model.None{}, consumer.Fatal(errors.New("no"))
	}))
	before := scrape(t, m)
	require.Zero(t, before["process_workers"])
	require.Contains(t, before, `executions_total{outcome=success,type=good}`, "a rate needs a first value")

	for range 3 {
		_, err = producer.Send(t.Context(), p, goodType, model.None{})
		require.NoError(t, err)
	}
	_, err = producer.Send(t.Context(), p, badType, model.None{})
	require.NoError(t, err)
	stop := runs(t, c.Run)
	t.Cleanup(release)
	for range 3 {
		<-held
	}
	now := reaches(t, m, `executions_total{outcome=fatal,type=bad}`, 1)
	require.EqualValues(t, 1, now["process_workers"])
	require.EqualValues(t, 7, now["process_slots"])
	require.Eventually(t, func() bool { // the bad one is counted before its slot is free
		now = scrape(t, m)
		return now["process_running"] == 3 && now["process_held"] == 3
	}, 30*time.Second, 5*time.Millisecond)
	reaches(t, m, "process_watching", 1)
	release()
	now = reaches(t, m, `executions_total{outcome=success,type=good}`, 3)
	require.EqualValues(t, 4, now["claims_won_total"])
	require.GreaterOrEqual(t, now["claims_attempted_total"], 4.0)
	require.Positive(t, now["claim_batch_size_count"])
	require.EqualValues(t, 4, now["claim_batch_size_sum"])
	require.EqualValues(t, 4, now["end_batch_size_sum"])
	require.EqualValues(t, 3, now["start_delay_seconds_count{type=good}"])
	require.Positive(t, now["start_delay_seconds_sum{type=good}"])
	require.EqualValues(t, 3, now["execution_seconds_count{type=good}"])
	require.EqualValues(t, 1, now["execution_seconds_count{type=bad}"])
	require.Positive(t, now["fetches_total"])

	stop()
	after := scrape(t, m)
	require.Zero(t, after["process_workers"])
	require.GreaterOrEqual(t, after["fetches_total"], now["fetches_total"], "a counter never falls")
}

func TestLeasesAreMeasured(t *testing.T) {
	db := testdb.New(t)
	p, m := newProducer(t, db), ofProcess(t, db)
	// Somebody fetches a task and dies.
	_, err := producer.Send(t.Context(), p, goodType, model.None{})
	require.NoError(t, err)
	got, err := pull.New(p).Fetch(t.Context(), pull.FetchRequest{WorkerID: "dead", Types: []string{"good"}, Lease: time.Second})
	require.NoError(t, err)
	require.Len(t, got, 1)

	c, err := consumer.New(consumer.Config{Database: db, PollInterval: 100 * time.Millisecond, NoStream: true})
	require.NoError(t, err)
	handles, finish := make(chan string, 1), make(chan struct{})
	require.NoError(t, consumer.Handle(c, goodType, func(context.Context, *consumer.Task[model.None]) (model.None, error) {
		return model.None{}, nil
	}))
	require.NoError(t, consumer.Handle(c, badType, func(_ context.Context, x *consumer.Task[model.None]) (model.None, error) {
		handles <- x.Handle
		<-finish // whatever its context says
		return model.None{}, nil
	}))
	runs(t, c.Run)
	reaches(t, m, "takeovers_total", 1)
	reaches(t, m, "lease_scans_total", 1)
	reaches(t, m, "polls_total", 1)

	_, err = producer.Send(t.Context(), p, badType, model.None{}, producer.Lease(100*time.Millisecond, time.Second))
	require.NoError(t, err)
	handle := <-handles
	reaches(t, m, "ping_batches_total", 1)
	_, err = p.Fail(t.Context(), handle, "ended from outside", producer.Failure{Fatal: true})
	require.NoError(t, err)
	reaches(t, m, "leases_lost_total", 1)
	close(finish)
	reaches(t, m, "fenced_ends_total", 1)
}

func TestAnOutageIsMeasured(t *testing.T) {
	db := testdb.New(t)
	proxy := testdb.Behind(t)
	client, err := mongo.Connect(options.Client().ApplyURI(proxy.URI()).SetServerSelectionTimeout(50 * time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	c, err := consumer.New(consumer.Config{Database: client.Database(db.Name()), PollInterval: 100 * time.Millisecond, NoStream: true})
	require.NoError(t, err)
	require.NoError(t, consumer.Handle(c, goodType, func(context.Context, *consumer.Task[model.None]) (model.None, error) {
		return model.None{}, nil
	}))
	m := ofProcess(t, client.Database(db.Name()))
	stop := runs(t, c.Run)
	reaches(t, m, "polls_total", 1)
	proxy.Cut()
	reaches(t, m, "process_outages", 1)
	proxy.Mend()
	require.Eventually(t, func() bool { return scrape(t, m)["process_outages"] == 0 }, testdb.Patience, 5*time.Millisecond)
	stop()
}

func TestWhatIsPulledIsMeasured(t *testing.T) {
	db := testdb.New(t)
	p := newProducer(t, db)
	m := ofProcess(t, db)
	_, err := producer.Send(t.Context(), p, goodType, model.None{})
	require.NoError(t, err)
	got, err := pull.New(p).Fetch(t.Context(), pull.FetchRequest{WorkerID: "w", Types: []string{"good"}, Max: 5})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.EqualValues(t, 1, scrape(t, m)["claims_won_total"])
}

func TestTicksAreMeasuredByWhatBecameOfThem(t *testing.T) {
	db := testdb.New(t)
	rules, err := periodic.New(periodic.Config{Database: db})
	require.NoError(t, err)
	m := ofProcess(t, db)
	// Nobody runs its tasks, so each tick but the first meets a run.
	for _, spec := range []schedule.Spec{
		{Name: "skips", Overlap: schedule.OverlapSkip},
		{Name: "queues", MaxConcurrency: 1, Concurrency: schedule.ConcurrencyQueue},
	} {
		spec.Cron, spec.Type = "* * * * * *", "good"
		r, err := rules.Create(t.Context(), spec)
		require.NoError(t, err)
		_, err = rules.Enable(t.Context(), r.ID, 0)
		require.NoError(t, err)
	}
	runs(t, rules.Run)
	reaches(t, m, "ticks_total{result=started}", 2)
	reaches(t, m, "ticks_total{result=queued}", 1)
	now := reaches(t, m, "ticks_total{result=overlap}", 1)
	require.GreaterOrEqual(t, now["decision_lateness_seconds_count{kind=periodic}"], 2.0)
	require.Less(t, now["decision_lateness_seconds_sum{kind=periodic}"]/now["decision_lateness_seconds_count{kind=periodic}"], 60.0)
}

func TestTypesBeyondAHundredAreOther(t *testing.T) {
	db := testdb.New(t)
	m := ofProcess(t, db)
	c, err := consumer.New(consumer.Config{Database: db})
	require.NoError(t, err)
	for i := range 150 {
		typ := model.NewType[model.None, model.None](fmt.Sprintf("t%03d", i))
		require.NoError(t, consumer.Handle(c, typ, func(context.Context, *consumer.Task[model.None]) (model.None, error) {
			return model.None{}, nil
		}))
	}
	types := map[string]bool{}
	for series := range scrape(t, m) {
		if strings.HasPrefix(series, "execution_seconds_count") {
			types[series] = true
		}
	}
	require.Len(t, types, 101)
	require.Contains(t, types, "execution_seconds_count{type=other}")
}

func TestTheFleetIsCounted(t *testing.T) {
	db := testdb.New(t)
	p := newProducer(t, db)
	a := admin.New(p)
	_, err := a.PutType(t.Context(), model.TaskType{Code: "good", MaxRunning: 3})
	require.NoError(t, err)
	for range 4 {
		_, err := producer.Send(t.Context(), p, goodType, model.None{})
		require.NoError(t, err)
	}
	_, err = producer.Send(t.Context(), p, goodType, model.None{}, producer.In(time.Hour))
	require.NoError(t, err)
	require.NoError(t, a.Pause(t.Context(), "bad"))
	got, err := pull.New(p).Fetch(t.Context(), pull.FetchRequest{WorkerID: "w", Types: []string{"good"}, Max: 1})
	require.NoError(t, err)
	require.Len(t, got, 1)

	now := counted(t, db, collector(t, metrics.Config{Database: db}))
	require.EqualValues(t, 3, now["tasks{state=due,type=good}"])
	require.EqualValues(t, 1, now["tasks{state=delayed,type=good}"])
	require.EqualValues(t, 1, now["tasks{state=executing,type=good}"])
	require.EqualValues(t, 3, now["permits_limit{type=good}"])
	require.EqualValues(t, 1, now["permits_taken{type=good}"])
	require.EqualValues(t, 1, now["paused_types"])
	require.InDelta(t, float64(time.Now().Unix()), now["census_timestamp_seconds"], 300)
	require.Contains(t, now, "oldest_due_age_seconds{type=good}")
}

func TestWhatNoCensusHadTimeToCountIsMissing(t *testing.T) {
	db := testdb.New(t)
	s, err := store.Open(store.Config{Database: db})
	require.NoError(t, err)
	require.NoError(t, s.Ready(t.Context()))
	require.NoError(t, s.ReadClock(t.Context()))
	require.NoError(t, s.KeepCensus(t.Context(), store.Census{
		At: s.Clock.Now(), Took: time.Hour, // it is fresh for a day
		Types:  []store.TypeCensus{{Type: "a", Uncounted: []string{"due", "delayed", "running"}}, {Type: "b", Due: store.Backlog{N: 3}, Uncounted: []string{"delayed"}}},
		Scenes: []store.SceneCensus{{Scene: "a", Uncounted: true}, {Scene: "b", Open: 2}},
	}))
	now := scrape(t, collector(t, metrics.Config{Database: db}))
	var found []string
	for series := range now {
		if strings.HasPrefix(series, "tasks{") || strings.HasPrefix(series, "oldest_due") || strings.HasPrefix(series, "flow_stream") {
			found = append(found, series)
		}
	}
	require.ElementsMatch(t, []string{
		"tasks{state=due,type=b}", "tasks{state=executing,type=b}", "oldest_due_age_seconds{type=b}",
		"flow_streams{scene=b,state=open}", "flow_streams{scene=b,state=suspended}", "flow_streams{scene=b,state=closed}", "flow_stream_backlog{scene=b}",
	}, found)
}

func TestCommandsOfAClientAreCounted(t *testing.T) {
	name := testdb.New(t).Name()
	var commands metrics.Commands
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(t)).SetMonitor(commands.Monitor()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	db := client.Database(name)
	require.Error(t, db.RunCommand(t.Context(), map[string]any{"nosuchthing": 1}).Err())
	_, err = db.Collection("x").EstimatedDocumentCount(t.Context())
	require.NoError(t, err)
	now := scrape(t, collector(t, metrics.Config{Database: db, Commands: &commands, ProcessOnly: true}))
	require.EqualValues(t, 1, now["database_command_seconds_count{command=count}"])
	require.EqualValues(t, 1, now["database_commands_failed_total{command=nosuchthing}"])
}

func TestNumbersOfTheFleetAreMissingWhileTheDatabaseIsAway(t *testing.T) {
	proxy := testdb.Behind(t)
	client, err := mongo.Connect(options.Client().ApplyURI(proxy.URI()).SetServerSelectionTimeout(50 * time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.Background())) })
	testdb.Reached(t, client)
	m := collector(t, metrics.Config{Database: client.Database(testdb.New(t).Name())})
	require.Contains(t, scrape(t, m), "rules_online")
	proxy.Close()
	now := scrape(t, m)
	require.NotContains(t, now, "rules_online")
	require.Contains(t, now, "claims_won_total")
	now = scrape(t, m) // errors are counted before the fleet is
	require.Positive(t, now["database_errors_total{class=retry}"]+now["database_errors_total{class=ambiguous}"])
}
