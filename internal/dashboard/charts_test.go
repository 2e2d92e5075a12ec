package dashboard_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mscheduler/mscheduler/internal/measure"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// elsewhere is another process, which counts for itself and records as of some time ago.
func (w *world) elsewhere() *store.Store {
	w.t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(testdb.URI(w.t)))
	require.NoError(w.t, err)
	testdb.Closes(w.t, client.Disconnect)
	s, err := store.Open(store.Config{Database: client.Database(w.db.Name())})
	require.NoError(w.t, err)
	require.NoError(w.t, s.Ready(w.t.Context()))
	require.NoError(w.t, s.ReadClock(w.t.Context()))
	return s
}

// seedSeries has a process do some work for a week, much of it in the last hour.
func (w *world) seedSeries() {
	w.t.Helper()
	s := w.elsewhere()
	// work counts n executions, and some that fail or are released.
	work := func(n, at int) {
		do := func(typ, outcome string, n int, late, took time.Duration) {
			of := s.Measure.Types.Of(typ)
			of.Ended.Of(outcome).Add(int64(n))
			for range min(n, 20) {
				of.Delay.Observe(late)
				of.Ran.Observe(took)
			}
		}
		do("report", measure.Success, n, time.Duration(4+at*7%40)*time.Millisecond, time.Duration(200+at*31%300)*time.Millisecond)
		do("mail", measure.Success, n/3, 20*time.Millisecond, time.Duration(1000+at%5*200)*time.Millisecond)
		if at%7 < 2 {
			do("mail", "error", n/9, 90*time.Millisecond, 4*time.Second)
			do("mail", "timeout", 1, 90*time.Millisecond, 9*time.Second)
		}
		if at%11 == 3 {
			do("crawl", "released", n/8, 200*time.Millisecond, 3*time.Minute)
		}
	}
	// Each of these times is recorded as if it were now.
	back := time.Duration(0)
	record := func(ago time.Duration) {
		s.Clock.Skip(back - ago)
		back = ago
		require.True(w.t, s.Series.Record(w.t.Context(), true))
	}
	for i := range 84 {
		work(900+i*i%800, i)
		record(7*24*time.Hour - time.Duration(i)*2*time.Hour)
	}
	for i := range 90 {
		work(120+i*37%90, i)
		record(24*time.Hour - time.Duration(i)*15*time.Minute)
	}
	for i := range 60 {
		work(12+i*i%23, i)
		if i%20 == 7 {
			s.Measure.Lateness.Of("periodic").Observe(14 * time.Second)
		}
		record(time.Hour - time.Duration(i)*time.Minute)
	}
}

func TestChartsSayWhatWouldFillThem(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/", "/?window=week", "/types/mail"} {
		_, text := w.page(path)
		require.Contains(t, text, "No execution has started or ended", path)
		require.Contains(t, text, "once a minute", path)
	}
}

func TestChartsShowWhatProcessesHaveRecorded(t *testing.T) {
	w := newWorld(t)
	s := w.elsewhere()
	s.Measure.Types.Of("report").Ended.Of(measure.Success).Add(1234)
	s.Measure.Types.Of("report").Ran.Observe(80 * time.Millisecond)
	s.Measure.Types.Of("mail").Ended.Of("fatal").Add(2)
	s.Measure.Types.Of("mail").Ended.Of("released").Add(3)
	s.Measure.Lateness.Of("periodic").Observe(14 * time.Second)
	s.Clock.Skip(-30 * time.Minute)
	require.True(t, s.Series.Record(t.Context(), true))
	w.call(http.MethodPost, "/tasks", map[string]any{"type": "mail", "key": "k"}) // it has a row
	for _, path := range []string{"/", "/?window=day", "/?window=week"} {
		_, text := w.page(path)
		for _, words := range []string{
			"1,234 succeeded", "2 failed", "3 released or cancelled", "1,239 in all, 2 of them failed", "median", "95th percentile", "The same as numbers",
			"tick of the last hour came more than 10 s late, by up to 30.0 s", "5 executions in the last ", ", 2 failed",
		} {
			require.Contains(t, text, words, path)
		}
		require.Less(t, strings.Index(text, "more than 10 s late"), strings.Index(text, "<svg class=\"chart\""), "what needs somebody comes first")
	}
	_, text := w.page("/?window=week")
	require.Contains(t, text, "Ended tasks are counted for a day.")
	_, text = w.page("/types/mail")
	require.Contains(t, text, "2 failed")
	require.NotContains(t, text, "1,234")
	_, text = w.page("/types")
	require.Contains(t, text, "5 executions in the last hour, 2 failed")
}

// The series belong to no tenant.
func TestAViewerOfATenantSeesNoCharts(t *testing.T) {
	w := newWorld(t)
	token := w.token("viewer", "mine")
	v := w.closed().visitor()
	v.signIn(token, "/ui/")
	for _, path := range []string{"/", "/?window=week"} {
		res, text := v.send(http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, res.StatusCode)
		require.Contains(t, text, "last day")
		require.NotContains(t, text, "last week<")
		require.NotContains(t, text, "No execution has started")
		require.NotContains(t, text, "Executions, last")
	}
}

func TestTheOverviewNamesAnOverdueTick(t *testing.T) {
	w := newWorld(t)
	w.call(http.MethodPost, "/periodics", map[string]any{"name": "nightly", "cron": "30 2 * * *", "type": "report"})
	w.call(http.MethodPost, "/periodics/-/nightly/enable", map[string]any{})
	_, err := w.db.Collection("periodic_rules").UpdateMany(context.Background(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "next_fire_at", Value: time.Now().Add(-time.Hour)}}}})
	require.NoError(t, err)
	_, text := w.page("/")
	require.Contains(t, text, "a tick is overdue: no engine decides it")
	require.Contains(t, text, `href="/ui/periodics"`)
}

func TestTheChartsLookRight(t *testing.T) {
	w, b := browse(t)
	w.seedSeries()
	w.seedTasks()
	b.looks("overview", w.url+"/ui/")
	b.looks("overview-week", w.url+"/ui/?window=week")
	b.visit(w.url + "/ui/")
	b.awaits(`getComputedStyle(document.querySelector("svg.chart rect.good")).fill != getComputedStyle(document.querySelector("svg.chart rect.off")).fill`)
	b.run(chromedp.Click(`a[href$="window=day"]`))
	b.awaits(`location.search.includes("window=day") && document.querySelector("[aria-label='Span of time'] [aria-current]").textContent == "last day"`)
	b.run(chromedp.Click(`#chart-numbers > summary`))
	b.awaits(`document.querySelector("#chart-numbers table").offsetHeight > 0`)
	b.accessible()

	s := w.elsewhere()
	s.Measure.Types.Of("report").Ended.Of("panic").Add(1_000_000)
	s.Clock.Skip(-5 * time.Minute)
	require.True(t, s.Series.Record(t.Context(), true))
	b.awaits(`document.querySelector(".legend").textContent.includes("1,000,")`) // without a reload
	b.awaits(`document.querySelector("#chart-numbers").open`)
	b.quiet()
}
