package rest_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mscheduler/mscheduler/internal/rest"
	"github.com/mscheduler/mscheduler/internal/store"
	"github.com/mscheduler/mscheduler/internal/testdb"
)

// BenchmarkLists asks for pages of each list among MSCHEDULER_BENCH_TASKS tasks (100,000 if it is not set), as many
// past lives, and a tenth as many of each other thing. It tells the median and the 99th percentile of what is rare,
// what is nowhere and what sums up, too. Below 100 ms is wanted; docs/performance.md has the numbers.
func BenchmarkLists(b *testing.B) {
	n := testdb.BenchTasks(b)
	db := testdb.New(b)
	st, err := store.Open(store.Config{Database: db})
	require.NoError(b, err)
	require.NoError(b, st.Ready(b.Context()))
	testdb.Fill(b, db, n, n/10)
	api, err := rest.New(rest.Config{Database: db, NoTokens: true})
	require.NoError(b, err)
	for _, list := range slices.Sorted(maps.Keys(testdb.Lists)) {
		for _, query := range testdb.Lists[list] {
			b.Run(query, func(b *testing.B) {
				testdb.Timed(b, func() {
					w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(b.Context(), http.MethodGet, "http://127.0.0.1/api/v1/"+query, nil)
					r.RemoteAddr = "127.0.0.1:1234"
					api.ServeHTTP(w, r)
					require.Equal(b, http.StatusOK, w.Code, w.Body)
				})
			})
		}
	}
}
