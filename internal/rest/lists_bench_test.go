package rest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/rest"
	"github.com/mscheduler/mscheduler/internal/testdb"
	"github.com/mscheduler/mscheduler/model"
	"github.com/mscheduler/mscheduler/producer"
)

var benched = model.NewType[int, model.None]("benched")

// BenchmarkLists asks for pages of lists among MSCHEDULER_BENCH_TASKS tasks (100,000 if it is not set), and
// tells the 99th percentile: what is rare, what is nowhere, and counts, too. Below 100 ms is wanted
// for pages.
func BenchmarkLists(b *testing.B) {
	n := 100_000
	if given := os.Getenv("MSCHEDULER_BENCH_TASKS"); given != "" {
		var err error
		n, err = strconv.Atoi(given)
		require.NoError(b, err)
	}
	db := testdb.New(b)
	p, err := producer.New(producer.Config{Database: db})
	require.NoError(b, err)
	defer func() { require.NoError(b, p.Close(b.Context())) }()
	items := make([]producer.Item[int], 0, 1000)
	for i := range n {
		item := producer.Item[int]{Args: i, Options: []producer.Option{producer.Tenant(fmt.Sprint("tenant", i%10))}}
		if i%(n/4) == 7 {
			item.Options = append(item.Options, producer.Creator("rare"))
		}
		if items = append(items, item); len(items) == cap(items) {
			_, err := producer.SendMany(b.Context(), p, benched, items)
			require.NoError(b, err)
			items = items[:0]
		}
	}
	api, err := rest.New(rest.Config{Database: db, NoTokens: true})
	require.NoError(b, err)
	for _, query := range []string{
		"tasks", "tasks?limit=1000", "tasks?type=benched", "tasks?tenant=tenant5", "tasks?tenant=tenant5&type=benched", "tasks?status=New",
		"tasks?creator=rare", "tasks?creator=nobody", "tasks?worker_id=nobody", "tasks?history=also", "tasks?created_before=2020-01-01T00:00:00Z",
	} {
		b.Run(query, func(b *testing.B) {
			var took []time.Duration
			for range b.N {
				began := time.Now()
				w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(b.Context(), http.MethodGet, "http://127.0.0.1/api/v1/"+query, nil)
				r.RemoteAddr = "127.0.0.1:1234"
				api.ServeHTTP(w, r)
				require.Equal(b, http.StatusOK, w.Code, w.Body)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Milliseconds()), "p99-ms")
		})
	}
}
